"""The node controller: tells silence, and keeps the taints that follow from a node's state.

Writes Ready=Unknown once a kubelet's Lease and status are old, calls the pods of such a node not ready, and keeps the
`node.kubernetes.io` taints for cordon, not-ready and unreachable. It deletes nothing: `taint_eviction` and
`orphan_pods` do.
"""

from datetime import datetime

from simulator.cluster.api import PatchKind
from simulator.cluster.kubelet_nodes import LEASES
from simulator.cluster.objects import Node, Pod, condition_of
from simulator.cluster.stamps import condition, stamp
from simulator.cluster.taints import taints_of_state, with_state_taints
from simulator.cluster.world import World


class NodeController:
    """Judges every node by what was heard of it."""

    def __init__(self, world: World) -> None:
        self._world = world

    async def run(self) -> None:
        """For ever."""
        await self._world.keep("node controller", self._judge_all, (self._world.nodes,), every=self._world.heartbeat)

    async def _judge_all(self) -> None:
        await self._world.each(self._world.nodes, self._judge)

    async def _judge(self, node: Node) -> None:
        ready = condition_of(node.status.conditions, "Ready")
        status = ready.status if ready is not None else "Unknown"
        if status != "Unknown" and self._is_silent(node):
            node, status = await self._tell_unknown(node), "Unknown"
        await self._keep_taints(node, status)
        if status == "Unknown":
            running = [pod for pod in self._world.pods_on(node.name) if pod.ready and not pod.finished]
            await self._world.each(running, self._tell_not_ready)

    def _is_silent(self, node: Node) -> bool:
        heard = self._last_heard(node)
        return heard is not None and self._world.clock.since(heard) > self._world.node_monitor_grace

    def _last_heard(self, node: Node) -> datetime | None:
        lease = self._world.leases.get(node.name, LEASES)
        ready = condition_of(node.status.conditions, "Ready")
        moments = (
            lease.spec.renew_time if lease is not None else None,
            ready.last_heartbeat_time if ready is not None else None,
            node.metadata.creation_timestamp,
        )
        return max((moment for moment in moments if moment is not None), default=None)

    async def _tell_unknown(self, node: Node) -> Node:
        told = condition(
            "Ready", "Unknown", self._world.clock.now(), "NodeStatusUnknown", "Kubelet stopped posting node status."
        )
        body = {"status": {"conditions": [told]}}
        return await self._world.nodes.patch(node, body, kind=PatchKind.STRATEGIC, subresource="status")

    async def _tell_not_ready(self, pod: Pod) -> None:
        told = condition("Ready", False, self._world.clock.now(), "NodeNotReady")
        body = {"status": {"conditions": [told]}}
        await self._world.pods.patch(pod, body, kind=PatchKind.STRATEGIC, subresource="status")

    async def _keep_taints(self, node: Node, ready_status: str) -> None:
        wanted = with_state_taints(node, taints_of_state(node, ready_status))
        if wanted == node.spec.taints:
            return
        now = stamp(self._world.clock.now())
        # timeAdded starts the clock of NoExecute evictions; taints that were there keep theirs.
        written = [
            {**taint.written(), "timeAdded": now} if taint not in node.spec.taints else taint.written()
            for taint in wanted
        ]
        # The list is written whole, so only onto the version it was made from.
        version = {"resourceVersion": node.metadata.resource_version}
        await self._world.nodes.patch(node, {"metadata": version, "spec": {"taints": written}})
