"""Taint eviction: deletes pods that do not bear a NoExecute taint, after the time they do bear it.

As in Kubernetes this asks no PodDisruptionBudget (facts: remediation, 2.4).
"""

from simulator.cluster.objects import Pod, Taint
from simulator.cluster.pod_endings import end_pod
from simulator.cluster.taints import seconds_borne
from simulator.cluster.world import World


class TaintEviction:
    """Ends what may not stay."""

    def __init__(self, world: World) -> None:
        self._world = world

    async def run(self) -> None:
        """For ever."""
        watched = (self._world.nodes, self._world.pods)
        await self._world.keep("taint eviction", self._evict_all, watched, every=self._world.heartbeat)

    async def _evict_all(self) -> None:
        for node in self._world.nodes:
            taints = [taint for taint in node.spec.taints if taint.effect == "NoExecute"]
            if taints:
                due = [pod for pod in self._world.pods_on(node.name) if self._is_due(pod, taints)]
                await self._world.each(due, self._evict)

    def _is_due(self, pod: Pod, taints: list[Taint]) -> bool:
        return not pod.deleting and not pod.finished and any(self._is_over(pod, taint) for taint in taints)

    def _is_over(self, pod: Pod, taint: Taint) -> bool:
        borne = seconds_borne(pod, taint, self._world.timings.eviction_toleration)
        if borne is None:
            return False
        return borne == 0 or (taint.time_added is not None and self._world.clock.since(taint.time_added) > borne)

    async def _evict(self, pod: Pod) -> None:
        await end_pod(self._world, pod, "DeletionByTaintManager", "Taint manager: deleting due to NoExecute taint")
