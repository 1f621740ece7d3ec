"""NVIDIA's GPU operator on the pools that have it: labels their nodes, and keeps its pods where labels say so.

Stands for the operator and the DaemonSet controller at once, without DaemonSet objects: what a repair meets is the
label on the node and the pod that follows it. Its pods hold the GPUs, so that a reset is refused while they run, and
GPUs are allocatable only while the device plugin serves.
"""

from sickbay.names import TAINT_ADMISSION
from simulator.cluster.kubelet_nodes import LABEL_SIMULATED_POOL
from simulator.cluster.objects import Node
from simulator.cluster.operands import DEPLOY_LABEL, NAMESPACE, OPERANDS, operand_pod, pods_of
from simulator.cluster.world import World


class GpuOperator:
    """The operator, for every pool whose name is in `pools`."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.pools: set[str] = set()
        self.intolerant: set[str] = set()
        """Pools where its DaemonSets tolerate no taints of others: a tainted node gets none of their pods."""

    async def run(self) -> None:
        """For ever."""
        await self._world.keep("GPU operator", self._look, (self._world.nodes, self._world.pods))

    async def _look(self) -> None:
        nodes = [
            node
            for node in self._world.nodes
            if node.metadata.labels.get(LABEL_SIMULATED_POOL) in self.pools and not node.deleting
        ]
        await self._world.each(nodes, self._see_to)

    async def _see_to(self, node: Node) -> None:
        present = node.metadata.labels
        absent = {f"{DEPLOY_LABEL}{operand}": "true" for operand in OPERANDS if DEPLOY_LABEL + operand not in present}
        if absent:
            # What a label says already is somebody's wish.
            node = await self._world.nodes.patch(node, {"metadata": {"labels": absent}})
        for operand in OPERANDS:
            await self._follow(node, operand)

    async def _follow(self, node: Node, operand: str) -> None:
        pods = pods_of(operand, self._world.pods_on(node.name))
        if node.metadata.labels.get(DEPLOY_LABEL + operand) != "true":
            for pod in pods:
                if not pod.deleting:
                    await self._world.pods.delete(pod)
        elif not pods and not self._kept_off(node):
            await self._world.pods.create(operand_pod(node, operand), NAMESPACE)

    def _kept_off(self, node: Node) -> bool:
        intolerant = node.metadata.labels.get(LABEL_SIMULATED_POOL) in self.intolerant
        return intolerant and any(taint.key == TAINT_ADMISSION for taint in node.spec.taints)
