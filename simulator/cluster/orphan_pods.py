"""Pod garbage collection: removes pods that no kubelet will ever end (facts: remediation, 2.4).

Those of a vanished node after a quarantine, and terminating ones on a node that is not ready and that somebody has
declared out of service.
"""

from datetime import datetime

from simulator.cluster.objects import Pod
from simulator.cluster.pod_endings import end_pod
from simulator.cluster.taints import OUT_OF_SERVICE
from simulator.cluster.world import World


class OrphanPods:
    """Collects them."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._orphan_since: dict[str, datetime] = {}

    async def run(self) -> None:
        """For ever."""
        watched = (self._world.nodes, self._world.pods)
        await self._world.keep("pod garbage collection", self._collect, watched, every=self._world.heartbeat)

    async def _collect(self) -> None:
        now = self._world.clock.now()
        orphans = [pod for pod in self._world.pods if self._is_orphan(pod)]
        self._orphan_since = {pod.metadata.uid: self._orphan_since.get(pod.metadata.uid, now) for pod in orphans}
        quarantine = self._world.timings.orphan_quarantine
        due = [pod for pod in orphans if self._world.clock.since(self._orphan_since[pod.metadata.uid]) >= quarantine]
        due += [pod for pod in self._world.pods if self._is_out_of_service(pod)]
        await self._world.each(due, self._remove)

    def _is_orphan(self, pod: Pod) -> bool:
        return bool(pod.spec.node_name) and self._world.nodes.get(pod.spec.node_name) is None

    def _is_out_of_service(self, pod: Pod) -> bool:
        node = self._world.nodes.get(pod.spec.node_name)
        return (
            pod.deleting
            and node is not None
            and not node.ready
            and any(taint.key == OUT_OF_SERVICE for taint in node.spec.taints)
        )

    async def _remove(self, pod: Pod) -> None:
        await end_pod(self._world, pod, "DeletionByPodGC", "PodGC: the pod's node is gone", at_once=True)
