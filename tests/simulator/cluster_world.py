"""A whole simulated cluster for tests: API server, cloud, behaviours, and machines without hosts behind them."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from simulator.clock import Clock
from simulator.cloud import CloudServer
from simulator.cloud import Timings as CloudTimings
from simulator.cluster import Cluster, JobOrder, PoolKind, Timings
from simulator.cluster.objects import Node, Pod, condition_of
from simulator.kube import KubeServer
from tests.simulator.fake_machines import FakeMachine, FakeMachines
from tests.simulator.waiting import SOON, until

TYPE = "p5.48xlarge"
SPEED = 100
CLOUD = CloudTimings(pending=5, shutting_down=5, group_check=10)
QUICK = Timings(shortest_beat=0.15, orphan_quarantine=5, resync=5, capacity_backoff=20, eviction_toleration=100)


@dataclass
class ClusterWorld:
    kube: KubeServer
    cloud: CloudServer
    cluster: Cluster
    machines: FakeMachines

    async def pool(self, kind: PoolKind, nodes: int, *, static: bool = True) -> None:
        await self.cluster.add_pool("p5", kind, nodes, TYPE, static=static)
        await self.cluster.ready(SOON)

    async def job(self, order: JobOrder) -> None:
        await self.cluster.add_job(order)
        await until(lambda: len(self.running(order.name)) == order.workers)

    def node(self, name: str) -> Node:
        found = self.cluster.world.nodes.get(name)
        assert found is not None, f"there is no node {name}"
        return found

    def nodes(self) -> set[str]:
        return {node.name for node in self.cluster.nodes_of("p5") if node.ready and not node.deleting}

    def running(self, job: str) -> list[Pod]:
        return [pod for pod in self.cluster.pods_of(job) if pod.ready and not pod.deleting]

    def machine(self, node_name: str) -> FakeMachine:
        return self.machines.by_node[node_name]

    def ready_is(self, node_name: str, status: str) -> Callable[[], bool]:
        def holds() -> bool:
            node = self.cluster.world.nodes.get(node_name)
            ready = condition_of(node.status.conditions, "Ready") if node is not None else None
            return ready is not None and ready.status == status

        return holds

    def taints(self, node_name: str) -> set[tuple[str, str]]:
        return {(taint.key, taint.effect) for taint in self.node(node_name).spec.taints}

    async def cordon(self, node_name: str, on: bool = True) -> None:
        await self.cluster.world.nodes.patch(self.node(node_name), {"spec": {"unschedulable": on}})


@asynccontextmanager
async def open_cluster(timings: Timings = QUICK, *, reuse_node_names: bool = False) -> AsyncIterator[ClusterWorld]:
    clock, machines = Clock(speed=SPEED), FakeMachines()
    async with (
        KubeServer() as kube,
        CloudServer(clock, machines, timings=CLOUD, reuse_node_names=reuse_node_names) as cloud,
        Cluster(kube.url, cloud, clock, timings) as cluster,
    ):
        yield ClusterWorld(kube, cloud, cluster, machines)
