"""What one condition of another agent means: a fault, nothing, or something that nobody here can judge.

Called for live nodes (`sickbay.other_agents.live`) and for recordings (`sickbay.other_agents.recorded`). The strongest
thing that a condition can ask for is that new work be blocked: whoever else sees a fault is a further detector, and
where our own agent sees it too, its own fault carries the rung (design, 3.2).

Their words that say less than they seem to (facts: detection 5a and 8.12, remediation 1.8, peer-nvsentinel 4.21):
DCGM out of reach is a monitor's trouble; an Xid of a job is the job's; a service that restarts often is only watched.
"""

import re
from enum import StrEnum
from typing import Final

from sickbay.catalogue import fault_of, lookup_xid
from sickbay.faults import Component, ComponentKind, Fault, FaultClass, Rung
from sickbay.kube_objects import Condition
from sickbay.model import Frozen
from sickbay.other_agents.condition_types import ConditionType, Speaker, Subject, condition_type

_EVIDENCE_LENGTH: Final = 500
"""Characters of another agent's words that are kept."""

_SUBJECT_OF_REASON: Final = {
    "DCGMError": Subject.MONITOR,
    "NvidiaNVLinkError": Subject.FABRIC,
    "NvidiaFabricError": Subject.FABRIC,
    "FabricManagerNotRunning": Subject.FABRIC,
    # A pod that does not end is mostly its own affair: a finalizer, or a process that waits for a disk.
    "PodStuckTerminating": Subject.RESTARTS,
}
"""Reasons of EKS node-monitoring-agent that say more than their condition's type."""

_KIND: Final = {
    Subject.GPU: ComponentKind.GPU,
    Subject.APPLICATION: ComponentKind.GPU,
    Subject.FABRIC: ComponentKind.NVLINK,
    Subject.NETWORK: ComponentKind.NIC,
    Subject.STORAGE: ComponentKind.DISK,
    Subject.MONITOR: ComponentKind.MONITOR,
}

_XID: Final = re.compile(
    r"\bXID(?: \(PCI[^)]*\))?\W{0,3}(\d{1,4})|XID(\d{1,4})(?:Error|Warning)|\bErrorCode\W{0,3}(\d{1,4})", re.IGNORECASE
)
_PCI: Final = re.compile(
    r"(?<![0-9a-f])(?<![0-9a-f]:)(?:[0-9a-f]{4})?([0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2})(?![0-9a-f:])", re.IGNORECASE
)
_INTERFACE: Final = re.compile(r"\binterface(?: name)?\W{1,4}([A-Za-z][\w.-]*)", re.IGNORECASE)
_NEURON: Final = "Neuron"
_PARTS: Final = "; "
"""Between the messages of several reasons in one condition of EKS node-monitoring-agent."""


class Standing(StrEnum):
    """What a condition says of its part."""

    GOOD = "good"
    BAD = "bad"
    UNKNOWN = "unknown"
    """Its writer does not know: a plugin that timed out, a status that is none of Kubernetes' words."""
    FOREIGN = "foreign"
    """A type that is not known here."""


class Excuse(Frozen):
    """What an operator wants left out: conditions of one type, or of those only what names a word.

    Written `NetworkingReady`, or `NetworkingReady:enp1s0f0np0` for one port that is not cabled.
    """

    type: str
    word: str = ""

    def covers(self, condition: Condition) -> bool:
        """Whether all that a condition says is excused; one of several messages is not enough."""
        if condition.type != self.type:
            return False
        if not self.word or self.word == condition.reason:
            return True
        return all(self.word in part for part in condition.message.split(_PARTS))


def excuses(text: str) -> tuple[Excuse, ...]:
    """The excuses of a setting: `TYPE` or `TYPE:WORD`, separated by commas."""
    entries = (entry.strip().partition(":") for entry in text.split(","))
    return tuple(Excuse(type=kind.strip(), word=word.strip()) for kind, _, word in entries if kind.strip())


