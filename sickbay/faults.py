"""What a fault is, and what a verdict is: the words every other room uses.

A fault is one thing wrong with one component, found by a detector. Its identity is boot id + component + code;
a repeat only counts up (`merge_faults`). A verdict is what a diagnosis makes of all faults of a node.
"""

from collections.abc import Iterable
from datetime import datetime
from enum import StrEnum
from typing import TypeVar

from pydantic import Field

from sickbay.model import Frozen

T = TypeVar("T")

EVIDENCE_LINES_KEPT = 5
"""Evidence lines kept per fault: the first ones, since a fault's cause stands at its beginning."""

WORKLOADS_KEPT = 8
"""Workloads kept per fault: a few are enough to tell one job from many."""


class Rung(StrEnum):
    """A step of the repair ladder, gentlest first. Order of definition is order of strength."""

    NONE = "none"
    BLOCK_NEW_WORK = "block_new_work"
    STOP_WORKLOAD = "stop_workload"
    RESET_GPU = "reset_gpu"
    REBOOT = "reboot"
    REPLACE = "replace"
    HUMAN = "human"

    @property
    def strength(self) -> int:
        """Position on the ladder; a larger number is a stronger step."""
        return _STRENGTHS[self]

    @property
    def disrupts(self) -> bool:
        """Whether work on the node is lost or moved by this rung, so that it needs a permit and a drain."""
        return self in (Rung.STOP_WORKLOAD, Rung.RESET_GPU, Rung.REBOOT, Rung.REPLACE)


_STRENGTHS = {rung: position for position, rung in enumerate(Rung)}


def strongest(rungs: Iterable[Rung]) -> Rung:
    """The strongest of some rungs; `Rung.NONE` of nothing."""
    return max(rungs, key=lambda rung: rung.strength, default=Rung.NONE)


class FaultClass(StrEnum):
    """Whose trouble it is. Order of definition breaks ties between faults of one rung, the later class winning."""

    NONE = "none"
    APPLICATION = "application"
    WATCH = "watch"
    MONITOR_UNAVAILABLE = "monitor_unavailable"
    DRIVER = "driver"
    STORAGE = "storage"
    NETWORK = "network"
    HOST = "host"
    FABRIC = "fabric"
    GPU = "gpu"


class Severity(StrEnum):
    """How bad one fault is by itself, mildest first."""

    INFO = "info"
    WARNING = "warning"
    FATAL = "fatal"


class ComponentKind(StrEnum):
    """What kind of part a fault is in."""

    GPU = "gpu"
    NVLINK = "nvlink"
    NVSWITCH = "nvswitch"
    NIC = "nic"
    DISK = "disk"
    MEMORY = "memory"
    PCIE = "pcie"
    ACCELERATOR = "accelerator"
    """An accelerator that is not a GPU: AWS Neuron."""
    DRIVER = "driver"
    HOST = "host"
    MONITOR = "monitor"


class Component(Frozen):
    """One part of one node. A GPU's id is its PCI address without function (`0000:61:00`), or `unknown`.

    Where a tool tells a GPU by its own number alone (DCGM), the id is that: `index 3`; so two GPUs stay two.
    """

    kind: ComponentKind
    id: str


Moment = datetime | float
"""Wall-clock time where the log tells it, else seconds since boot."""


class Workload(Frozen):
    """A process that a fault hit, as the driver names it."""

    name: str
    pid: int | None = None


class Fault(Frozen):
    """One thing wrong with one component.

    `code` is lower-case kebab, e.g. `xid-79`, `sxid-20034`, `gpu-lost`, `node-not-ready`: the same words everywhere,
    in policy files, conditions, search attributes and on the command line.
    """

    code: str
    component: Component
    fault_class: FaultClass = Field(alias="class")
    severity: Severity
    rung: Rung
    """The gentlest rung that can cure this fault by itself."""
    count: int = 1
    first_seen: Moment | None = None
    last_seen: Moment | None = None
    boot_id: str | None = None
    evidence: tuple[str, ...] = ()
    """The lines or readings that show the fault, at most `EVIDENCE_LINES_KEPT`."""
    workloads: tuple[Workload, ...] = ()
    """Different workloads that the fault hit, at most `WORKLOADS_KEPT`; an application fault that follows the GPU and
    not the workload makes the GPU a suspect (`sickbay.diagnosis`)."""

    @property
    def identity(self) -> tuple[str, str, str, str]:
        """Boot id, component and code: what makes two reports the same fault (design, 2)."""
        return (self.boot_id or "", self.component.kind, self.component.id, self.code)


class Verdict(Frozen):
    """What a diagnosis makes of all open faults of one node."""

    fault_class: FaultClass = Field(alias="class")
    rung: Rung
    """The first rung worth trying."""
    components: tuple[Component, ...]
    reason: str
    """One sentence for a person: which fault decided, and why."""


NOTHING_WRONG = Verdict(fault_class=FaultClass.NONE, rung=Rung.NONE, components=(), reason="no fault is open")


def merge_faults(known: Iterable[Fault], reported: Iterable[Fault]) -> tuple[Fault, ...]:
    """Known faults with reported ones joined in: one of a known identity counts up, any other is added at the end.

    The words of the later report hold (a rung may have risen with a recovery action), except that a rung never falls.
    """
    merged: dict[tuple[str, str, str, str], Fault] = {}
    for fault in (*known, *reported):
        earlier = merged.get(fault.identity)
        merged[fault.identity] = fault if earlier is None else _join(earlier, fault)
    return tuple(merged.values())


def _join(earlier: Fault, later: Fault) -> Fault:
    judged = later if later.rung.strength >= earlier.rung.strength else earlier
    return judged.model_copy(
        update={
            "count": earlier.count + later.count,
            "first_seen": later.first_seen if earlier.first_seen is None else earlier.first_seen,
            "last_seen": earlier.last_seen if later.last_seen is None else later.last_seen,
            "evidence": _distinct(earlier.evidence, later.evidence)[:EVIDENCE_LINES_KEPT],
            "workloads": _distinct(earlier.workloads, later.workloads)[:WORKLOADS_KEPT],
        }
    )


def _distinct(*parts: tuple[T, ...]) -> tuple[T, ...]:
    return tuple(dict.fromkeys(item for part in parts for item in part))


def update_faults(known: Iterable[Fault], reported: Iterable[Fault]) -> tuple[Fault, ...]:
    """Known faults brought up to date by a detector's report, whose counts are running totals of what it has seen.

    A report that arrives twice changes nothing. A rung may rise while the count stands still, and never falls.
    """
    updated = {fault.identity: fault for fault in known}
    for fault in reported:
        earlier = updated.get(fault.identity)
        if earlier is None:
            updated[fault.identity] = fault
        elif fault.count > earlier.count or fault.rung.strength > earlier.rung.strength:
            more = max(fault.count - earlier.count, 0)
            joined = _join(earlier, fault)
            updated[fault.identity] = joined.model_copy(update={"count": earlier.count + more})
    return tuple(updated.values())
