from datetime import UTC, datetime, timedelta

import pytest

from sickbay.catalogue import fault_of
from sickbay.faults import Component, ComponentKind, Fault, Rung
from sickbay.open_faults import (
    Happening,
    OpenFault,
    ResetMark,
    confirmed,
    with_happening,
    without_answered,
    without_quiet,
    without_reset,
)

NOW = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)
QUIET = timedelta(minutes=15)


def fault(code: str, pci: str = "0000:61:00", kind: ComponentKind = ComponentKind.GPU) -> Fault:
    return fault_of(code, Component(kind=kind, id=pci), boot_id="boot-1")


def opened(*faults: Fault, sequence: int = 10, at: datetime = NOW) -> tuple[OpenFault, ...]:
    return with_happening((), Happening(sequence=sequence, at=at, faults=faults))


def codes(entries: tuple[OpenFault, ...]) -> list[str]:
    return [entry.fault.code for entry in entries]


def test_what_happens_again_is_one_fault_with_the_later_record() -> None:
    before = opened(fault("xid-119"))
    again = fault("xid-119").model_copy(update={"count": 2})
    (entry,) = with_happening(before, Happening(sequence=20, at=NOW, faults=(again,)))
    assert (entry.fault.count, entry.sequence) == (2, 20)


def test_what_the_log_took_back_is_closed() -> None:
    action = fault("gpu-recovery-action")
    after = with_happening(opened(action, fault("xid-48")), Happening(sequence=11, at=NOW, withdrawn=(action,)))
    assert codes(after) == ["xid-48"]


def test_a_fault_that_asks_for_nothing_goes_after_the_quiet_time_and_no_other_does() -> None:
    entries = opened(fault("xid-31"), fault("oom-kill"), fault("xid-79"), fault("nvme-timeout", "nvme0n1"))
    assert without_quiet(entries, NOW + QUIET / 2, QUIET) == entries
    assert codes(without_quiet(entries, NOW + QUIET, QUIET)) == ["xid-79", "nvme-timeout"]


def test_a_repeat_starts_the_quiet_time_anew() -> None:
    later = NOW + QUIET / 2
    entries = with_happening(opened(fault("xid-31")), Happening(sequence=11, at=later, faults=(fault("xid-31"),)))
    assert without_quiet(entries, NOW + QUIET, QUIET) == entries


@pytest.mark.parametrize(
    ("kept", "entry"),
    [
        (False, fault("xid-119")),
        (False, fault("xid-95")),
        (False, fault("xid-31")),
        (False, fault("nvlink-training-failed", "0000:61:00/4", ComponentKind.NVLINK)),
        (True, fault("xid-119", "0000:c3:00")),
        (True, fault("xid-79")),
        (True, fault("xid-64")),
        (True, fault("xid-119", "unknown")),
        (True, fault("nvme-timeout", "nvme0n1", ComponentKind.DISK)),
        (True, fault("sxid-20034", "0000:06:00", ComponentKind.NVSWITCH)),
    ],
)
def test_a_reset_clears_what_it_can_cure_on_its_own_gpu_alone(kept: bool, entry: Fault) -> None:
    mark = ResetMark(pcis=("0000:61:00",), sequence=10)
    assert bool(without_reset(opened(entry), [mark])) is kept


def test_a_fault_after_the_reset_stays() -> None:
    mark = ResetMark(pcis=("0000:61:00",), sequence=10)
    assert codes(without_reset(opened(fault("xid-119"), sequence=11), [mark])) == ["xid-119"]


def test_a_reset_of_all_gpus_reaches_those_without_a_name_too() -> None:
    assert without_reset(opened(fault("xid-119", "unknown")), [ResetMark(pcis=(), sequence=10)]) == ()


def test_a_driver_that_wants_nothing_any_more_takes_back_only_its_own_verdict() -> None:
    entries = opened(fault("gpu-recovery-action"), fault("xid-95"), fault("gpu-recovery-action", "0000:c3:00"))
    assert codes(without_answered(entries, ["0000:61:00"])) == ["xid-95", "gpu-recovery-action"]


def test_a_recovery_action_that_only_the_log_names_counts_beside_another_fault_alone() -> None:
    action = fault("gpu-recovery-action").model_copy(update={"rung": Rung.RESET_GPU})
    assert confirmed([action], []) == ()
    assert confirmed([action, fault("xid-31")], []) == (fault("xid-31"),)
    assert confirmed([action, fault("xid-48")], []) == (action, fault("xid-48"))
    assert confirmed([action], [fault("gpu-missing")]) == (action,)
