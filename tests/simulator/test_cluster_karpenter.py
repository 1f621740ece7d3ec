from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import pytest

from simulator.cluster import JobOrder, PoolKind
from simulator.cluster.karpenter_objects import NodeClaim
from tests.simulator.cluster_world import ClusterWorld, open_cluster
from tests.simulator.waiting import until

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:moto.*", "ignore::DeprecationWarning:botocore.*")


@pytest.fixture
async def world() -> AsyncIterator[ClusterWorld]:
    async with open_cluster() as made:
        yield made


def claim_of(world: ClusterWorld, node_name: str) -> NodeClaim:
    return next(claim for claim in world.cluster.world.claims if claim.status.node_name == node_name)


async def delete_claim(world: ClusterWorld, node_name: str) -> NodeClaim:
    await until(lambda: any(claim.status.node_name == node_name for claim in world.cluster.world.claims))
    claim = claim_of(world, node_name)
    await world.cluster.world.claims.delete(claim)
    return claim


def is_gone(world: ClusterWorld, claim: NodeClaim) -> bool:
    return world.cluster.world.claims.get(claim.name) is None


async def test_a_claim_goes_through_launched_and_registered_to_initialized(world: ClusterWorld) -> None:
    await world.pool(PoolKind.KARPENTER, 1)
    await until(lambda: all(claim.reached("Ready") for claim in world.cluster.world.claims))
    claim, node = claim_of(world, "p5-0"), world.node("p5-0")
    assert [condition.type for condition in claim.status.conditions] == [
        "Launched",
        "Registered",
        "Initialized",
        "Ready",
    ]
    assert claim.status.provider_id == node.spec.provider_id
    assert node.metadata.finalizers == ("karpenter.sh/termination",)
    assert node.metadata.owner_references[0].uid == claim.metadata.uid
    await until(lambda: world.node("p5-0").metadata.labels.get("karpenter.sh/initialized") == "true")
    assert not world.taints("p5-0")


async def test_a_static_pool_replaces_a_deleted_claim_and_the_old_machine_ends(world: ClusterWorld) -> None:
    await world.pool(PoolKind.KARPENTER, 2)
    old = await delete_claim(world, "p5-0")
    await until(lambda: is_gone(world, old) and world.nodes() == {"p5-1", "p5-2"})
    assert world.cluster.world.nodes.get("p5-0") is None
    assert world.cloud.instances[old.instance_id].state == "terminated"


async def test_a_leaving_node_is_tainted_and_drained_before_its_machine_ends(world: ClusterWorld) -> None:
    await world.pool(PoolKind.KARPENTER, 2)
    await world.job(JobOrder(name="train", pool="p5", workers=2, gpus_per_worker=8, min_available=2))
    old = await delete_claim(world, "p5-0")
    await until(lambda: ("karpenter.sh/disrupted", "NoSchedule") in world.taints("p5-0"))
    await until(lambda: "p5-2" in world.nodes())
    assert world.cloud.instances[old.instance_id].state == "running", "the budget lets no worker go"
    budget = next(iter(world.cluster.world.budgets))
    await world.cluster.world.budgets.patch(budget, {"spec": {"minAvailable": 1}})
    await until(lambda: is_gone(world, old))
    await until(lambda: {pod.spec.node_name for pod in world.running("train")} == {"p5-1", "p5-2"})


async def test_a_worker_that_asks_not_to_be_disrupted_is_waited_for(world: ClusterWorld) -> None:
    await world.pool(PoolKind.KARPENTER, 1)
    await world.job(JobOrder(name="train", pool="p5", workers=1, gpus_per_worker=8))
    (pod,) = world.running("train")
    stay = {"metadata": {"annotations": {"karpenter.sh/do-not-disrupt": "true"}}}
    await world.cluster.world.pods.patch(pod, stay)
    old = await delete_claim(world, "p5-0")
    await until(lambda: "p5-1" in world.nodes())
    assert [known.metadata.uid for known in world.running("train")] == [pod.metadata.uid]
    (pod,) = world.running("train")
    await world.cluster.world.pods.patch(pod, {"metadata": {"annotations": {"karpenter.sh/do-not-disrupt": None}}})
    await until(lambda: is_gone(world, old))


