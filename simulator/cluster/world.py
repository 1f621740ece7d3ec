"""What every cluster behaviour works on: the caches of all kinds, the cloud, the clock, the timings.

And the one way in which a behaviour runs: `keep` turns a "look and correct once" function into a control loop.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, TypeVar

from sickbay.model import Frozen
from simulator.clock import Clock
from simulator.cloud import AwsError, CloudServer, Instance
from simulator.cluster.api import KubeApi
from simulator.cluster.job_objects import Job
from simulator.cluster.karpenter_objects import NodeClaim, NodePool
from simulator.cluster.objects import KubeObject, Lease, Node, Pod, PodDisruptionBudget
from simulator.cluster.resource import PASSING_ERRORS, Resource

Target = TypeVar("Target", bound=KubeObject)

log = logging.getLogger(__name__)

SETTLE_SECONDS = 0.03
"""Real seconds between two turns of one loop: a burst of changes is one turn."""


class Timings(Frozen):
    """How long the cluster takes, in simulated seconds unless said otherwise.

    Defaults are Kubernetes' and Karpenter's own (facts: remediation, 1.2 and 2.4).
    """

    heartbeat: float = 10
    status_report: float = 300
    """Between two status writes of a kubelet that has nothing new to say."""
    node_monitor_grace: float = 40
    eviction_toleration: float = 300
    """How long pods stay on an unreachable node unless they say otherwise."""
    pod_start: float = 3
    pod_stop: float = 2
    """How long a pod needs to end; its grace period caps it."""
    orphan_quarantine: float = 40
    resync: float = 10
    """Between two turns of a loop that hears of no change."""
    capacity_backoff: float = 180
    """Karpenter's wait after a launch that found no capacity."""
    registration_timeout: float = 900
    shortest_beat: float = 0.5
    """Real seconds between two heartbeats at least, so that a fast clock does not make a busy machine."""


class World:
    """The cluster as the behaviours see it."""

    def __init__(self, api: KubeApi, cloud: CloudServer, clock: Clock, timings: Timings) -> None:
        self.api = api
        self.cloud = cloud
        self.clock = clock
        self.timings = timings
        core, karpenter = "/api/v1", "/apis/karpenter.sh/v1"
        self.nodes = Resource(api, Node, core, "nodes", namespaced=False)
        self.pods = Resource(api, Pod, core, "pods", namespaced=True)
        self.leases = Resource(api, Lease, "/apis/coordination.k8s.io/v1", "leases", namespaced=True)
        self.jobs = Resource(api, Job, "/apis/batch/v1", "jobs", namespaced=True)
        self.budgets = Resource(api, PodDisruptionBudget, "/apis/policy/v1", "poddisruptionbudgets", namespaced=True)
        self.pools = Resource(api, NodePool, karpenter, "nodepools", namespaced=False)
        self.claims = Resource(api, NodeClaim, karpenter, "nodeclaims", namespaced=False)

    @property
    def resources(self) -> tuple[Resource[Any], ...]:
        """Every cache, to be followed."""
        return (self.nodes, self.pods, self.leases, self.jobs, self.budgets, self.pools, self.claims)

    @property
    def heartbeat(self) -> float:
        """Simulated seconds between two heartbeats at this clock's speed."""
        return max(self.timings.heartbeat, self.clock.simulated(self.timings.shortest_beat))

    @property
    def node_monitor_grace(self) -> float:
        """Simulated seconds of silence that make a node Unknown; never fewer than four heartbeats."""
        return max(self.timings.node_monitor_grace, 4 * self.heartbeat)

    def pods_on(self, node_name: str) -> list[Pod]:
        """The pods bound to a node, finished ones among them."""
        return [pod for pod in self.pods if pod.spec.node_name == node_name]

    def node_of(self, provider_id: str) -> Node | None:
        """The node of an instance."""
        return next((node for node in self.nodes if provider_id and node.spec.provider_id == provider_id), None)

    def instance_of(self, node: Node) -> Instance | None:
        """The instance of a node, if the cloud still knows it."""
        return self.cloud.instances.get(node.spec.provider_id.rsplit("/", 1)[-1])

    async def each(self, items: Iterable[Target], work: Callable[[Target], Awaitable[None]]) -> None:
        """Do `work` for each item; one that fails waits for the loop's next turn and holds up no other."""
        for item in items:
            try:
                await work(item)
            except (*PASSING_ERRORS, AwsError) as error:
                log.debug("%s waits for its next turn: %s", item.name, error)

    async def keep(
        self,
        name: str,
        look_and_correct: Callable[[], Awaitable[None]],
        watched: Iterable[Resource[Any]] = (),
        every: float | None = None,
    ) -> None:
        """Call `look_and_correct` at changes of the watched kinds and every so many simulated seconds, for ever."""
        changed = asyncio.Event()
        for resource in watched:
            resource.notify(changed)
        for resource in self.resources:
            await resource.synced.wait()
        period = self.clock.real(every if every is not None else max(self.timings.resync, self.heartbeat))
        while True:
            changed.clear()
            try:
                await look_and_correct()
            except PASSING_ERRORS as error:
                log.debug("%s tries again: %s", name, error)
            await asyncio.sleep(SETTLE_SECONDS)
            # Not `wait_for`, which in Python 3.11 can swallow a cancellation that meets the event.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(period):
                    await changed.wait()
