"""What the node activities are asked and what they answer; imported from `activities.nodes`."""

from datetime import datetime, timedelta

from sickbay.model import Frozen
from sickbay.nodes import NodeRef
from sickbay.policy.model import TaintPolicy


class NodeQuery(Frozen):
    """One node to look at."""

    node: NodeRef


class ContainRequest(Frozen):
    """Block new work on a node in the name of an incident."""

    node: NodeRef
    incident_id: str
    taint: TaintPolicy = TaintPolicy()


class Containment(Frozen):
    """How the node stands after the call.

    `contained` is false only if the node is gone, another incident's, or uncordoned by a person.
    """

    contained: bool
    node_gone: bool = False
    other_incident: str | None = None
    uncordoned_by_person: bool = False
    """A person took our cordon away: an order, which we do not undo (design, 3.7)."""
    prior_unschedulable: bool = False


class ReleaseRequest(Frozen):
    """Undo the marks of one incident, and no others."""

    node: NodeRef
    incident_id: str
    keep_cordon: bool = False
    """Leave the node cordoned, in people's hands, and undo the rest."""
    verified_boot: str = ""
    """The boot in which the incident's own verification passed, which spares the node another admission for it."""


class Release(Frozen):
    """How the node stands after the call."""

    released: bool
    node_gone: bool = False
    left_cordoned: bool = False
    """It was cordoned before us, or a person cordoned it since, or `keep_cordon` was asked."""


class AdmitRequest(Frozen):
    """Let a node work that passed its validation in this boot."""

    node: NodeRef
    boot_id: str


class Admittance(Frozen):
    """How the node stands after the call."""

    admitted: bool
    node_gone: bool = False
    why_not: str = ""
    """What has changed since the validation, in words."""


class BootWait(Frozen):
    """Wait until a node is back with another boot id, Ready and with its GPUs allocatable."""

    node: NodeRef
    previous_boot_id: str
    expected_gpus: int | None
    deadline: timedelta


class PoolQuery(Frozen):
    """All nodes of one pool; every GPU node if `pool` is empty."""

    cluster: str
    pool: str


class PoolNode(Frozen):
    """One node of a pool, as the budget counts it."""

    node: NodeRef
    created_at: datetime
    available: bool
    """Ready, schedulable, not being deleted."""
    why_not: str = ""
    gpu_allocatable: int = 0


class PoolSnapshot(Frozen):
    """A pool as one look showed it."""

    observed_at: datetime
    nodes: tuple[PoolNode, ...]


class SuccessorWait(Frozen):
    """Wait until the old node object is gone and a new node of the pool is Ready with its GPUs allocatable."""

    node: NodeRef
    asked_at: datetime
    """When the replacement was asked for: a successor is younger than that."""
    known_uids: tuple[str, ...]
    """Nodes of the pool before the replacement; none of them is a successor."""
    expected_gpus: int | None
    deadline: timedelta


class Succession(Frozen):
    """What stood at the end of the wait."""

    old_gone: bool
    successor: NodeRef | None = None
    waiting_for: str = ""
    """At the deadline: what was still missing, in words."""


class NodeEvent(Frozen):
    """A Kubernetes Event on a node, for people who look with kubectl."""

    node: NodeRef
    incident_id: str
    reason: str
    message: str
    warning: bool = False


class Recorded(Frozen):
    """An event was written, or was there already."""

    name: str
