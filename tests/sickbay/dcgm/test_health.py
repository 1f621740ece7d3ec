"""Reports of `dcgmi health` and listings of `dcgmi nvlink`: what DCGM's own watches say, and what they cannot."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sickbay.checks import CheckOutcome, CheckResult
from sickbay.dcgm.recorded import judge_health
from sickbay.faults import ComponentKind, FaultClass, Rung
from sickbay.recorded.model import Recorded, RecordedContext, RecordedKind
from tests.sickbay.dcgm.outputs import border, health_json, health_table, row


def judge(text: str, exit_code: int | None = 0, context: RecordedContext | None = None) -> CheckOutcome:
    recorded = Recorded(kind=RecordedKind.DCGMI_HEALTH, text=text, exit_code=exit_code)
    return judge_health(recorded, context or RecordedContext())


def found(outcome: CheckOutcome) -> set[tuple[str, str, Rung]]:
    return {(fault.code, fault.component.id, fault.rung) for fault in outcome.faults}


@pytest.mark.parametrize("report", [health_json(), health_table()])
def test_a_report_without_incidents_is_well(report: str) -> None:
    assert judge(report).result is CheckResult.HEALTHY
    assert judge(report, 253).result is CheckResult.UNKNOWN


@pytest.mark.parametrize(
    ("system", "state", "text", "code", "rung"),
    [
        ("NVLINK system", "Failure", "GPU 3's NvLink link 2 is currently down", "nvlink-down", Rung.RESET_GPU),
        ("NVLINK system", "Failure", "", "dcgm-nvlink-errors", Rung.BLOCK_NEW_WORK),
        ("NVLINK system", "Warning", "Detected 4 nvlink_replay NvLink errors on GPU 3", "dcgm-advice", Rung.NONE),
        ("Memory system", "Failure", "Detected XID 64 for GPU 3", "xid-64", Rung.REPLACE),
        ("Memory system", "Warning", "Detected XID 31 for GPU 3", "xid-31", Rung.NONE),
        ("NVLINK system", "Failure", "Detected XID 145 for GPU 3", "dcgm-xid", Rung.NONE),
        ("Memory system", "Failure", "", "dcgm-triage", Rung.HUMAN),
        ("InfoROM system", "Warning", "A corrupt InfoROM has been detected in GPU 3", "dcgm-advice", Rung.NONE),
        ("InfoROM system", "Failure", "A corrupt InfoROM has been detected in GPU 3", "inforom-corrupted", Rung.HUMAN),
        ("Thermal system", "Failure", "", "dcgm-advice", Rung.NONE),
        ("Driver", "Failure", "GPU 3 has fallen off the bus", "gpu-lost", Rung.REBOOT),
    ],
)
def test_an_incident_is_a_fault_of_its_gpu_in_either_shape(
    system: str, state: str, text: str, code: str, rung: Rung
) -> None:
    by_json = judge(health_json(state, {3: {system: (state, text)}}))
    by_table = judge(
        health_table(
            state, ("GPU", ""), ("-> 3", state), ("   -> Errors", ""), (f"      -> {system}", state), ("", text)
        )
    )
    assert found(by_json) == found(by_table) == {(code, "index 3", rung)}
    assert not by_json.why


def old_table(*lines: str) -> str:
    return "\n".join(["Health Monitor Report", border(), *lines, ""])


def test_the_tables_of_older_versions_are_read_too() -> None:
    well = old_table(f"| {'Overall Health:    Healthy':<76}|", border("="))
    assert judge(well).result is CheckResult.HEALTHY
    assert judge(well[: well.rindex("+=")]).result is CheckResult.UNKNOWN
    ill = old_table(
        *row("Group 1", "Overall Health:    Warning"),
        border("="),
        *row("GPU ID: 4", "Failure"),
        *row("", "Memory system: Failure - Detected 2 volatile"),
        *row("", "double-bit ECC error(s) in GPU 4."),
        *row("", "InfoROM system: Warning - A corrupt InfoROM"),
        border(),
    )
    assert found(judge(ill)) == {
        ("ecc-uncorrected", "index 4", Rung.RESET_GPU),
        ("dcgm-advice", "index 4", Rung.NONE),
    }


def test_each_xid_of_one_message_is_a_fault_of_its_own() -> None:
    report = health_json(
        "Failure", {0: {"PCIe system": ("Failure", "Detected XID 79 for GPU 0. Detected XID 31 for GPU 0")}}
    )
    assert {code for code, _, _ in found(judge(report))} == {"xid-79", "xid-31"}


def test_a_failure_that_names_no_part_is_kept() -> None:
    assert judge(health_json("Failure")).result is CheckResult.FAULTS


def test_bad_parts_below_a_good_word_count() -> None:
    assert found(judge(health_json("Healthy", {1: {"SM system": ("Failure", "")}}))) == {
        ("dcgm-triage", "index 1", Rung.HUMAN)
    }


@pytest.mark.parametrize("word", ["Internal error", "Fine", ""])
def test_a_word_that_is_no_state_is_no_health(word: str) -> None:
    assert judge(health_json(word)).result is CheckResult.UNKNOWN
    assert judge(health_json("Healthy", {0: {"SM system": (word, "")}})).result is CheckResult.UNKNOWN


@pytest.mark.parametrize(
    ("text", "code"),
    [("", 0), ("Error: Health watches not enabled. Please enable watches.", 253), ("Error: unable to connect", 235)],
)
def test_no_report_is_unknown(text: str, code: int) -> None:
    assert judge(text, code).result is CheckResult.UNKNOWN


REPORTS = (health_json(), health_json("Failure", {0: {"SM system": ("Failure", "some words")}}), health_table())


@given(st.sampled_from(REPORTS), st.data())
def test_a_report_that_lost_its_end_is_never_well(report: str, data: st.DataObject) -> None:
    cut = report[: data.draw(st.integers(0, len(report.rstrip()) - 1))]
    assert judge(cut).result in (CheckResult.UNKNOWN, CheckResult.FAULTS)


@given(st.one_of(st.text(), st.text(alphabet='{}[]":,|+-=>GPU 0UDX_\n')))
def test_no_text_raises_and_none_of_noise_is_well(text: str) -> None:
    assert judge(text).result is CheckResult.UNKNOWN


KEY = "NvSwitches:\n    No NvSwitches found.\n\nKey: Up=U, Down=D, Disabled=X, Not Supported=_\n"


def states(*gpus: str) -> str:
    title = "+----------------------+\n|  NvLink Link Status  |\n+----------------------+\nGPUs:\n"
    return (
        title
        + "".join(f"    gpuId {number}:\n        {' '.join(letters)}\n" for number, letters in enumerate(gpus))
        + KEY
    )


def test_links_that_are_up_or_not_there_are_well() -> None:
    assert judge(states("UUUUUUUU____", "UUUUUUUU____")).result is CheckResult.HEALTHY
    assert judge(states("____", "____")).result is CheckResult.HEALTHY


def test_links_that_are_down_or_disabled_are_told_by_gpu() -> None:
    outcome = judge(states("UUDUUDUU", "UUUUUUUX"))
    assert found(outcome) == {
        ("nvlink-down", "index 0", Rung.RESET_GPU),
        ("dcgm-nvlink-disabled", "index 1", Rung.HUMAN),
    }
    assert {fault.component.kind for fault in outcome.faults} == {ComponentKind.NVLINK}
    assert "2, 5" in outcome.faults[0].evidence[0]


def test_absent_bridges_of_cards_are_no_fault_and_a_dark_board_is_one() -> None:
    """detection 8.16: an A100 PCIe without bridges has no link that could be up."""
    dark = states("DDDD", "DDDD")
    card = RecordedContext(products=("NVIDIA A100-PCIE-40GB",))
    board = RecordedContext(products=("NVIDIA A100-SXM4-40GB",))
    assert judge(dark, context=card).result is CheckResult.HEALTHY
    assert judge(dark, context=board).result is CheckResult.FAULTS
    assert judge(dark).result is CheckResult.UNKNOWN
    coming = RecordedContext(products=board.products, fabric_in_progress=True)
    assert judge(dark, context=coming).result is CheckResult.STARTING


def test_a_listing_that_lost_a_part_is_never_well() -> None:
    whole = states("UUUU", "UUUU")
    assert judge(whole[: whole.index("Key:")]).result is CheckResult.UNKNOWN
    assert judge(whole[whole.index("GPUs:") :]).result is CheckResult.UNKNOWN
    assert judge(states("UUUU", "UU")).result is CheckResult.UNKNOWN
    assert judge(whole.replace("    gpuId 0:\n", "")).result is CheckResult.UNKNOWN
    assert judge(whole.replace("    gpuId 1:\n", "")).result is CheckResult.UNKNOWN
    assert judge(states("UUUU", "UU?U")).result is CheckResult.UNKNOWN
    assert judge(whole, context=RecordedContext(expected_gpus=8)).result is CheckResult.UNKNOWN


def counts(gpu: int, *links: tuple[str, str, str, str]) -> str:
    names = ("CRC FLIT Error", "CRC Data Error", "Replay Error", "Recovery Error")
    body = {
        f"Link {number}": {"children": {name: {"value": value} for name, value in zip(names, values, strict=True)}}
        for number, values in enumerate(links)
    }
    return json.dumps({"header": ["NVLINK Error Counts", f"GPU {gpu}"], "body": body})


QUIET = ("0", "0", "0", "0")


def test_counts_are_told_and_condemn_nothing() -> None:
    (fault,) = judge(counts(5, QUIET, ("0", "3", "0", "1"))).faults
    assert (fault.fault_class, fault.rung, fault.component.id) == (FaultClass.WATCH, Rung.NONE, "index 5")
    assert "Link 1: 3 CRC Data Errors; Link 1: 1 Recovery Errors" in fault.evidence[0]


def test_quiet_links_of_several_calls_are_well_only_if_all_calls_are_whole() -> None:
    both = counts(0, QUIET) + "\n" + counts(1, QUIET)
    assert judge(both).result is CheckResult.HEALTHY
    assert judge(both[:-9]).result is CheckResult.UNKNOWN


@pytest.mark.parametrize("value", ["9223372036854775794", "N/A", "", "-1", "0x0"])
def test_what_is_no_count_is_unknown(value: str) -> None:
    assert judge(counts(0, (value, "0", "0", "0"))).result is CheckResult.UNKNOWN


def test_a_table_of_counts_needs_its_end() -> None:
    title = f"| {'NVLINK Error Counts':<76}|\n| {'GPU 0':<76}|"
    names = ("CRC FLIT Error", "CRC Data Error", "Replay Error", "Recovery Error")
    lines = [
        border(),
        title,
        border("="),
        *row("Link 0", ""),
        *(line for name in names for line in row(f"-> {name}", "0")),
    ]
    assert judge("\n".join([*lines, border()])).result is CheckResult.HEALTHY
    assert judge("\n".join(lines)).result is CheckResult.UNKNOWN
    assert judge("\n".join([*lines[:-1], border()])).result is CheckResult.UNKNOWN
