from datetime import UTC, datetime

from health.kernel_faults import KernelFaults
from health.kernel_log import KernelRecord
from sickbay.faults import Fault
from sickbay.open_faults import Happening

from .records import ACTION_NONE, ACTION_RESET, XID_31, XID_119

NOW = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)


def records(*messages: str, start: int = 0) -> list[KernelRecord]:
    return [
        KernelRecord(number, f"3,{number},{number * 1000},-;{message}".encode())
        for number, message in enumerate(messages, start)
    ]


def told(happening: Happening) -> list[tuple[str, int]]:
    return [(fault.code, fault.count) for fault in happening.faults]


def fault_of(kernel: KernelFaults, *messages: str) -> tuple[Fault, ...]:
    return kernel.observe(records(*messages), NOW).faults


def test_a_fault_is_told_with_boot_and_the_number_of_the_record() -> None:
    happening = KernelFaults("boot-1", -1).observe(records("usb: new device", XID_119), NOW)
    assert told(happening) == [("xid-119", 1)]
    assert happening.sequence == 1
    assert happening.faults[0].boot_id == "boot-1"


def test_what_did_not_happen_again_is_not_told_again() -> None:
    kernel = KernelFaults("boot-1", -1)
    kernel.observe(records(XID_119), NOW)
    assert told(kernel.observe(records("usb: new device", start=1), NOW)) == []
    assert told(kernel.observe(records(XID_31, start=2), NOW)) == [("xid-31", 1)]


def test_a_repeat_is_told_with_its_count_in_this_boot() -> None:
    kernel = KernelFaults("boot-1", -1)
    kernel.observe(records(XID_119), NOW)
    assert told(kernel.observe(records(XID_119, start=1), NOW)) == [("xid-119", 2)]


def test_a_verdict_that_the_driver_took_back_is_withdrawn() -> None:
    kernel = KernelFaults("boot-1", -1)
    (action,) = fault_of(kernel, ACTION_RESET)
    happening = kernel.observe(records(ACTION_NONE, start=1), NOW)
    assert [fault.identity for fault in happening.withdrawn] == [action.identity]


def test_after_a_restart_nothing_that_was_read_before_happens_again() -> None:
    before = fault_of(KernelFaults("boot-1", -1), XID_119, XID_119)
    restarted = KernelFaults("boot-1", 1, before)
    assert told(restarted.observe(records(XID_119, XID_119), NOW)) == []
    assert told(restarted.observe(records(XID_119, start=2), NOW)) == [("xid-119", 3)]


def test_after_a_restart_a_verdict_from_before_can_still_be_taken_back() -> None:
    before = fault_of(KernelFaults("boot-1", -1), ACTION_RESET)
    restarted = KernelFaults("boot-1", 0, before)
    happening = restarted.observe(records(ACTION_RESET, ACTION_NONE), NOW)
    assert [fault.code for fault in happening.withdrawn] == ["gpu-recovery-action"]


def test_counts_go_on_where_they_stood_when_the_ring_lost_the_beginning() -> None:
    before = fault_of(KernelFaults("boot-1", -1), XID_119, XID_119)
    restarted = KernelFaults("boot-1", 1, before)
    assert told(restarted.observe(records(XID_119, start=2), NOW)) == [("xid-119", 3)]


def test_overwritten_records_are_told_by_their_number() -> None:
    kernel = KernelFaults("boot-1", -1)
    kernel.observe(records("one"), NOW)
    assert told(kernel.observe(records("five", start=5), NOW)) == [("kernel-log-gap", 4)]
    assert told(kernel.observe(records("six", start=6), NOW)) == []


def test_a_ring_that_begins_late_in_the_boot_is_no_gap() -> None:
    assert told(KernelFaults("boot-1", -1).observe(records("old host", start=90_000), NOW)) == []


def test_records_lost_while_the_agent_was_away_are_a_gap() -> None:
    assert told(KernelFaults("boot-1", 10).observe(records("late", start=15), NOW)) == [("kernel-log-gap", 4)]
