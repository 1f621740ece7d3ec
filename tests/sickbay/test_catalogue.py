import re

import pytest

from sickbay import catalogue
from sickbay.faults import Component, ComponentKind, FaultClass, Rung, Severity

CORRECTED_SXIDS = [11012, *range(11021, 11024), 12021, 12023, 15008, 15011, 19049, 19055, 19071, *range(24001, 24004)]
FATAL_SXIDS = [12020, 22003, 22011, *range(23001, 23018), 11001, 12032, 14017, 15013, 19047, 19070, 20034, 24007]


@pytest.mark.parametrize("number", range(1, 177))
def test_every_xid_that_the_driver_knows_has_a_row(number: int) -> None:
    row = catalogue.lookup_xid(number)
    assert row.known
    assert row.code == f"xid-{number}"
    assert row.mnemonic
    assert row.source


def test_sxids_that_are_corrected_disturb_nobody() -> None:
    for number in CORRECTED_SXIDS:
        row = catalogue.lookup_sxid(number)
        assert row.known
        assert (row.fault_class, row.rung) == (FaultClass.WATCH, Rung.NONE)


def test_sxids_that_stop_the_fabric_need_a_reboot() -> None:
    for number in FATAL_SXIDS:
        row = catalogue.lookup_sxid(number)
        assert (row.fault_class, row.rung, row.severity) == (FaultClass.FABRIC, Rung.REBOOT, Severity.FATAL)


@pytest.mark.parametrize("code", ["xid-999", "sxid-1", "neuron-something-new", ""])
def test_a_code_without_a_row_is_watched_and_never_a_reason_to_disturb_a_node(code: str) -> None:
    row = catalogue.lookup(code)
    assert not row.known
    assert (row.fault_class, row.rung, row.severity) == (FaultClass.WATCH, Rung.NONE, Severity.WARNING)
    assert "human" in row.meaning


@pytest.mark.parametrize(
    ("code", "fault_class", "rung"),
    [
        ("xid-13", FaultClass.APPLICATION, Rung.NONE),
        ("xid-45", FaultClass.APPLICATION, Rung.NONE),
        ("xid-48", FaultClass.GPU, Rung.RESET_GPU),
        ("xid-64", FaultClass.GPU, Rung.REPLACE),
        ("xid-79", FaultClass.GPU, Rung.REBOOT),
        ("xid-92", FaultClass.WATCH, Rung.NONE),
        ("xid-119", FaultClass.GPU, Rung.RESET_GPU),
        ("xid-136", FaultClass.FABRIC, Rung.RESET_GPU),
        ("xid-154", FaultClass.WATCH, Rung.NONE),
        ("row-remap-failed", FaultClass.GPU, Rung.REPLACE),
        ("node-not-ready", FaultClass.HOST, Rung.REBOOT),
        ("monitor-silent", FaultClass.MONITOR_UNAVAILABLE, Rung.BLOCK_NEW_WORK),
    ],
)
def test_rows_that_decide_much(code: str, fault_class: FaultClass, rung: Rung) -> None:
    row = catalogue.lookup(code)
    assert (row.fault_class, row.rung) == (fault_class, rung)


def test_a_monitor_that_cannot_answer_never_disrupts() -> None:
    assert not catalogue.lookup("monitor-silent").rung.disrupts


def test_the_catalogue_has_a_version() -> None:
    assert re.fullmatch(r"\d{4}\.\d+", catalogue.CATALOGUE_VERSION)


def test_a_fault_made_from_a_row_carries_what_the_row_says() -> None:
    gpu = Component(kind=ComponentKind.GPU, id="0000:61:00")
    fault = catalogue.fault_of("xid-79", gpu, seen=12.5, boot_id="b", evidence=("line",))
    assert (fault.fault_class, fault.rung, fault.severity) == (FaultClass.GPU, Rung.REBOOT, Severity.FATAL)
    assert (fault.first_seen, fault.last_seen, fault.boot_id, fault.evidence) == (12.5, 12.5, "b", ("line",))
