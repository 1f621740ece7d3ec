"""Xids that NVML tells, beside those of the kernel log."""

from datetime import UTC, datetime

import pytest

from sickbay.faults import FaultClass, Rung, update_faults
from sickbay.gpu_readings.events import (
    RECOVERY_ACTION_EVENT,
    UNAVAILABLE_EVENT,
    XID_EVENT,
    NvmlEvent,
    fault_of_event,
)
from sickbay.kernel_log import scan

NOW = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)


def event(data: int, kind: int = XID_EVENT, pci: str = "00000000:53:00.0") -> NvmlEvent:
    return NvmlEvent(type=kind, data=data, pci=pci)


def test_an_xid_is_the_fault_of_the_catalogue() -> None:
    fault = fault_of_event(event(79), "boot-1", NOW)
    assert fault is not None
    assert (fault.code, fault.component.id, fault.rung) == ("xid-79", "0000:53:00", Rung.REBOOT)


@pytest.mark.parametrize("told", [event(154), event(1, RECOVERY_ACTION_EVENT), event(1, kind=1)])
def test_the_drivers_verdict_and_other_events_open_nothing(told: NvmlEvent) -> None:
    """detection 8.23"""
    assert fault_of_event(told, "boot-1", NOW) is None


def test_a_cleanup_asks_for_nothing_and_an_unknown_xid_is_watched() -> None:
    """detection 8.7"""
    cleanup, unknown = fault_of_event(event(45), "b", NOW), fault_of_event(event(999), "b", NOW)
    assert cleanup is not None
    assert unknown is not None
    assert (cleanup.rung, unknown.rung, unknown.fault_class) == (Rung.NONE, Rung.NONE, FaultClass.WATCH)


def test_a_gpu_that_cannot_be_named_is_unknown() -> None:
    fault = fault_of_event(event(0, UNAVAILABLE_EVENT, pci=""), "b", NOW)
    assert fault is not None
    assert (fault.code, fault.component.id) == ("gpu-unavailable", "unknown")


@pytest.mark.parametrize("xid", [74, 95, *range(144, 151)])
def test_without_the_words_of_the_line_only_the_least_is_believed(xid: int) -> None:
    """detection 8.6: an NVLink error may be of the kind that is not fatal."""
    fault = fault_of_event(event(xid), "b", NOW)
    assert fault is not None
    assert fault.rung.strength < Rung.RESET_GPU.strength


def test_one_xid_told_twice_is_one_fault_counted_once() -> None:
    line = "NVRM: Xid (PCI:0000:53:00): 145, RLW_RXPIPE Nonfatal XC0 i0 Link 05 (0x00000001 0x00000002)"
    told = fault_of_event(event(145), "boot-1", NOW)
    assert told is not None
    (fault,) = update_faults(scan([line], boot_id="boot-1"), [told])
    assert (fault.code, fault.rung, fault.count) == ("xid-145", Rung.NONE, 1)
