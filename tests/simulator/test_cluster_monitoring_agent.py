"""The simulated agent of somebody else: good from its start, and bad until it starts anew."""

from collections.abc import AsyncIterator

import pytest

from simulator.cluster import PoolKind
from simulator.cluster.monitoring_agent import CONDITIONS, HARDWARE
from simulator.cluster.objects import condition_of
from tests.simulator.cluster_world import TYPE, ClusterWorld, open_cluster
from tests.simulator.waiting import SOON, until

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:moto.*", "ignore::DeprecationWarning:botocore.*")

NODE = "p5-0"


@pytest.fixture
async def world() -> AsyncIterator[ClusterWorld]:
    async with open_cluster() as made:
        await made.cluster.add_pool("p5", PoolKind.NOBODY, 1, TYPE, monitoring_agent=True)
        await made.cluster.ready(SOON)
        await until(lambda: status(made) == "True")
        yield made


def status(world: ClusterWorld, kind: str = HARDWARE) -> str:
    said = condition_of(world.node(NODE).status.conditions, kind)
    return said.status if said else ""


async def test_it_calls_everything_good_at_its_start(world: ClusterWorld) -> None:
    assert {status(world, kind) for kind in CONDITIONS} == {"True"}
    assert status(world, "Ready") == "True"


async def test_a_missing_gpu_makes_its_condition_bad_until_the_next_boot(world: ClusterWorld) -> None:
    machine = world.machine(NODE)
    machine.gpu_allocatable = 7
    await until(lambda: status(world) == "False")
    machine.gpu_allocatable = 8
    await until(lambda: world.node(NODE).allocatable_gpus == 8)
    assert status(world) == "False"
    await machine.reboot()
    await until(lambda: status(world) == "True")
