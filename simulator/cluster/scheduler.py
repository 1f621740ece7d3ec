"""The scheduler: binds waiting pods to nodes that have room, and says so where none has."""

from simulator.cluster.api import PatchKind
from simulator.cluster.objects import Node, Pod, condition_of
from simulator.cluster.placement import fits, free_gpus, is_waiting
from simulator.cluster.stamps import condition
from simulator.cluster.world import World


class Scheduler:
    """Places pods, oldest first, on the fullest node that has room, as bin packing of GPUs does."""

    def __init__(self, world: World) -> None:
        self._world = world

    async def run(self) -> None:
        """For ever."""
        await self._world.keep("scheduler", self._place_all, (self._world.pods, self._world.nodes))

    async def _place_all(self) -> None:
        waiting = sorted(filter(is_waiting, self._world.pods), key=lambda pod: str(pod.metadata.creation_timestamp))
        await self._world.each(waiting, self._place)

    async def _place(self, pod: Pod) -> None:
        node = self._choose(pod)
        if node is None:
            await self._tell_unschedulable(pod)
            return
        target = {"apiVersion": "v1", "kind": "Node", "name": node.name}
        binding = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": pod.name, "namespace": pod.metadata.namespace},
            "target": target,
        }
        await self._world.pods.act(pod, "binding", binding)

    def _choose(self, pod: Pod) -> Node | None:
        pods = list(self._world.pods)
        rooms = [(free_gpus(node, pods), node.name, node) for node in self._world.nodes]
        return next((node for free, _, node in sorted(rooms, key=lambda room: room[:2]) if fits(pod, node, free)), None)

    async def _tell_unschedulable(self, pod: Pod) -> None:
        if condition_of(pod.status.conditions, "PodScheduled") is not None:
            return
        told = condition(
            "PodScheduled", False, self._world.clock.now(), "Unschedulable", "no node has room for this pod"
        )
        await self._world.pods.patch(
            pod, {"status": {"conditions": [told]}}, kind=PatchKind.STRATEGIC, subresource="status"
        )
