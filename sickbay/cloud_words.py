"""What EC2 says of an instance, and which faults of the node that makes.

`activities.ec2_words` asks, `workers.cloud_watch` keeps the answer on the node as an annotation, `sickbay.node_faults`
reads it from there: so it outlives a change of leader, joins the node's other faults wherever the node is looked at,
and ends only by a newer answer. EC2's silence changes nothing.

Sources: facts on remediation, 3.2; the EC2 API reference (DescribeInstanceStatus: status checks, events and how
finished ones are marked) and its advice on failed checks: a failed instance check is the operating system's, for
which a reboot may help; a failed system check is the machine's below, which another machine cures.

EC2 alone condemns no node (design, 3.2). What is planned for a far day only is told, since the node earns its keep
until then, and a failing check of a node that answers all the same only blocks new work.
"""

from collections.abc import Iterable
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

from pydantic import ValidationError

from sickbay import names
from sickbay.catalogue import fault_of
from sickbay.faults import Component, ComponentKind, Fault, Rung
from sickbay.kube_objects import Node
from sickbay.model import Frozen
from sickbay.node_change import NodeChange

IMPAIRED_FOR: Final = timedelta(minutes=5)
"""How long a status check must fail before it is a fault: a reboot or a short stall of the network fails some of its
one-minute rounds."""

_FINISHED: Final = ("[completed]", "[canceled]", "[cancelled]")
"""How the description of an event begins that is over; EC2 shows those for a week."""

NEAR: Final = timedelta(days=3)
"""How long before its date an event takes the node out of work: time for a person's yes, a permit and a drain, over a
weekend. EC2 announces most events two weeks ahead."""

_IMPAIRED: Final = "impaired"
_OVER: Final = ("ok", "initializing")
"""Words that end a failure: the check passes, or the machine was started anew. `insufficient-data`, `not-applicable`
and whatever else end nothing."""


class CheckedPart(StrEnum):
    """What one of EC2's status checks looks at."""

    INSTANCE = "instance"
    SYSTEM = "system"
    EBS = "ebs"

    @property
    def code(self) -> str:
        """The fault code in the catalogue."""
        return f"{self.value}-check-failed"


_CODE_OF_EVENT: Final = {
    "instance-retirement": "instance-retirement-scheduled",
    "instance-stop": "instance-stop-scheduled",
    "instance-reboot": "instance-reboot-scheduled",
    "system-reboot": "system-reboot-scheduled",
    "system-maintenance": "maintenance-scheduled",
}
_UNKNOWN_EVENT: Final = "cloud-event-unknown"

CODES: Final = frozenset({*(part.code for part in CheckedPart), *_CODE_OF_EVENT.values(), _UNKNOWN_EVENT})
"""Faults that EC2 alone tells and alone can take back."""


class StatusCheck(Frozen):
    """One status check of an instance; `status` is EC2's word."""

    part: CheckedPart
    status: str
    impaired_since: datetime | None = None

    @property
    def failed(self) -> bool:
        """EC2 says so; `initializing` and `insufficient-data` are neither good nor bad."""
        return self.status == _IMPAIRED


class ScheduledEvent(Frozen):
    """Something that EC2 has planned for an instance, or had."""

    code: str
    event_id: str = ""
    description: str = ""
    not_before: datetime | None = None
    not_before_deadline: datetime | None = None

    @property
    def finished(self) -> bool:
        """It took place or was called off. A date that is past does not say so."""
        return self.description.strip().lower().startswith(_FINISHED)


class InstanceWords(Frozen):
    """One answer of EC2 about one instance."""

    instance_id: str
    checks: tuple[StatusCheck, ...] = ()
    events: tuple[ScheduledEvent, ...] = ()
    efa_attached: int | None = None
    """Network interfaces of types `efa` and `efa-only`; None where EC2 was not asked."""


class CloudWords(Frozen):
    """What the annotation `names.ANNOTATION_CLOUD` holds: EC2's last answer that said something new."""

    instance_id: str
    answered_at: datetime
    faults: tuple[Fault, ...] = ()
    efa_attached: int | None = None

    @property
    def essence(self) -> tuple[object, ...]:
        """What is worth a write to the node: not when it was said."""
        told = {(fault.code, fault.component.id, fault.rung, fault.evidence) for fault in self.faults}
        return (self.instance_id, frozenset(told), self.efa_attached)


