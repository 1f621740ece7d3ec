"""The node conditions that the agent publishes: which fault makes which one bad, and what it says to people.

Called by the node agent's publisher. The conditions are for people and other controllers; ours reads the faults
themselves from the annotation (`sickbay.conditions`). True is good. Trouble with a monitor makes a condition Unknown:
nobody knows, which is neither good nor bad (design, 3.1).
"""

from collections.abc import Iterable
from datetime import UTC, datetime
from enum import StrEnum
from typing import Final

from sickbay.faults import ComponentKind, Fault, FaultClass, Moment, Rung
from sickbay.model import Frozen
from sickbay.names import CONDITION_FABRIC, CONDITION_GPU, CONDITION_HOST, CONDITION_NETWORK, CONDITIONS

CHECK_KERNEL_LOG: Final = "kernel-log"
"""Name of the check that nothing in the kernel log was missed; without it no condition can be called good."""

_MAX_MESSAGE: Final = 1024
"""Characters; longer messages bloat every watch of nodes."""

_FAULTS_NAMED: Final = 8
"""Faults named in one message; the annotation has them all."""

_WHY_CHARACTERS: Final = 160
"""Of why one check cannot judge, in one message."""

_FAULTS_PUBLISHED: Final = 64
_EVIDENCE_LINES: Final = 2
_EVIDENCE_CHARACTERS: Final = 240
"""With these three, the annotation stays under 64 KiB; all annotations of a node together may have 256 KiB."""


class ConditionStatus(StrEnum):
    """Status of a node condition, as Kubernetes words it."""

    TRUE = "True"
    FALSE = "False"
    UNKNOWN = "Unknown"


class NodeCondition(Frozen):
    """One condition as it is to be published."""

    type: str
    status: ConditionStatus
    reason: str
    """One word in CamelCase, as Kubernetes asks."""
    message: str


class BlindCheck(Frozen):
    """A check that cannot judge now."""

    name: str
    judges: tuple[ComponentKind, ...]
    """Kinds of parts of which nobody knows how they are."""
    why: str = ""
    since: datetime | None = None
    """Since when; None if it has not judged anything yet."""


def condition_of(fault: Fault) -> str:
    """The condition that a fault belongs to."""
    match fault.fault_class:
        case FaultClass.FABRIC:
            return CONDITION_FABRIC
        case FaultClass.NETWORK:
            return CONDITION_NETWORK
        case FaultClass.HOST | FaultClass.STORAGE:
            return CONDITION_HOST
    return _condition_of_kind(fault.component.kind)


def _condition_of_kind(kind: ComponentKind) -> str:
    match kind:
        case ComponentKind.NVLINK | ComponentKind.NVSWITCH:
            return CONDITION_FABRIC
        case ComponentKind.NIC:
            return CONDITION_NETWORK
        case ComponentKind.DISK | ComponentKind.MEMORY | ComponentKind.PCIE | ComponentKind.HOST:
            return CONDITION_HOST
        case _:
            return CONDITION_GPU


def makes_bad(fault: Fault) -> bool:
    """Whether a fault is the node's own and asks for something; a job's own faults leave the node healthy."""
    blameless = (FaultClass.NONE, FaultClass.APPLICATION, FaultClass.WATCH, FaultClass.MONITOR_UNAVAILABLE)
    return fault.fault_class not in blameless and fault.rung is not Rung.NONE


def node_conditions(faults: Iterable[Fault], blind: Iterable[BlindCheck]) -> tuple[NodeCondition, ...]:
    """All conditions of ours for these open faults and checks that cannot judge."""
    unseeing = tuple(blind)
    # What a check that cannot judge leaves open is told by its kinds of parts, and not as a fault of a monitor too.
    names = {check.name for check in unseeing}
    known = tuple(fault for fault in faults if not (_is_dark(fault) and fault.component.id in names))
    return tuple(_condition(name, known, unseeing) for name in CONDITIONS)


def _condition(name: str, faults: tuple[Fault, ...], blind: tuple[BlindCheck, ...]) -> NodeCondition:
    mine = tuple(fault for fault in faults if condition_of(fault) == name)
    bad = tuple(fault for fault in mine if makes_bad(fault))
    if bad:
        worst = max(bad, key=lambda fault: fault.rung.strength)
        return _say(name, ConditionStatus.FALSE, _camel(worst.code), _list_of(bad))
    dark = tuple(fault for fault in mine if _is_dark(fault))
    unseen = tuple(check for check in blind if name in map(_condition_of_kind, check.judges))
    if dark or unseen:
        words = [f"cannot judge: {'; '.join(map(_words_of, unseen))}"] if unseen else []
        return _say(
            name, ConditionStatus.UNKNOWN, "CannotJudge", "; ".join([*words, *([_list_of(dark)] if dark else [])])
        )
    if mine:
        return _say(name, ConditionStatus.TRUE, "NoFaultOfTheNode", f"seen, but not the node's fault: {_list_of(mine)}")
    return _say(name, ConditionStatus.TRUE, "NoFault", "no fault is open")


def _is_dark(fault: Fault) -> bool:
    return fault.fault_class is FaultClass.MONITOR_UNAVAILABLE


def _words_of(check: BlindCheck) -> str:
    return f"{check.name}{_since(check.since)}" + (f" ({check.why[:_WHY_CHARACTERS]})" if check.why else "")


def _say(name: str, status: ConditionStatus, reason: str, message: str) -> NodeCondition:
    return NodeCondition(type=name, status=status, reason=reason, message=message[:_MAX_MESSAGE])


def _list_of(faults: tuple[Fault, ...]) -> str:
    strongest_first = sorted(faults, key=lambda fault: -fault.rung.strength)
    words = [
        f"{fault.code} on {fault.component.kind} {fault.component.id}{_since(fault.first_seen)}"
        + (f" ({fault.count} times)" if fault.count > 1 else "")
        for fault in strongest_first[:_FAULTS_NAMED]
    ]
    more = len(faults) - len(words)
    return "; ".join(words) + (f"; and {more} more" if more > 0 else "")


def _since(moment: Moment | None) -> str:
    match moment:
        case None:
            return ""
        case datetime():
            return f" since {moment.astimezone(UTC):%Y-%m-%d %H:%M} UTC"
        case _:
            return f" since {moment:.0f} s after the boot"


def _camel(code: str) -> str:
    return "".join(part.capitalize() for part in code.split("-"))


def bounded(faults: tuple[Fault, ...]) -> tuple[Fault, ...]:
    """The faults as the annotation can carry them: the strongest ones first, with the beginning of their evidence."""
    strongest_first = sorted(faults, key=lambda fault: -fault.rung.strength)
    return tuple(
        fault.model_copy(
            update={"evidence": tuple(line[:_EVIDENCE_CHARACTERS] for line in fault.evidence[:_EVIDENCE_LINES])}
        )
        for fault in strongest_first[:_FAULTS_PUBLISHED]
    )
