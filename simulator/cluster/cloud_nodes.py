"""The cloud provider's node lifecycle controller: deletes the Node of an instance that is no more.

This is how the nodes of Auto Scaling groups, and of nobody, leave the cluster. Karpenter's nodes leave by their own
finalizer.
"""

from simulator.cloud import State
from simulator.cluster.objects import Node
from simulator.cluster.world import World

CHECK_SECONDS = 5
"""Kubernetes' own node monitor period."""


class CloudNodes:
    """Looks after nodes that are not ready."""

    def __init__(self, world: World) -> None:
        self._world = world

    async def run(self) -> None:
        """For ever."""
        every = max(CHECK_SECONDS, self._world.heartbeat / 2)
        await self._world.keep("cloud node lifecycle", self._look, (self._world.nodes,), every=every)

    async def _look(self) -> None:
        gone = [node for node in self._world.nodes if self._is_gone(node)]
        await self._world.each(gone, self._world.nodes.delete)

    def _is_gone(self, node: Node) -> bool:
        if node.ready or node.deleting or not node.spec.provider_id:
            return False
        instance = self._world.instance_of(node)
        return instance is None or instance.state is State.TERMINATED
