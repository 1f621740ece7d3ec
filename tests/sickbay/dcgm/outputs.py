"""Outputs of DCGM in the shapes that its versions print, of our own making."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

WIDTHS = (27, 48)
TESTS_V4 = ("software", "memory", "pcie")


def result_v4(gpu: int, status: str = "Pass", *warnings: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {"entity_group": "GPU", "entity_group_id": 1, "entity_id": gpu, "status": status}
    return found | ({"warnings": list(warnings)} if warnings else {})


def warning(text: str, error_id: int, severity: int) -> dict[str, Any]:
    return {"warning": text, "error_id": error_id, "error_category": 10, "error_severity": severity}


def check_v4(name: str, results: Sequence[dict[str, Any]], summary: str = "Pass", **more: Any) -> dict[str, Any]:
    return {"name": name, "results": list(results), "test_summary": {"status": summary, **more}}


def diag_v4(*tests: dict[str, Any], gpus: int = 4) -> dict[str, Any]:
    """A run of DCGM 4; all tests of level 2 pass where none is given."""
    given = tests or tuple(check_v4(name, [result_v4(gpu) for gpu in range(gpus)]) for name in TESTS_V4)
    return {
        "DCGM Diagnostic": {"test_categories": [{"category": "Hardware", "tests": list(given)}]},
        "entity_groups": [
            {
                "entity_group": "GPU",
                "entity_group_id": 1,
                "entities": [{"entity_id": gpu, "device_id": "2330", "serial_num": f"16{gpu}"} for gpu in range(gpus)],
            }
        ],
        "metadata": {"version": "4.4.1", "Driver Version Detected": "580.95.05"},
    }


def diag_v3(**statuses: str) -> dict[str, Any]:
    """A run of level 1 of DCGM 3, whose tests pass unless told otherwise (`Persistence_Mode="Fail"`)."""
    names = ("Denylist", "NVML Library", "Persistence Mode", "Page Retirement/Row Remap", "Inforom")
    tests = [{"name": name, "results": [{"status": statuses.get(name.replace(" ", "_"), "Pass")}]} for name in names]
    return {"DCGM GPU Diagnostic": {"test_categories": [{"category": "Deployment", "tests": tests}]}}


def border(fill: str = "-") -> str:
    return "+" + "+".join(fill * width for width in WIDTHS) + "+"


def row(name: str, value: str) -> list[str]:
    """A row as dcgmi draws it: a text that is too long goes on below, cut wherever the column ends."""
    room = WIDTHS[1] - 3
    pieces = [value[at : at + room] for at in range(0, len(value), room)] or [""]
    names = [name, *("" for _ in pieces[1:])]
    return [f"| {head:<{WIDTHS[0] - 1}}| {piece:<{room}}  |" for head, piece in zip(names, pieces, strict=True)]


def section(word: str, first: bool = False) -> str:
    edge = "|" if first else "+"
    left = f"-----  {word}  ".ljust(WIDTHS[0], "-")
    return f"{edge}{left}+{'-' * WIDTHS[1]}{edge}"


def diag_table(*rows: tuple[str, str], metadata: Mapping[str, str] | None = None) -> str:
    """A table of `dcgmi diag` with these rows below one heading."""
    lines = ["Successfully ran diagnostic for group.", border(), *row("Diagnostic", "Result"), border("=")]
    if metadata:
        lines += [section("Metadata", first=True)]
        lines += [line for name, value in metadata.items() for line in row(name, value)]
    lines.append(section("Deployment", first=True))
    lines += [line for name, value in rows for line in row(name, value)]
    return "\n".join([*lines, border(), ""])


def health_json(overall: str = "Healthy", systems: Mapping[int, Mapping[str, tuple[str, str]]] | None = None) -> str:
    """A report of `dcgmi health -c -j`: by GPU and system, the state and the message."""
    body: dict[str, Any] = {"Overall Health": {"value": overall}}
    if systems:
        body["GPU"] = {
            "children": {
                str(gpu): {
                    "value": overall,
                    "children": {
                        "Errors": {
                            "children": {
                                system: {"value": state, **({"overflow": text.split(". ")} if text else {})}
                                for system, (state, text) in by_system.items()
                            }
                        }
                    },
                }
                for gpu, by_system in systems.items()
            }
        }
    return json.dumps({"header": ["Health Monitor Report"], "body": body}, indent=4)


def health_table(overall: str = "Healthy", *rows: tuple[str, str]) -> str:
    title = f"| {'Health Monitor Report':<{sum(WIDTHS)}}|"
    lines = [border(), title, border("="), *row("Overall Health", overall)]
    lines += [line for name, value in rows for line in row(name, value)]
    return "\n".join([*lines, border(), ""])


def page_line(family: str, gpu: int, value: str, model: str = "NVIDIA H100 80GB HBM3", **labels: str) -> str:
    named = {
        "gpu": str(gpu),
        "UUID": f"GPU-0000000{gpu}-aaaa-bbbb-cccc-000000000000",
        "pci_bus_id": f"00000000:5{gpu}:00.0",
        "device": f"nvidia{gpu}",
        "modelName": model,
        "Hostname": "node-a",
        **labels,
    }
    told = ",".join(f'{name}="{text}"' for name, text in named.items())
    return f"{family}{{{told}}} {value}"


FAMILIES = {
    "DCGM_FI_DEV_GPU_TEMP": "31",
    "DCGM_FI_DEV_XID_ERRORS": "0",
    "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS": "0",
    "DCGM_FI_DEV_ROW_REMAP_FAILURE": "0",
    "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL": "0",
}


def page(gpus: Iterable[int] = range(4), changes: Mapping[tuple[str, int], str] | None = None, **model: str) -> str:
    """A page of dcgm-exporter; `changes` by family and GPU."""
    told = changes or {}
    known = {**FAMILIES, **{family: "0" for family, _ in told if family not in FAMILIES}}
    lines = []
    for family, value in known.items():
        lines += [f"# HELP {family} some words.", f"# TYPE {family} gauge"]
        lines += [page_line(family, gpu, told.get((family, gpu), value), **model) for gpu in gpus]
    return "\n".join([*lines, ""])
