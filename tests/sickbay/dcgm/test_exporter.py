"""Pages of dcgm-exporter (detection 8.17): the last Xid counts when it changes, blanks are no numbers."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sickbay.checks import CheckOutcome, CheckResult
from sickbay.dcgm.blanks import is_blank
from sickbay.dcgm.exporter import judge_page
from sickbay.dcgm.last_xids import remembered_xids
from sickbay.faults import ComponentKind, Rung
from tests.sickbay.dcgm.outputs import page, page_line

XID = "DCGM_FI_DEV_XID_ERRORS"
REMAP = "DCGM_FI_DEV_ROW_REMAP_FAILURE"
NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
INT64 = [str(0x7FFF_FFFF_FFFF_FFF0 + kind) for kind in range(4)]
INT32 = [str(0x7FFF_FFF0 + kind) for kind in range(4)]
FP64 = [f"{140737488355328.0 + kind:f}" for kind in range(4)]
BLANKS = [*INT64, *INT32, *FP64, "9.223372036854776e+18", "1.40737488355328e+14", "NaN", "+Inf"]


def found(outcome: CheckOutcome) -> set[tuple[str, str, Rung]]:
    return {(fault.code, fault.component.id, fault.rung) for fault in outcome.faults}


def test_a_whole_page_of_well_gpus_is_well() -> None:
    outcome = judge_page(page())
    assert (outcome.result, outcome.why) == (CheckResult.HEALTHY, "GPUs on the page: 4")


def test_the_level_of_the_last_xid_is_told_and_its_change_counts_once() -> None:
    """dcgm-exporter#95: the number never returns to zero."""
    first = judge_page(page(changes={(XID, 2): "95"}))
    assert found(first) == {("dcgm-xid", "0000:52:00", Rung.NONE)}
    same = judge_page(page(changes={(XID, 2): "95"}), before=remembered_xids(first.memory))
    assert same.result is CheckResult.HEALTHY
    changed = judge_page(page(changes={(XID, 2): "79"}), before=remembered_xids(same.memory))
    assert found(changed) == {("xid-79", "0000:52:00", Rung.REBOOT)}
    after = judge_page(page(changes={(XID, 2): "79"}), before=remembered_xids(changed.memory))
    assert after.result is CheckResult.HEALTHY


def test_a_page_that_is_lost_in_between_forgets_no_xid() -> None:
    first = judge_page(page(changes={(XID, 2): "95"}))
    silent = judge_page("", before=remembered_xids(first.memory))
    assert silent.result is CheckResult.UNKNOWN
    again = judge_page(page(changes={(XID, 2): "95"}), before=remembered_xids(silent.memory))
    assert again.result is CheckResult.HEALTHY


def test_xids_of_nvlink_weigh_as_their_kernel_line_does() -> None:
    before = remembered_xids(judge_page(page()).memory)
    assert found(judge_page(page(changes={(XID, 0): "145"}), before=before)) == {("dcgm-xid", "0000:50:00", Rung.NONE)}


def test_xids_within_the_exporters_window_count_as_such() -> None:
    line = page_line("DCGM_EXP_XID_ERRORS_COUNT", 1, "2", xid="119", window_size_in_ms="300000")
    assert found(judge_page(f"{page()}{line}\n")) == {("xid-119", "0000:51:00", Rung.RESET_GPU)}


@pytest.mark.parametrize(
    ("family", "value", "code", "rung"),
    [
        (REMAP, "1", "row-remap-failed", Rung.REPLACE),
        ("DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS", "512", "row-remap-exhausted", Rung.REPLACE),
        ("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", "1", "ecc-uncorrected", Rung.RESET_GPU),
        ("DCGM_FI_DEV_RETIRED_DBE", "63", "page-retirement-exhausted", Rung.REPLACE),
        ("DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL", "7", "dcgm-nvlink-counts", Rung.NONE),
        ("DCGM_FI_DEV_FABRIC_MANAGER_STATUS", "4", "dcgm-fabric", Rung.HUMAN),
        ("DCGM_FI_DEV_GPU_RECOVERY_ACTION", "2", "gpu-recovery-action", Rung.REBOOT),
        ("DCGM_EXP_GPU_HEALTH_STATUS", "10", "dcgm-advice", Rung.NONE),
        ("DCGM_EXP_GPU_HEALTH_STATUS", "20", "dcgm-triage", Rung.HUMAN),
    ],
)
def test_a_number_past_its_limit_is_a_fault_of_its_gpu(family: str, value: str, code: str, rung: Rung) -> None:
    assert found(judge_page(page(changes={(family, 3): value}))) == {(code, "0000:53:00", rung)}


@pytest.mark.parametrize(
    ("family", "value"),
    [
        ("DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS", "511"),
        ("DCGM_FI_DEV_FABRIC_MANAGER_STATUS", "3"),
        ("DCGM_FI_DEV_RETIRED_SBE", "62"),
        ("DCGM_FI_DEV_GPU_RECOVERY_ACTION", "0"),
    ],
)
def test_a_number_within_its_limit_is_well(family: str, value: str) -> None:
    changes = {(family, gpu): value for gpu in range(4)}
    assert judge_page(page(changes=changes)).result is CheckResult.HEALTHY


