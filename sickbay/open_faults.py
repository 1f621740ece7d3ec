"""Which faults of the kernel log are still open on a node: the log only ever says that something broke.

Called by the node agent. A record proves a fault, and no record proves that it is gone; so a fault of this boot stays
open until something proves otherwise: another boot, a reset of its GPU followed by a clean pass, or, for faults that
ask for nothing, silence for long enough (facts: detection, 7 and 10.4). What NVML shows is judged anew in each pass
and does not come here.
"""

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Final

from sickbay.faults import Component, ComponentKind, Fault, FaultClass, Rung
from sickbay.model import Frozen

_CURED_BY_RESET: Final = (ComponentKind.GPU, ComponentKind.NVLINK)
"""Kinds of parts that a GPU reset starts anew; an NVSwitch is none of them."""

RECOVERY_ACTION: Final = "gpu-recovery-action"


class OpenFault(Frozen):
    """A fault of the kernel log that nothing has disproved yet."""

    fault: Fault
    sequence: int
    """Number of the record, or of a later one, at which it was last seen; records are numbered through a boot."""
    active_at: datetime
    """When the agent last saw it happen."""


class ResetMark(Frozen):
    """GPUs that were reset, and the last record before the reset was over."""

    pcis: tuple[str, ...]
    """GPUs by PCI address; all of the node's if empty."""
    sequence: int


class Happening(Frozen):
    """What the kernel log showed since the last look."""

    sequence: int
    """Number of the last record that was read."""
    at: datetime
    faults: tuple[Fault, ...] = ()
    """Faults that are new or happened again, each with its count in this boot."""
    withdrawn: tuple[Fault, ...] = ()
    """Faults that the log itself took back (a recovery action that changed to none)."""


def with_happening(open_faults: Iterable[OpenFault], happening: Happening) -> tuple[OpenFault, ...]:
    """The open faults after new records: what happened is open, what the log took back is not."""
    known = {entry.fault.identity: entry for entry in open_faults}
    for fault in happening.withdrawn:
        known.pop(fault.identity, None)
    for fault in happening.faults:
        known[fault.identity] = OpenFault(fault=fault, sequence=happening.sequence, active_at=happening.at)
    return tuple(known.values())


def with_heard(
    open_faults: Iterable[OpenFault], heard: Iterable[Fault], sequence: int, at: datetime
) -> tuple[OpenFault, ...]:
    """The open faults after news from another source of the same faults (NVML's events).

    What the log shows already is not counted twice; what it never showed is open as from record `sequence` on, and the
    log's own words take its place once they come.
    """
    known = {entry.fault.identity: entry for entry in open_faults}
    for fault in heard:
        known.setdefault(fault.identity, OpenFault(fault=fault, sequence=sequence, active_at=at))
    return tuple(known.values())


def without_quiet(open_faults: Iterable[OpenFault], now: datetime, quiet: timedelta) -> tuple[OpenFault, ...]:
    """The open faults without those that ask for nothing and did not happen again for a while."""
    return tuple(entry for entry in open_faults if not _passes_by_itself(entry.fault) or now - entry.active_at < quiet)


def without_reset(open_faults: Iterable[OpenFault], marks: Iterable[ResetMark]) -> tuple[OpenFault, ...]:
    """The open faults without those that proven resets have cured.

    Call it only when a full pass after the reset found these GPUs well. A fault that happened after the reset stays,
    as does one that a reset cannot cure.
    """
    proven = tuple(marks)
    return tuple(entry for entry in open_faults if not any(_cured(entry, mark) for mark in proven))


def without_answered(open_faults: Iterable[OpenFault], pcis_without_action: Iterable[str]) -> tuple[OpenFault, ...]:
    """The open faults without recovery actions of GPUs whose driver, asked through NVML, wants nothing any more."""
    answered = {Component(kind=ComponentKind.GPU, id=pci) for pci in pcis_without_action}
    return tuple(
        entry
        for entry in open_faults
        if not (entry.fault.code == RECOVERY_ACTION and entry.fault.component in answered)
    )


def cured_by_reset(fault: Fault, pcis: tuple[str, ...]) -> bool:
    """Whether a reset of these GPUs, all of the node's if none is named, can cure a fault."""
    curable = fault.component.kind in _CURED_BY_RESET and fault.rung.strength <= Rung.RESET_GPU.strength
    # A link's id begins with the address of its GPU.
    reached = not pcis or any(fault.component.id.startswith(pci) for pci in pcis)
    return curable and reached


def confirmed(logged: Iterable[Fault], read: Iterable[Fault]) -> tuple[Fault, ...]:
    """The log's faults, without recovery actions that nothing else on the node bears out.

    Xid 154 opens no incident alone (design, 3.3): the driver's verdict counts where another fault that asks for
    something stands beside it, or once NVML repeats it, which then is a fault `read` by itself.
    """
    logged = tuple(logged)
    others = [fault for fault in (*logged, *read) if fault.code != RECOVERY_ACTION and fault.rung is not Rung.NONE]
    return tuple(fault for fault in logged if fault.code != RECOVERY_ACTION or others)


def _passes_by_itself(fault: Fault) -> bool:
    return fault.fault_class is FaultClass.APPLICATION or fault.rung is Rung.NONE


def _cured(entry: OpenFault, mark: ResetMark) -> bool:
    return cured_by_reset(entry.fault, mark.pcis) and entry.sequence <= mark.sequence