def standing(condition: Condition) -> Standing:
    """Good or bad by the polarity of its type. The kubelet's Ready is judged by `sickbay.node_faults`."""
    row = condition_type(condition.type)
    if row is None:
        return Standing.FOREIGN
    if condition.status not in ("True", "False"):
        return Standing.UNKNOWN
    return Standing.GOOD if condition.status == row.good else Standing.BAD


def fault_of_condition(condition: Condition, node: str, boot_id: str | None = None) -> Fault | None:
    """The fault that a bad condition tells; None for one that is not bad or not known."""
    row = condition_type(condition.type)
    if row is None or standing(condition) is not Standing.BAD:
        return None
    fault = fault_of(
        _subject(condition, row).code,
        _component(condition, row, node),
        seen=condition.last_transition_time,
        boot_id=boot_id,
        evidence=(_evidence(condition, row),),
    )
    return _by_xid(fault, condition)


def is_reported(code: str) -> bool:
    """Whether a fault code is another agent's word."""
    return code in _CODES


_CODES: Final = frozenset(subject.code for subject in Subject)


def _subject(condition: Condition, row: ConditionType) -> Subject:
    subject = _SUBJECT_OF_REASON.get(condition.reason, row.subject) if row.speaker is Speaker.EKS else row.subject
    if subject is Subject.MONITOR and row.subject is not subject and not _all_about_dcgm(condition):
        # The reason is the last of several, whose messages are joined: the earlier ones are of the hardware.
        return row.subject
    return subject


def _all_about_dcgm(condition: Condition) -> bool:
    messages = _messages(condition)
    return len(messages) <= 1 or all("dcgm" in part.lower() or "hostengine" in part.lower() for part in messages)


def _messages(condition: Condition) -> tuple[str, ...]:
    return tuple(part for part in condition.message.split(_PARTS) if part.strip())


def _by_xid(fault: Fault, condition: Condition) -> Fault:
    """The fault with the class of the Xids that its words name, the gravest one; an Xid of a job is the job's."""
    numbers = {int(next(filter(None, found))) for found in _XID.findall(f"{condition.reason} {condition.message}")}
    rows = [lookup_xid(number) for number in numbers]
    if not rows or fault.code not in (Subject.GPU.code, Subject.FABRIC.code):
        return fault
    messages = _messages(condition)
    if len(messages) > 1 and not all(_XID.search(message) for message in messages):
        return fault
    worst = max(rows, key=lambda row: (row.rung.strength, row.known))
    if worst.rung is not Rung.NONE:
        return fault.model_copy(update={"fault_class": worst.fault_class})
    if worst.fault_class is FaultClass.APPLICATION:
        told = fault_of(Subject.APPLICATION.code, fault.component, seen=fault.first_seen, boot_id=fault.boot_id)
        return told.model_copy(update={"evidence": fault.evidence})
    return fault.model_copy(update={"fault_class": FaultClass.WATCH, "rung": Rung.NONE})


def _component(condition: Condition, row: ConditionType, node: str) -> Component:
    subject = _subject(condition, row)
    kind = _KIND.get(subject, ComponentKind.HOST)
    if kind is ComponentKind.GPU and condition.reason.startswith(_NEURON):
        return Component(kind=ComponentKind.ACCELERATOR, id="unknown")
    if kind is ComponentKind.GPU:
        return Component(kind=kind, id=_only(_PCI.findall(condition.message)).lower() or "unknown")
    if kind is ComponentKind.NIC:
        return Component(kind=kind, id=_only(_INTERFACE.findall(condition.message)) or "unknown")
    named = kind in (ComponentKind.HOST, ComponentKind.MONITOR)
    return Component(kind=kind, id=node if named else "unknown")


def _only(found: list[str]) -> str:
    """The one name in a message; empty where it has none or several."""
    return found[0] if len(set(found)) == 1 else ""


def _evidence(condition: Condition, row: ConditionType) -> str:
    said = f"{row.speaker}: {condition.type} is {condition.status}: {condition.reason} {condition.message}"
    return " ".join(said.split())[:_EVIDENCE_LENGTH]