async def test_a_termination_time_that_has_come_forces_budget_and_wishes(world: ClusterWorld) -> None:
    await world.pool(PoolKind.KARPENTER, 1)
    await world.job(JobOrder(name="train", pool="p5", workers=1, gpus_per_worker=8, min_available=1))
    claim = claim_of(world, "p5-0")
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    forced = {"metadata": {"annotations": {"karpenter.sh/nodeclaim-termination-timestamp": now}}}
    await world.cluster.world.claims.patch(claim, forced)
    old = await delete_claim(world, "p5-0")
    await until(lambda: is_gone(world, old))


async def test_a_claim_whose_kubelet_and_machine_are_dead_still_ends(world: ClusterWorld) -> None:
    await world.pool(PoolKind.KARPENTER, 1)
    claim = await _claim_with_node(world, "p5-0")
    world.machine("p5-0").hung = True
    await until(world.ready_is("p5-0", "Unknown"))
    await world.cluster.world.claims.delete(claim)
    await until(lambda: is_gone(world, claim) and world.nodes() == {"p5-1"})


async def _claim_with_node(world: ClusterWorld, node_name: str) -> NodeClaim:
    await until(lambda: any(claim.status.node_name == node_name for claim in world.cluster.world.claims))
    return claim_of(world, node_name)


async def test_a_machine_that_vanished_takes_its_claim_along_and_is_replaced(world: ClusterWorld) -> None:
    await world.pool(PoolKind.KARPENTER, 1)
    claim = await _claim_with_node(world, "p5-0")
    world.cloud.terminate(claim.instance_id)
    await until(lambda: is_gone(world, claim) and world.nodes() == {"p5-1"})


async def test_deleting_the_node_object_ends_its_claim_too(world: ClusterWorld) -> None:
    await world.pool(PoolKind.KARPENTER, 1)
    claim = await _claim_with_node(world, "p5-0")
    await until(lambda: world.node("p5-0").metadata.finalizers != ())
    await world.cluster.world.nodes.delete(world.node("p5-0"))
    await until(lambda: is_gone(world, claim) and world.nodes() == {"p5-1"})


async def test_a_dynamic_pool_grows_only_for_pods_that_wait(world: ClusterWorld) -> None:
    await world.pool(PoolKind.KARPENTER, 3, static=False)
    assert world.nodes() == set()
    await world.job(JobOrder(name="train", pool="p5", workers=4, gpus_per_worker=4))
    assert world.nodes() == {"p5-0", "p5-1"}


async def test_a_dynamic_pool_starts_the_successor_of_a_leaving_node_for_its_pods(world: ClusterWorld) -> None:
    await world.pool(PoolKind.KARPENTER, 3, static=False)
    await world.job(JobOrder(name="train", pool="p5", workers=1, gpus_per_worker=8))
    old = await delete_claim(world, "p5-0")
    await until(lambda: is_gone(world, old))
    await until(lambda: [pod.spec.node_name for pod in world.running("train")] == ["p5-1"])


async def test_without_capacity_a_successor_waits_and_comes_when_there_is_some(world: ClusterWorld) -> None:
    await world.pool(PoolKind.KARPENTER, 1)
    world.cloud.refuse_capacity(datetime.now(UTC) + timedelta(hours=1))
    old = await delete_claim(world, "p5-0")
    await until(lambda: is_gone(world, old))
    await until(lambda: not list(world.cluster.world.claims))
    assert world.nodes() == set()
    world.cloud.refuse_capacity(datetime.now(UTC))
    await until(lambda: world.nodes() == {"p5-1"})
