"""The judgement of every recorded output of DCGM in the shared cases; what each must lead to is in its .expect file."""

from collections.abc import Callable
from pathlib import Path

import pytest

from sickbay.checks import CheckOutcome, CheckResult
from sickbay.dcgm.recorded import judge_diag, judge_exporter, judge_health
from sickbay.recorded.model import Reader, Recorded, RecordedContext, RecordedKind

CASES = Path(__file__).parents[3] / "shared" / "cases" / "diagnostics"

pytestmark = pytest.mark.skipif(not CASES.is_dir(), reason="the shared cases lie beside a checkout, not in it")

READERS: dict[RecordedKind, Reader] = {
    RecordedKind.DCGMI_DIAG: judge_diag,
    RecordedKind.DCGMI_HEALTH: judge_health,
    RecordedKind.EXPORTER: judge_exporter,
}
PARTS = {
    "02-v3-per-gpu-fail-and-skip.json": {"index 0", "index 2", "index 3"},
    "03-v3-deployment-fail-rest-skipped.json": {"index 1"},
    "05-v3-level1-fail-and-warn-no-gpu-id.json": {"unknown"},
    "08-v4-gb10-persistence-fail-rc226.json": {"index 0"},
    "12-v3-text-a10g-gpu1-targeted-power-fail.txt": {"index 1"},
    "14-v3-text-gpu0-thermal-fragment.txt": {"index 0"},
    "15-v3-text-error-row-remap-pending-fragment.txt": {"index 3"},
    "02-nvlink-errors-crc12.json": {"index 0"},
    "03-nvlink-s-down-and-disabled.txt": {"index 0", "index 1"},
}
"""The parts that have faults, where there are any."""


def cases() -> list[tuple[RecordedKind, Path]]:
    folders = ((kind, CASES / kind) for kind in READERS)
    return [(kind, path) for kind, folder in folders for path in sorted(folder.glob("*")) if path.suffix != ".expect"]


def expectation(case: Path) -> dict[str, str]:
    lines = case.with_suffix(".expect").read_text().splitlines()
    return {key: value.strip() for key, _, value in (line.partition(":") for line in lines)}


def judge(kind: RecordedKind, case: Path) -> CheckOutcome:
    code = expectation(case).get("exit", "")
    recorded = Recorded(kind=kind, text=case.read_text(), exit_code=int(code) if code.isdigit() else None)
    return READERS[kind](recorded, RecordedContext())


every_case: Callable[..., pytest.MarkDecorator] = pytest.mark.parametrize(
    ("kind", "case"), [pytest.param(kind, path, id=f"{kind}/{path.name}") for kind, path in cases()]
)


@every_case
def test_each_case_is_judged_as_its_expectation_says(kind: RecordedKind, case: Path) -> None:
    outcome = judge(kind, case)
    assert outcome.result == expectation(case)["expect"].partition("(")[0]
    assert {fault.component.id for fault in outcome.faults} == PARTS.get(case.name, set())
    assert outcome.why or outcome.result in (CheckResult.HEALTHY, CheckResult.FAULTS)


@every_case
def test_no_case_without_its_last_third_is_well(kind: RecordedKind, case: Path) -> None:
    text = case.read_text()
    cut = Recorded(kind=kind, text=text[: len(text) * 2 // 3])
    assert READERS[kind](cut, RecordedContext()).result in (CheckResult.UNKNOWN, CheckResult.FAULTS)
