from collections.abc import AsyncIterator

import pytest

from simulator.cluster import PoolKind
from simulator.cluster.objects import Pod
from simulator.cluster.operands import DEPLOY_LABEL, OPERANDS, pods_of
from tests.simulator.cluster_world import TYPE, ClusterWorld, open_cluster
from tests.simulator.waiting import SOON, until

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:moto.*", "ignore::DeprecationWarning:botocore.*")

NODE = "p5-0"


@pytest.fixture
async def world() -> AsyncIterator[ClusterWorld]:
    async with open_cluster() as made:
        await made.cluster.add_pool("p5", PoolKind.NOBODY, 1, TYPE, gpu_operator=True)
        await made.cluster.ready(SOON)
        await until(lambda: all(running(made, operand) for operand in OPERANDS))
        yield made


def running(world: ClusterWorld, operand: str) -> list[Pod]:
    pods = pods_of(operand, world.cluster.world.pods_on(NODE))
    return [pod for pod in pods if pod.ready and not pod.deleting]


async def label(world: ClusterWorld, operand: str, value: str) -> None:
    await world.cluster.world.nodes.patch(world.node(NODE), {"metadata": {"labels": {DEPLOY_LABEL + operand: value}}})


async def test_each_node_has_one_pod_of_every_operand_and_all_of_them_hold_the_gpus(world: ClusterWorld) -> None:
    pods = [pod for operand in OPERANDS for pod in running(world, operand)]
    assert len(pods) == len(OPERANDS)
    assert world.machine(NODE).monitors == {pod.metadata.uid for pod in pods}
    await until(lambda: world.node(NODE).allocatable_gpus == 8)


async def test_another_label_ends_the_pod_and_the_old_one_brings_it_back(world: ClusterWorld) -> None:
    await label(world, "dcgm-exporter", "paused-for-sickbay")
    await until(lambda: not pods_of("dcgm-exporter", world.cluster.world.pods_on(NODE)))
    assert world.machine(NODE).monitors == {pod.metadata.uid for pod in running(world, "device-plugin")}
    await label(world, "dcgm-exporter", "true")
    await until(lambda: bool(running(world, "dcgm-exporter")))


async def test_gpus_are_allocatable_only_while_the_device_plugin_serves(world: ClusterWorld) -> None:
    await label(world, "device-plugin", "paused-for-sickbay")
    await until(lambda: world.node(NODE).allocatable_gpus == 0)
    await label(world, "device-plugin", "true")
    await until(lambda: world.node(NODE).allocatable_gpus == 8)


async def test_operands_come_to_a_cordoned_node_and_open_the_gpus_again_after_a_reboot(world: ClusterWorld) -> None:
    await world.cordon(NODE)
    machine = world.machine(NODE)
    await machine.reboot()
    assert machine.monitors == set()
    await until(lambda: len(machine.monitors) == len(OPERANDS))


async def test_a_pool_without_the_operator_has_no_operand(world: ClusterWorld) -> None:
    await world.cluster.add_pool("bare", PoolKind.NOBODY, 1, TYPE)
    await world.cluster.ready(SOON)
    assert not [name for name in world.node("bare-0").metadata.labels if name.startswith(DEPLOY_LABEL)]
    assert world.node("bare-0").allocatable_gpus == 8
