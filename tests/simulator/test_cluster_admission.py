"""Startup taints: pools have them, nodes come up with them, and they keep work and intolerant pods away."""

from collections.abc import AsyncIterator

import pytest

from sickbay.names import TAINT_ADMISSION
from simulator.cluster import JobOrder
from simulator.pool_kind import PoolKind
from tests.simulator.cluster_world import ClusterWorld, open_cluster
from tests.simulator.waiting import until

TYPE = "p5.48xlarge"


@pytest.fixture
async def world() -> AsyncIterator[ClusterWorld]:
    async with open_cluster() as made:
        yield made


def tainted(world: ClusterWorld) -> bool:
    nodes = world.cluster.nodes_of("p5")
    return bool(nodes) and all(any(taint.key == TAINT_ADMISSION for taint in node.spec.taints) for node in nodes)


@pytest.mark.parametrize("kind", list(PoolKind))
async def test_a_new_node_of_any_kind_of_pool_gets_no_work_before_its_taint_is_gone(
    world: ClusterWorld, kind: PoolKind
) -> None:
    await world.cluster.add_pool("p5", kind, 1, TYPE, admission=True)
    await world.cluster.ready(20)
    await until(lambda: tainted(world))
    await world.cluster.add_job(JobOrder(name="llama", pool="p5", workers=1, gpus_per_worker=8))
    await until(lambda: bool(world.cluster.pods_of("llama")))
    (pod,) = world.cluster.pods_of("llama")
    await until(lambda: bool(world.cluster.pods_of("llama")[0].status.conditions))
    assert pod.spec.node_name == ""
    (node,) = world.cluster.nodes_of("p5")
    rest = [taint.written() for taint in node.spec.taints if taint.key != TAINT_ADMISSION]
    await world.cluster.world.nodes.patch(node, {"spec": {"taints": rest}})
    await until(lambda: world.cluster.pods_of("llama")[0].spec.node_name == node.name)


async def test_without_the_toleration_no_device_plugin_comes_up_on_a_tainted_node(world: ClusterWorld) -> None:
    await world.cluster.add_pool("p5", PoolKind.NOBODY, 1, TYPE, gpu_operator=True, admission=True, intolerant=True)
    await until(lambda: tainted(world))
    await until(lambda: world.cluster.nodes_of("p5")[0].allocatable_gpus == 0)
    assert not [pod for pod in world.cluster.world.pods if pod.metadata.namespace == "gpu-operator"]
    (node,) = world.cluster.nodes_of("p5")
    await world.cluster.world.nodes.patch(node, {"spec": {"taints": []}})
    await until(lambda: world.cluster.nodes_of("p5")[0].allocatable_gpus == 8)
