from collections.abc import AsyncIterator

import pytest

from simulator.cluster import JobOrder, PoolKind
from simulator.cluster.kubelet_nodes import LABEL_NODE_GROUP
from simulator.cluster.objects import condition_of
from tests.simulator.cluster_world import ClusterWorld, open_cluster
from tests.simulator.waiting import until

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:moto.*", "ignore::DeprecationWarning:botocore.*")

TRAIN = JobOrder(name="train", pool="p5", workers=2, gpus_per_worker=8)


@pytest.fixture
async def world() -> AsyncIterator[ClusterWorld]:
    async with open_cluster() as made:
        yield made


async def test_nodes_of_every_kind_of_pool_join_with_their_marks_of_ownership(world: ClusterWorld) -> None:
    await world.cluster.add_pool("by-karpenter", PoolKind.KARPENTER, 1, "p5.48xlarge")
    await world.cluster.add_pool("by-group", PoolKind.AUTOSCALING, 1, "p4d.24xlarge")
    await world.cluster.add_pool("by-nobody", PoolKind.NOBODY, 1, "g5.xlarge")
    await world.cluster.ready(20)
    karpenter, group, nobody = (world.node(f"by-{owner}-0") for owner in ("karpenter", "group", "nobody"))
    assert karpenter.metadata.labels["karpenter.sh/nodepool"] == "by-karpenter"
    assert group.metadata.labels[LABEL_NODE_GROUP] == "by-group"
    assert not {"karpenter.sh/nodepool", LABEL_NODE_GROUP} & nobody.metadata.labels.keys()
    assert [node.allocatable_gpus for node in (karpenter, group, nobody)] == [8, 8, 1]
    for node in (karpenter, group, nobody):
        instance = world.cluster.world.instance_of(node)
        assert instance is not None
        assert node.spec.provider_id == f"aws:///eu-west-1a/{instance.instance_id}"
        assert node.status.node_info.boot_id == instance.machine.boot_id


async def test_a_job_runs_one_worker_a_node_and_holds_the_gpus_on_the_machine(world: ClusterWorld) -> None:
    await world.pool(PoolKind.NOBODY, 2)
    await world.job(TRAIN)
    assert {pod.spec.node_name for pod in world.running("train")} == {"p5-0", "p5-1"}
    assert {sum(world.machine(name).occupied.values()) for name in ("p5-0", "p5-1")} == {8}


async def test_a_cordon_brings_the_taint_and_its_end_takes_it_away(world: ClusterWorld) -> None:
    await world.pool(PoolKind.NOBODY, 1)
    await world.cordon("p5-0")
    await until(lambda: world.taints("p5-0") == {("node.kubernetes.io/unschedulable", "NoSchedule")})
    await world.cordon("p5-0", on=False)
    await until(lambda: not world.taints("p5-0"))


async def test_no_pod_comes_to_a_cordoned_node(world: ClusterWorld) -> None:
    await world.pool(PoolKind.NOBODY, 2)
    await world.cordon("p5-0")
    await world.cluster.add_job(TRAIN)
    await until(lambda: len(world.running("train")) == 1)
    (waiting,) = [pod for pod in world.cluster.pods_of("train") if not pod.spec.node_name]
    await until(lambda: _is_unschedulable(world, waiting.name))
    assert world.running("train")[0].spec.node_name == "p5-1"
    await world.cordon("p5-0", on=False)
    await until(lambda: len(world.running("train")) == 2)


def _is_unschedulable(world: ClusterWorld, pod_name: str) -> bool:
    pod = world.cluster.world.pods.get(pod_name, "default")
    told = condition_of(pod.status.conditions, "PodScheduled") if pod is not None else None
    return told is not None and told.reason == "Unschedulable"


async def test_a_silent_kubelet_makes_its_node_unknown_and_unreachable_until_it_is_back(world: ClusterWorld) -> None:
    await world.pool(PoolKind.NOBODY, 1)
    await world.job(JobOrder(name="train", pool="p5", workers=1, gpus_per_worker=8))
    world.machine("p5-0").hung = True
    await until(world.ready_is("p5-0", "Unknown"))
    unreachable = "node.kubernetes.io/unreachable"
    await until(lambda: world.taints("p5-0") == {(unreachable, "NoSchedule"), (unreachable, "NoExecute")})
    await until(lambda: not world.running("train"))
    world.machine("p5-0").hung = False
    await until(world.ready_is("p5-0", "True"))
    await until(lambda: not world.taints("p5-0") and len(world.running("train")) == 1)


async def test_pods_of_a_dead_node_are_told_to_go_but_hang_until_the_machine_answers(world: ClusterWorld) -> None:
    await world.pool(PoolKind.NOBODY, 1)
    await world.job(JobOrder(name="train", pool="p5", workers=1, gpus_per_worker=8))
    (pod,) = world.running("train")
    world.machine("p5-0").hung = True
    await until(lambda: any(known.deleting for known in world.cluster.pods_of("train")))
    (hanging,) = [known for known in world.cluster.pods_of("train") if known.deleting]
    assert hanging.metadata.uid == pod.metadata.uid
    told = condition_of(hanging.status.conditions, "DisruptionTarget")
    assert told is not None
    assert told.reason == "DeletionByTaintManager"
    world.machine("p5-0").hung = False
    await until(lambda: {known.metadata.uid for known in world.running("train")} - {pod.metadata.uid} != set())