def judge(said: InstanceWords, before: CloudWords | None, noticed: datetime, now: datetime) -> CloudWords:
    """What the node's annotation is to say after this answer.

    `noticed` is when the failing of the instance's checks was first seen, for answers that do not tell since when.
    A fault that stood before keeps the time at which it was first seen, so that a later look is no news of it.
    """
    stood = before.faults if before else ()
    checks = (_by_check(part, said, stood, noticed, now) for part in CheckedPart)
    events = (_by_event(event, said.instance_id, stood, now) for event in said.events if not event.finished)
    attached = said.efa_attached if said.efa_attached is not None or before is None else before.efa_attached
    # A boot ends none of these: their boot id stays open.
    faults = (*(fault for fault in checks if fault is not None), *events)
    return CloudWords(instance_id=said.instance_id, answered_at=now, faults=faults, efa_attached=attached)


def failing(said: InstanceWords) -> bool:
    """Whether any status check fails in this answer."""
    return any(check.failed for check in said.checks)


def of_node(node: Node) -> CloudWords | None:
    """What EC2 last said of the node's instance; None if it said nothing yet, or of another one, or illegibly."""
    text = node.metadata.annotations.get(names.ANNOTATION_CLOUD, "")
    try:
        words = CloudWords.model_validate_json(text)
    except ValidationError:
        return None
    return words if words.instance_id == names.machine_id(node.spec.provider_id, node.metadata.uid) else None


class Noting(Frozen):
    """What an answer of EC2 changes on the node; no change if it says nothing new."""

    change: NodeChange | None = None


def note(node: Node, said: InstanceWords, noticed: datetime, now: datetime) -> Noting:
    """The node's annotation after this answer."""
    before = of_node(node)
    words = judge(said, before, noticed, now)
    if before is not None and words.essence == before.essence:
        return Noting()
    text = words.model_dump_json(exclude_defaults=True)
    version = node.metadata.resource_version
    return Noting(change=NodeChange(resource_version=version, annotations={names.ANNOTATION_CLOUD: text}))


def standing(faults: Iterable[Fault]) -> tuple[Fault, ...]:
    """Those of the faults that EC2 tells: no repair of the node ends them before EC2 says so."""
    return tuple(fault for fault in faults if fault.code in CODES)


def contradicted(faults: Iterable[Fault]) -> tuple[Fault, ...]:
    """The faults as they count on a node whose kubelet and agent answer, which no failed check can explain away."""
    codes = {part.code for part in CheckedPart}
    return tuple(
        fault.model_copy(update={"rung": Rung.BLOCK_NEW_WORK}) if fault.code in codes and fault.rung.disrupts else fault
        for fault in faults
    )


def _by_check(
    part: CheckedPart, said: InstanceWords, stood: tuple[Fault, ...], noticed: datetime, now: datetime
) -> Fault | None:
    """The fault of one check after this answer: a new one, the one that stood, or none."""
    check = next((check for check in said.checks if check.part is part), None)
    earlier = next((fault for fault in stood if fault.code == part.code), None)
    if check is None or not check.failed:
        return None if check is not None and check.status in _OVER else earlier
    if earlier is not None and check.impaired_since in (None, earlier.first_seen):
        return earlier
    since = check.impaired_since or noticed
    if now - since < IMPAIRED_FOR:
        return None
    kind = ComponentKind.DISK if part is CheckedPart.EBS else ComponentKind.HOST
    words = f"EC2: the {part} status check of {said.instance_id} fails since {since.isoformat()}"
    return fault_of(part.code, Component(kind=kind, id=said.instance_id), seen=since, evidence=(words,))


def _by_event(event: ScheduledEvent, instance_id: str, stood: tuple[Fault, ...], now: datetime) -> Fault:
    when = f"not before {event.not_before.isoformat()}" if event.not_before else "at a time that EC2 does not tell"
    until = f", by {event.not_before_deadline.isoformat()}" if event.not_before_deadline else ""
    words = " ".join(f"EC2: {event.code} of {instance_id} is scheduled {when}{until}: {event.description}".split())
    code, evidence = _CODE_OF_EVENT.get(event.code, _UNKNOWN_EVENT), (words[:500],)
    seen = next((one.first_seen for one in stood if (one.code, one.evidence) == (code, evidence)), now)
    fault = fault_of(code, Component(kind=ComponentKind.HOST, id=instance_id), seen=seen, evidence=evidence)
    far = event.not_before is not None and event.not_before - now > NEAR
    return fault.model_copy(update={"rung": Rung.NONE}) if far else fault
