"""By whom a node is replaced, and what proves that it was (facts: remediation, 3.5). Asked by the replace rung."""

from sickbay.nodes import NodeOwner, NodeRef, OwnerKind
from sickbay.proof import Judgement


def route_to_replace(owner: NodeOwner, group: str) -> NodeOwner:
    """Whom to ask, given the owner that the node's labels name and the group that EC2 Auto Scaling names (or none).

    Auto Scaling's own word outranks a label: an EKS node group's name is not that of its Auto Scaling group.
    """
    if owner.kind is OwnerKind.KARPENTER:
        return owner
    return NodeOwner(kind=OwnerKind.AUTOSCALING_GROUP, name=group) if group else NodeOwner(kind=OwnerKind.NOBODY)


def proof_of_replacement(
    *, old_node_gone: bool, old_instance: str | None, successor: NodeRef | None, waiting_for: str
) -> Judgement:
    """The old node and its instance are gone, and a new node works.

    `old_instance` is EC2's word for the old instance's state; None where no cloud can be asked.
    """
    missing = [waiting_for] if waiting_for else []
    if not old_node_gone and not waiting_for:
        missing.append("the old node is still there")
    if old_instance not in (None, "terminated", "gone"):
        missing.append(f"the old instance is {old_instance}")
    if successor is None and not waiting_for:
        missing.append("no successor yet")
    return Judgement(missing=tuple(missing))
