"""Emptying a node by the Eviction API."""

from sickbay.model import Frozen
from sickbay.nodes import DrainGoal, NodeRef
from sickbay.policy.model import DrainPolicy


class DrainRequest(Frozen):
    """Move the pods that stand in the way of `goal` off the node."""

    node: NodeRef
    incident_id: str
    goal: DrainGoal
    policy: DrainPolicy
