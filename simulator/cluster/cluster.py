"""The simulated cluster: every behaviour on one API server and one cloud, in one event loop.

Made by `simulator.process` and by tests. The behaviours only know the API server's address, so they would drive a real
one as well; the machines come from the cloud.
"""

import asyncio
import tempfile
from contextlib import AsyncExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

from sickbay.names import TAINT_ADMISSION
from simulator.clock import Clock
from simulator.cloud import CloudServer
from simulator.cluster.api import KubeApi, KubeError
from simulator.cluster.budgets import Budgets
from simulator.cluster.cloud_nodes import CloudNodes
from simulator.cluster.gpu_operator import GpuOperator
from simulator.cluster.jobs import Jobs
from simulator.cluster.karpenter_claims import KarpenterClaims
from simulator.cluster.karpenter_pools import CapacityBackoff, KarpenterPools
from simulator.cluster.karpenter_termination import KarpenterTermination
from simulator.cluster.kubelet_nodes import (
    LABEL_SIMULATED_POOL,
    LEASES,
    TAG_NODE_GROUP,
    TAG_STARTUP_TAINT,
    KubeletNodes,
)
from simulator.cluster.kubelet_pods import RUN_SECONDS, STOP_SECONDS, KubeletPods
from simulator.cluster.manifests import JobOrder, budget, job, node_pool
from simulator.cluster.monitoring_agent import MonitoringAgent
from simulator.cluster.node_controller import NodeController
from simulator.cluster.objects import Node, Pod, Taint
from simulator.cluster.operands import NAMESPACE
from simulator.cluster.orphan_pods import OrphanPods
from simulator.cluster.pod_processes import PodProcesses
from simulator.cluster.scheduler import Scheduler
from simulator.cluster.taint_eviction import TaintEviction
from simulator.cluster.world import Timings, World
from simulator.pool_kind import PoolKind
from simulator.tasks import Background


class Cluster:
    """The cluster, an async context manager."""

    def __init__(
        self,
        kube_url: str,
        cloud: CloudServer,
        clock: Clock,
        timings: Timings | None = None,
        folder: Path | None = None,
    ) -> None:
        """`folder` is for the processes of pods; a temporary one if none is given."""
        self.processes = PodProcesses(folder or Path(tempfile.mkdtemp(prefix="simulated-pods-")))
        self._api = KubeApi(kube_url)
        self._cloud = cloud
        self._tasks = Background()
        self._resources = AsyncExitStack()
        self._sizes: dict[str, int] = {}
        self.world = World(self._api, cloud, clock, timings or Timings())
        self._gpu_operator = GpuOperator(self.world)
        self._monitoring_agent = MonitoringAgent(self.world)
        self._nodes_changed = asyncio.Event()
        self.world.nodes.notify(self._nodes_changed)

    async def __aenter__(self) -> Self:
        await self._resources.enter_async_context(self._api)
        self._resources.push_async_callback(self.processes.close)
        self._resources.push_async_callback(self._tasks.close)
        await self._make_namespace(LEASES)
        for resource in self.world.resources:
            self._tasks.spawn(resource.follow(), "watch")
        world, backoff = self.world, CapacityBackoff(self.world.clock, self.world.timings.capacity_backoff)
        for behaviour in (
            KubeletNodes(world),
            KubeletPods(world, self.processes),
            NodeController(world),
            TaintEviction(world),
            OrphanPods(world),
            CloudNodes(world),
            Scheduler(world),
            Budgets(world),
            Jobs(world),
            self._gpu_operator,
            self._monitoring_agent,
            KarpenterPools(world, backoff),
            KarpenterClaims(world, backoff),
            KarpenterTermination(world),
        ):
            self._tasks.spawn(behaviour.run(), type(behaviour).__name__)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._resources.aclose()

    async def add_pool(
        self,
        name: str,
        kind: PoolKind,
        nodes: int,
        instance_type: str,
        *,
        static: bool = True,
        spare: int = 1,
        gpu_operator: bool = False,
        monitoring_agent: bool = False,
        admission: bool = False,
        intolerant: bool = False,
    ) -> None:
        """Add a pool of GPU nodes named `name-0`, `name-1` and on; `ready` waits for them.

        A Karpenter pool keeps its count by `spec.replicas` and may have `spare` nodes more during a replacement; if it
        is not `static`, it starts empty and `nodes` is its limit. With `gpu_operator`, a device plugin and a DCGM
        exporter run on each node; with `monitoring_agent`, somebody else's agent. With `admission`, new nodes bear
        Sickbay's startup taint, which the operator's pods tolerate unless they are `intolerant`. Raises KubeError, or
        AwsError without capacity.
        """
        if monitoring_agent:
            self._monitoring_agent.pools.add(name)
        if gpu_operator:
            await self._make_namespace(NAMESPACE)
            self._gpu_operator.pools.add(name)
        if intolerant:
            self._gpu_operator.intolerant.add(name)
        at_registration = {TAG_STARTUP_TAINT: TAINT_ADMISSION} if admission else {}
        match kind:
            case PoolKind.KARPENTER:
                replicas = nodes if static else None
                limit = nodes + (spare if static else 0)
                startup = (Taint(key=TAINT_ADMISSION, effect="NoSchedule"),) if admission else ()
                await self.world.pools.create(node_pool(name, instance_type, replicas, limit, startup))
            case PoolKind.AUTOSCALING:
                tags = {TAG_NODE_GROUP: name, LABEL_SIMULATED_POOL: name, **at_registration}
                await self._cloud.create_group(name, instance_type, nodes, tags)
            case PoolKind.NOBODY:
                for _ in range(nodes):
                    tags = {"Name": name, LABEL_SIMULATED_POOL: name, **at_registration}
                    await self._cloud.launch(instance_type, tags)
        if kind is not PoolKind.KARPENTER or static:
            self._sizes[name] = nodes

    async def add_job(self, order: JobOrder) -> None:
        """Start a training job, with its disruption budget where the order asks for one. Raises KubeError."""
        lasting = {STOP_SECONDS: order.stop_seconds, RUN_SECONDS: order.run_seconds}
        annotations = {name: str(seconds) for name, seconds in lasting.items() if seconds is not None}
        await self.world.jobs.create(job(order, annotations), order.namespace)
        if order.min_available is not None:
            await self.world.budgets.create(budget(order), order.namespace)

    def nodes_of(self, pool: str) -> list[Node]:
        """The nodes of a pool, as last seen."""
        return [node for node in self.world.nodes if node.metadata.labels.get(LABEL_SIMULATED_POOL) == pool]

    def pods_of(self, job_name: str) -> list[Pod]:
        """The pods of a job, as last seen."""
        return [pod for pod in self.world.pods if pod.controller is not None and pod.controller.name == job_name]

    async def ready(self, deadline: float) -> None:
        """Wait until every pool that was added has all its nodes Ready. Raises TimeoutError after so many real
        seconds."""
        async with asyncio.timeout(deadline):
            while not all(self._is_whole(pool, size) for pool, size in self._sizes.items()):
                self._nodes_changed.clear()
                await self._nodes_changed.wait()

    def _is_whole(self, pool: str, size: int) -> bool:
        usable = [node for node in self.nodes_of(pool) if node.ready and node.allocatable_gpus > 0]
        return len(usable) >= size

    async def _make_namespace(self, name: str) -> None:
        try:
            await self._api.create(
                "/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
            )
        except KubeError as error:
            if error.reason != "AlreadyExists":
                raise
