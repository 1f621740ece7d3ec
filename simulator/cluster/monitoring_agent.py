"""An agent of somebody else on the pools that have it, with the habits of EKS node-monitoring-agent.

Its conditions are good from its start on, whatever is wrong then; a bad one stays bad until the agent starts anew,
which a boot brings about (facts: remediation, 1.8). It sees what is cheap to see: fewer GPUs than there should be.
"""

from simulator.cluster.api import Json, PatchKind
from simulator.cluster.kubelet_nodes import LABEL_SIMULATED_POOL
from simulator.cluster.objects import Node, condition_of
from simulator.cluster.stamps import stamp
from simulator.cluster.world import World

HARDWARE = "AcceleratedHardwareReady"
CONDITIONS = {
    HARDWARE: "NvidiaAcceleratedHardwareIsReady",
    "NetworkingReady": "NetworkingIsReady",
    "StorageReady": "DiskIsReady",
    "KernelReady": "KernelIsReady",
    "ContainerRuntimeReady": "ContainerRuntimeIsReady",
}
"""Each type with its reason while it is good."""
MISSING = "NvidiaDeviceCountMismatch"


class MonitoringAgent:
    """The agent on each node of every pool whose name is in `pools`."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._started: dict[str, str] = {}
        self.pools: set[str] = set()

    async def run(self) -> None:
        """For ever."""
        await self._world.keep("node monitoring agents", self._look, (self._world.nodes,))

    async def _look(self) -> None:
        nodes = [
            node
            for node in self._world.nodes
            if node.metadata.labels.get(LABEL_SIMULATED_POOL) in self.pools and node.ready and not node.deleting
        ]
        await self._world.each(nodes, self._see_to)

    async def _see_to(self, node: Node) -> None:
        uid, boot_id = node.metadata.uid, node.status.node_info.boot_id
        if self._started.get(uid) != boot_id:
            await self._write(node, [self._said(kind, "True", reason) for kind, reason in CONDITIONS.items()])
            self._started[uid] = boot_id
            return
        instance = self._world.instance_of(node)
        said = condition_of(node.status.conditions, HARDWARE)
        missing = instance is not None and instance.machine.gpu_allocatable < instance.machine.gpu_capacity
        if missing and said is not None and said.status == "True":
            await self._write(node, [self._said(HARDWARE, "False", MISSING)])

    def _said(self, kind: str, status: str, reason: str) -> Json:
        now = stamp(self._world.clock.now())
        words = {"type": kind, "status": status, "reason": reason, "message": reason}
        return {**words, "lastHeartbeatTime": now, "lastTransitionTime": now}

    async def _write(self, node: Node, conditions: list[Json]) -> None:
        status: Json = {"status": {"conditions": conditions}}
        await self._world.nodes.patch(node, status, kind=PatchKind.STRATEGIC, subresource="status")