@pytest.mark.parametrize("blank", BLANKS)
def test_blanks_are_no_counts_and_no_zeros(blank: str) -> None:
    assert is_blank(float(blank))
    for family in (REMAP, XID, "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL"):
        outcome = judge_page(page(changes={(family, 1): blank}))
        assert (outcome.result, outcome.faults) == (CheckResult.UNKNOWN, ())
        assert "GPU 1" in outcome.why
        assert "blank" in outcome.why


@given(st.integers(0, 2**31 - 17) | st.floats(0, 1e14))
def test_what_dcgm_counts_is_no_blank(count: float) -> None:
    assert not is_blank(count)


def test_a_blank_of_memory_is_well_on_gpus_that_have_no_rows_to_remap() -> None:
    """EKS node monitoring agent #245, #246 (detection 8.11)."""
    old = page(changes={(REMAP, gpu): INT64[2] for gpu in range(4)}, model="Tesla T4")
    assert judge_page(old).result is CheckResult.HEALTHY
    assert judge_page(old.replace("Tesla T4", "NVIDIA A10G")).result is CheckResult.UNKNOWN


def test_a_page_that_lacks_what_judges_is_unknown() -> None:
    without = "\n".join(line for line in page().splitlines() if XID not in line) + "\n"
    assert "no DCGM_FI_DEV_XID_ERRORS" in judge_page(without).why
    without = "\n".join(line for line in page().splitlines() if REMAP not in line) + "\n"
    assert judge_page(without).result is CheckResult.UNKNOWN


def test_a_family_of_fewer_gpus_than_the_others_is_a_torn_page() -> None:
    line = page_line("DCGM_FI_DEV_POWER_USAGE", 0, "80.5")
    assert judge_page(f"{page()}{line}\n").why == "DCGM_FI_DEV_POWER_USAGE tells of 1 of 4 GPUs"
    assert judge_page(page(), expected_gpus=8).why == "it tells of 4 of 8 GPUs"


@pytest.mark.parametrize(
    "text", ["", "\n", "# HELP DCGM_FI_DEV_XID_ERRORS x\n", "go_goroutines 12\n", "404 not found\n"]
)
def test_a_page_without_samples_of_gpus_is_silence(text: str) -> None:
    """NVSentinel#1574: the exporter lives, and its page is empty."""
    assert judge_page(text).result is CheckResult.UNKNOWN


def test_samples_with_an_old_time_of_their_own_are_silence() -> None:
    def stamped(age: timedelta) -> str:
        stamp = int((NOW - age).timestamp() * 1000)
        return "".join(f"{line}{'' if line.startswith('#') else f' {stamp}'}\n" for line in page().splitlines())

    assert judge_page(stamped(timedelta(minutes=6)), now=NOW).why == "its samples are 360 s old"
    assert judge_page(stamped(timedelta(minutes=1)), now=NOW).result is CheckResult.HEALTHY


def test_a_mig_slice_counts_to_its_parent() -> None:
    slices = [page_line(XID, 0, "0", GPU_I_ID=str(number), GPU_I_PROFILE="1g.10gb") for number in (7, 9)]
    outcome = judge_page("\n".join([*slices, ""]))
    assert outcome.result is CheckResult.UNKNOWN
    assert "as of MIG slices" in outcome.why
    parent = page([0]) + "\n".join([*slices, ""])
    assert judge_page(parent).why == "GPUs on the page: 1"


def test_a_page_without_addresses_tells_gpus_by_number() -> None:
    text = page([2], changes={(REMAP, 2): "1"}).replace(',pci_bus_id="00000000:52:00.0"', "")
    assert found(judge_page(text)) == {("row-remap-failed", "index 2", Rung.REPLACE)}


def test_nvlink_counts_are_of_the_gpus_links() -> None:
    (fault,) = judge_page(page(changes={("DCGM_FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL", 0): "3"})).faults
    assert fault.component.kind is ComponentKind.NVLINK


def test_words_of_a_shell_before_the_page_are_skipped_and_broken_lines_in_it_are_not() -> None:
    assert judge_page(f"Handling connection for 9400\n{page()}").result is CheckResult.HEALTHY
    broken = page().replace('modelName="', "modelName=", 1)
    assert "cannot be read" in judge_page(broken).why


@given(st.data())
def test_a_page_that_lost_its_end_is_never_well(data: st.DataObject) -> None:
    whole = page(range(2))
    # Behind its last line that judges, a page has nothing whose loss could be seen.
    needed = whole.rindex(REMAP) + len(REMAP)
    cut = whole[: data.draw(st.integers(0, needed))]
    assert judge_page(cut).result is CheckResult.UNKNOWN


@given(st.data())
def test_a_page_with_a_line_torn_out_is_never_well(data: st.DataObject) -> None:
    lines = page(range(2)).splitlines()
    judging = [at for at, line in enumerate(lines) if line.startswith((XID, REMAP))]
    lines.pop(data.draw(st.sampled_from(judging)))
    assert judge_page("\n".join([*lines, ""])).result is CheckResult.UNKNOWN


@given(st.one_of(st.text(), st.text(alphabet='DCGM_FIXID{}=",#0123456789 \n')))
def test_no_text_raises_and_none_of_noise_is_well(text: str) -> None:
    assert judge_page(text).result is CheckResult.UNKNOWN