async def test_a_reboot_shows_another_boot_id_and_loses_the_pods_that_ran(world: ClusterWorld) -> None:
    await world.pool(PoolKind.NOBODY, 1)
    await world.job(JobOrder(name="train", pool="p5", workers=1, gpus_per_worker=8))
    before, (pod,) = world.node("p5-0").status.node_info.boot_id, world.running("train")
    await world.machine("p5-0").reboot()
    await until(lambda: world.node("p5-0").status.node_info.boot_id not in ("", before))
    await until(lambda: [known.metadata.uid for known in world.running("train")] not in ([], [pod.metadata.uid]))
    (lost,) = [known for known in world.cluster.pods_of("train") if known.metadata.uid == pod.metadata.uid]
    assert lost.status.phase == "Failed"
    await until(lambda: [job.status.failed for job in world.cluster.world.jobs] == [1])


async def test_a_lost_gpu_shows_in_allocatable_and_keeps_its_capacity(world: ClusterWorld) -> None:
    await world.pool(PoolKind.NOBODY, 1)
    world.machine("p5-0").gpu_allocatable = 7
    await until(lambda: world.node("p5-0").allocatable_gpus == 7)
    assert world.node("p5-0").status.capacity["nvidia.com/gpu"] == "8"


async def test_workers_that_end_by_themselves_complete_the_job(world: ClusterWorld) -> None:
    await world.pool(PoolKind.NOBODY, 1)
    await world.cluster.add_job(JobOrder(name="short", pool="p5", workers=2, gpus_per_worker=4, run_seconds=5))
    await until(lambda: [job.status.succeeded for job in world.cluster.world.jobs] == [2])
    (job,) = world.cluster.world.jobs
    done = condition_of(job.status.conditions, "Complete")
    assert done is not None
    assert done.status == "True"
    assert world.machine("p5-0").occupied == {}


async def test_a_budget_counts_its_healthy_workers_as_they_go(world: ClusterWorld) -> None:
    await world.pool(PoolKind.NOBODY, 2)
    await world.job(TRAIN.model_copy(update={"min_available": 1}))
    await until(lambda: [budget.status.disruptions_allowed for budget in world.cluster.world.budgets] == [1])
    await world.cordon("p5-0")
    (pod,) = [pod for pod in world.running("train") if pod.spec.node_name == "p5-0"]
    await world.cluster.world.pods.delete(pod)
    await until(lambda: [budget.status.disruptions_allowed for budget in world.cluster.world.budgets] == [0])
    (budget,) = world.cluster.world.budgets
    assert budget.status.current_healthy == budget.status.desired_healthy == 1


async def test_a_group_replaces_a_node_and_the_old_one_leaves_the_cluster(world: ClusterWorld) -> None:
    await world.pool(PoolKind.AUTOSCALING, 2)
    old = world.cluster.world.instance_of(world.node("p5-0"))
    assert old is not None
    world.cloud.terminate(old.instance_id)
    await until(lambda: world.nodes() == {"p5-1", "p5-2"})
    await until(lambda: world.cluster.world.nodes.get("p5-0") is None)


async def test_a_node_of_nobody_leaves_with_its_instance_and_its_pods_are_collected(world: ClusterWorld) -> None:
    await world.pool(PoolKind.NOBODY, 2)
    await world.job(TRAIN)
    old = world.cluster.world.instance_of(world.node("p5-0"))
    assert old is not None
    world.cloud.terminate(old.instance_id)
    await until(lambda: world.cluster.world.nodes.get("p5-0") is None)
    await until(lambda: all(pod.spec.node_name != "p5-0" or pod.finished for pod in world.cluster.pods_of("train")))


async def test_a_successor_may_come_under_its_predecessors_name() -> None:
    async with open_cluster(reuse_node_names=True) as world:
        await world.pool(PoolKind.AUTOSCALING, 1)
        before = world.node("p5-0")
        world.cloud.terminate(before.spec.provider_id.rsplit("/", 1)[-1])
        await until(lambda: world.cluster.world.nodes.get("p5-0") not in (None, before) and world.nodes() == {"p5-0"})
        await until(lambda: world.node("p5-0").metadata.uid != before.metadata.uid)
        assert world.node("p5-0").spec.provider_id != before.spec.provider_id


async def test_the_cluster_goes_on_after_the_api_server_was_away(world: ClusterWorld) -> None:
    await world.pool(PoolKind.NOBODY, 1)
    await world.kube.restart()
    world.kube.compact()
    world.machine("p5-0").gpu_allocatable = 6
    await until(lambda: world.node("p5-0").allocatable_gpus == 6)
