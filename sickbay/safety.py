"""What must hold at the moment before a rung disrupts a node (design, 3.4): look again, or stop and say why.

Called by the incident workflow with a fresh look at the node. The order of the checks is the order of what makes the
others pointless: a node that is gone needs no permit.
"""

from collections.abc import Iterable
from datetime import datetime
from enum import StrEnum

from sickbay.faults import Fault
from sickbay.model import Frozen
from sickbay.nodes import NodeRef, NodeSnapshot
from sickbay.permits import Permit


class Obstacle(StrEnum):
    """Why a rung must not be taken now."""

    NODE_GONE = "node_gone"
    BEING_REPLACED = "being_replaced"
    """Somebody else is deleting the node or its claim: we watch, and do nothing."""
    OTHER_INCIDENT = "other_incident"
    PERSON_RELEASED = "person_released"
    FOREIGN_LOCK = "foreign_lock"
    NOT_CONTAINED = "not_contained"
    """New work may have come since the drain: software we know took our cordon away, or our mark is gone."""
    PERMIT_LOST = "permit_lost"


class Objection(Frozen):
    """An obstacle, and what a person should know about it."""

    obstacle: Obstacle
    reason: str


def objection_to_touching(node: NodeRef, incident_id: str, look: NodeSnapshot) -> Objection | None:
    """What forbids any step of ours on this node as it stands; None if nothing does."""
    if not look.exists:
        return Objection(obstacle=Obstacle.NODE_GONE, reason=f"node {node.name} of UID {node.uid} is gone")
    if look.provider_id != node.provider_id:
        return Objection(
            obstacle=Obstacle.NODE_GONE,
            reason=f"node {node.name} runs on {look.provider_id} by now, not on {node.provider_id}",
        )
    if look.deleting or look.owner.deleting:
        return Objection(obstacle=Obstacle.BEING_REPLACED, reason=f"somebody else is deleting node {node.name}")
    if look.incident_mark not in (None, incident_id):
        return Objection(
            obstacle=Obstacle.OTHER_INCIDENT, reason=f"node {node.name} bears the mark of {look.incident_mark}"
        )
    if look.uncordoned_by_person:
        return Objection(
            obstacle=Obstacle.PERSON_RELEASED, reason=f"somebody made node {node.name} schedulable again: an order"
        )
    return None


def outlived(faults: Iterable[Fault], look: NodeSnapshot) -> tuple[Fault, ...]:
    """Faults of an earlier boot that the node's agent, in the present one, does not see: the reboot has cured them.

    The watch says so too, but it may lag behind a look by as long as the API server or Temporal was away.
    """
    if not (look.conditions_fresh and look.boot_id):
        return ()
    open_now = {fault.code for fault in look.faults}
    return tuple(fault for fault in faults if fault.boot_id not in (None, look.boot_id) and fault.code not in open_now)


def objection_to_disrupting(
    node: NodeRef, incident_id: str, look: NodeSnapshot, permit: Permit | None, now: datetime
) -> Objection | None:
    """What forbids a disrupting rung on this node at this moment; None if nothing does."""
    if objection := objection_to_touching(node, incident_id, look):
        return objection
    if look.foreign_locks:
        return Objection(obstacle=Obstacle.FOREIGN_LOCK, reason="; ".join(look.foreign_locks))
    if look.incident_mark != incident_id or not look.unschedulable:
        return Objection(
            obstacle=Obstacle.NOT_CONTAINED, reason=f"node {node.name} takes new work: contain and drain it"
        )
    if permit is None or permit.expires_at <= now:
        return Objection(obstacle=Obstacle.PERMIT_LOST, reason="the permit to disrupt is not held any more")
    return None
