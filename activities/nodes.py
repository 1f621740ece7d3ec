"""What incidents and budgets do with Node objects: look, contain, release, wait, tell.

Called by workflows from the controller's queue. Each activity is one function of the modules beside this one, so that
the controller's watch can call the same functions without Temporal. Models are in `activities.node_models`, rules in
`sickbay`.
"""

from datetime import timedelta
from typing import Final

from kubernetes.aio.client import ApiClient
from temporalio import activity

from activities import node_events, node_marks, node_reads, node_waits
from activities.node_models import (
    AdmitRequest,
    Admittance,
    BootWait,
    Containment,
    ContainRequest,
    NodeEvent,
    NodeQuery,
    PoolNode,
    PoolQuery,
    PoolSnapshot,
    Recorded,
    Release,
    ReleaseRequest,
    Succession,
    SuccessorWait,
)
from activities.waiting import Clock, utc_now
from sickbay import node_reading
from sickbay.kube_objects import Node
from sickbay.nodes import NodeSnapshot

LOOK_EVERY: Final = timedelta(seconds=5)
"""Between two looks of a wait: a kubelet tells its status every 10 s."""


class NodeActivities:
    """Activities on nodes, over one injected API client. All of them raise FinalError or PassingError."""

    def __init__(self, api: ApiClient, *, look_every: timedelta = LOOK_EVERY, clock: Clock = utc_now) -> None:
        self._api = api
        self._look_every = look_every
        self._clock = clock

    @activity.defn
    async def observe_node(self, query: NodeQuery) -> NodeSnapshot:
        """One look at a node, its claim and the locks on it."""
        return await node_reads.observe(self._api, query.node, self._clock())

    @activity.defn
    async def contain_node(self, request: ContainRequest) -> Containment:
        """Block new work on a node in the name of an incident."""
        return await node_marks.contain(self._api, request, self._clock)

    @activity.defn
    async def release_node(self, request: ReleaseRequest) -> Release:
        """Undo the marks of one incident, and no others."""
        return await node_marks.release(self._api, request)

    @activity.defn
    async def admit_node(self, request: AdmitRequest) -> Admittance:
        """Let a node work that passed its validation."""
        return await node_marks.admit(self._api, request)

    @activity.defn
    async def wait_for_boot(self, wait: BootWait) -> NodeSnapshot:
        """Wait until a node is back with another boot; at the deadline, how it stood then."""
        return await node_waits.wait_for_boot(self._api, wait, self._look_every, self._clock)

    @activity.defn
    async def observe_pool(self, query: PoolQuery) -> PoolSnapshot:
        """One look at all nodes of a pool, as the budget counts them."""
        nodes = await node_reads.list_pool(self._api, query.pool)
        now = self._clock()
        return PoolSnapshot(observed_at=now, nodes=tuple(_pool_node(node, query.cluster) for node in nodes))

    @activity.defn
    async def wait_for_successor(self, wait: SuccessorWait) -> Succession:
        """Wait until a node has left and another of its pool works; at the deadline, what was missing."""
        return await node_waits.wait_for_successor(self._api, wait, self._look_every, self._clock)

    @activity.defn
    async def record_event(self, event: NodeEvent) -> Recorded:
        """Write a Kubernetes Event on a node, once."""
        return await node_events.record(self._api, event, self._clock())


def _pool_node(node: Node, cluster: str) -> PoolNode:
    why_not = node_reading.why_unavailable(node)
    return PoolNode(
        node=node_reading.reference(node, cluster),
        created_at=node_reading.created_at(node),
        available=not why_not,
        why_not=why_not,
        gpu_allocatable=node_reading.gpus_in(node.status.allocatable),
    )


__all__ = [
    "AdmitRequest",
    "Admittance",
    "BootWait",
    "ContainRequest",
    "Containment",
    "NodeActivities",
    "NodeEvent",
    "NodeQuery",
    "NodeSnapshot",
    "PoolNode",
    "PoolQuery",
    "PoolSnapshot",
    "Recorded",
    "Release",
    "ReleaseRequest",
    "Succession",
    "SuccessorWait",
]
