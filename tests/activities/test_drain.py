import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from temporalio.activity import ActivityCancellationDetails
from temporalio.testing import ActivityEnvironment

from activities.drain import DrainActivities, DrainRequest
from activities.errors import FinalError
from sickbay.eviction import MOST_RETURNS
from sickbay.nodes import DrainGoal, DrainOutcome, DrainReport, NodeRef
from sickbay.policy.model import DrainPolicy, HoldChoice
from simulator.kube.faults import RequestFault
from simulator.kube.requests import MERGE_PATCH
from tests.kube_under_test import KubeUnderTest

pytestmark = pytest.mark.kube

QUICK = 0.02
"""Seconds between looks."""
JOB = {"kind": "Job", "name": "train"}
REPLICAS = {"kind": "ReplicaSet", "name": "serve"}
DAEMON = {"kind": "DaemonSet", "name": "dcgm"}


class JumpingClock:
    """A clock that runs as the real one, until a test jumps it ahead."""

    def __init__(self) -> None:
        self._ahead = timedelta()

    def __call__(self) -> datetime:
        return datetime.now(UTC) + self._ahead

    def jump(self, ahead: timedelta) -> None:
        self._ahead += ahead


@pytest.fixture
def clock() -> JumpingClock:
    return JumpingClock()


@pytest.fixture
def drain(kube_server: KubeUnderTest, clock: JumpingClock) -> DrainActivities:
    return DrainActivities(kube_server.api_client(), look_every=timedelta(seconds=QUICK), clock=clock)


async def request(
    kube: KubeUnderTest, goal: DrainGoal = DrainGoal.WORKLOAD, ready: str = "True", **policy: Any
) -> DrainRequest:
    made = await kube.create_node("node-a", ready=ready, unschedulable=True)
    rules: dict[str, Any] = {"evictions_per_minute": 60_000, **policy}
    return DrainRequest(
        node=NodeRef(cluster="c1", name="node-a", uid=made["metadata"]["uid"]),
        incident_id="incident-c1-node-a",
        goal=goal,
        policy=DrainPolicy(**rules),
    )


@asynccontextmanager
async def kubelet(kube: KubeUnderTest) -> AsyncIterator[None]:
    """Lets terminating pods of the node go, as a live kubelet does."""

    async def work() -> None:
        while True:
            for pod in (await kube.request("GET", "/api/v1/pods"))["items"]:
                if "deletionTimestamp" in pod["metadata"]:
                    await kube.finish_pod(pod["metadata"]["name"])
            await asyncio.sleep(QUICK)

    working = asyncio.create_task(work())
    try:
        yield
    finally:
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)


async def until(condition: Callable[[dict[str, Any]], bool], kube: KubeUnderTest) -> None:
    pods = await kube.request("GET", "/api/v1/pods")
    while not condition(pods):
        await asyncio.sleep(QUICK)
        pods = await kube.request("GET", "/api/v1/pods")


def terminating(name: str) -> Callable[[dict[str, Any]], bool]:
    return lambda pods: any(
        pod["metadata"]["name"] == name and "deletionTimestamp" in pod["metadata"] for pod in pods["items"]
    )


async def drain_until_deadline(
    drain: DrainActivities, asked: DrainRequest, clock: JumpingClock, condition: asyncio.Future[None] | Any
) -> DrainReport:
    """Starts the drain, waits for `condition`, and lets the deadline pass."""
    running = asyncio.create_task(drain.drain_node(asked))
    await condition
    clock.jump(asked.policy.deadline)
    return await running


def scheduled_now() -> ActivityEnvironment:
    environment = ActivityEnvironment()
    environment.info = replace(environment.info, scheduled_time=datetime.now(UTC))
    return environment


async def test_workload_leaves_and_the_nodes_own_pods_stay(kube_server: KubeUnderTest, drain: DrainActivities) -> None:
    asked = await request(kube_server)
    await kube_server.create_pod("train-0", node="node-a", owner=JOB, gpus=8)
    await kube_server.create_pod("serve-0", node="node-a", owner=REPLICAS)
    await kube_server.create_pod("dcgm-0", node="node-a", owner=DAEMON)
    await kube_server.create_pod("etcd", node="node-a", annotations={"kubernetes.io/config.mirror": "x"})
    await kube_server.create_pod("done-0", node="node-a", owner=JOB, phase="Succeeded")
    await kube_server.create_pod("elsewhere", node="", owner=JOB)
    async with kubelet(kube_server):
        report = await drain.drain_node(asked)
    assert report.outcome is DrainOutcome.DRAINED
    assert report.evicted == ("default/serve-0", "default/train-0")
    left = {pod["metadata"]["name"] for pod in (await kube_server.request("GET", "/api/v1/pods"))["items"]}
    assert left == {"dcgm-0", "etcd", "done-0", "elsewhere"}


async def test_a_reset_moves_only_those_that_may_hold_a_gpu(kube_server: KubeUnderTest, drain: DrainActivities) -> None:
    asked = await request(kube_server, DrainGoal.GPU_PODS)
    await kube_server.create_pod("train-0", node="node-a", owner=JOB, gpus=8)
    await kube_server.create_pod("web-0", node="node-a", owner=REPLICAS)
    async with kubelet(kube_server):
        report = await drain.drain_node(asked)
    assert (report.outcome, report.evicted) == (DrainOutcome.DRAINED, ("default/train-0",))


async def test_an_accepted_eviction_is_not_yet_a_pod_gone(
    kube_server: KubeUnderTest, drain: DrainActivities, clock: JumpingClock
) -> None:
    asked = await request(kube_server)
    await kube_server.create_pod("train-0", node="node-a", owner=JOB, grace=7200)
    report = await drain_until_deadline(drain, asked, clock, until(terminating("train-0"), kube_server))
    assert report.outcome is DrainOutcome.TIMED_OUT
    assert report.evicted == ("default/train-0",)
    assert "it is terminating" in report.blockers[0].reason


async def test_a_budget_that_opens_lets_the_drain_through(
    kube_server: KubeUnderTest, drain: DrainActivities, clock: JumpingClock
) -> None:
    asked = await request(kube_server)
    await kube_server.create_pod("serve-0", node="node-a", owner=REPLICAS, labels={"app": "serve"})
    await kube_server.create_pod("serve-1", node="node-a", owner=REPLICAS, labels={"app": "serve"})
    await kube_server.create_budget("serve-pdb", labels={"app": "serve"}, allowed=1)
    running = asyncio.create_task(drain.drain_node(asked))
    await until(terminating("serve-0"), kube_server)
    budget = "/apis/policy/v1/namespaces/default/poddisruptionbudgets/serve-pdb/status"
    await kube_server.request("PATCH", budget, {"status": {"disruptionsAllowed": 1}}, MERGE_PATCH)
    clock.jump(timedelta(seconds=10))
    async with kubelet(kube_server):
        report = await running
    assert (report.outcome, len(report.evicted)) == (DrainOutcome.DRAINED, 2)


async def test_a_budget_that_stays_closed_blocks_by_name_at_the_deadline(
    kube_server: KubeUnderTest, drain: DrainActivities, clock: JumpingClock
) -> None:
    asked = await request(kube_server)
    await kube_server.create_pod("serve-0", node="node-a", owner=REPLICAS, labels={"app": "serve"})
    await kube_server.create_pod("train-0", node="node-a", owner=JOB)
    await kube_server.create_budget("serve-pdb", labels={"app": "serve"}, allowed=0)
    async with kubelet(kube_server):
        gone = until(lambda pods: len(pods["items"]) == 1, kube_server)
        report = await drain_until_deadline(drain, asked, clock, gone)
    assert report.outcome is DrainOutcome.BLOCKED
    assert report.evicted == ("default/train-0",)
    assert [(each.pod, each.budget) for each in report.blockers] == [("serve-0", "serve-pdb")]


async def test_two_budgets_over_one_pod_block_at_once_and_both_are_named(
    kube_server: KubeUnderTest, drain: DrainActivities
) -> None:
    asked = await request(kube_server)
    await kube_server.create_pod("serve-0", node="node-a", owner=REPLICAS, labels={"app": "serve"})
    await kube_server.create_budget("one", labels={"app": "serve"}, allowed=1)
    await kube_server.create_budget("two", labels={"app": "serve"}, allowed=1)
    report = await drain.drain_node(asked)
    assert report.outcome is DrainOutcome.BLOCKED
    assert report.blockers[0].budget == "one, two"


@pytest.mark.parametrize(
    ("parts", "word"),
    [
        ({}, "no controller"),
        ({"owner": JOB, "annotations": {"karpenter.sh/do-not-disrupt": "true"}}, "do-not-disrupt"),
        ({"owner": JOB, "annotations": {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}}, "safe-to-evict"),
    ],
)
async def test_held_pods_block_in_words_and_are_not_touched(
    kube_server: KubeUnderTest, drain: DrainActivities, clock: JumpingClock, parts: dict[str, Any], word: str
) -> None:
    asked = await request(kube_server)
    await kube_server.create_pod("held", node="node-a", **parts)
    report = await drain_until_deadline(drain, asked, clock, asyncio.sleep(QUICK))
    assert (report.outcome, report.evicted) == (DrainOutcome.BLOCKED, ())
    assert word in report.blockers[0].reason


async def test_policy_may_give_held_pods_up(kube_server: KubeUnderTest, drain: DrainActivities) -> None:
    asked = await request(kube_server, unmanaged_pods=HoldChoice.EVICT, do_not_disrupt=HoldChoice.EVICT)
    await kube_server.create_pod("alone", node="node-a")
    await kube_server.create_pod("held", node="node-a", owner=JOB, annotations={"karpenter.sh/do-not-disrupt": "true"})
    async with kubelet(kube_server):
        report = await drain.drain_node(asked)
    assert (report.outcome, len(report.evicted)) == (DrainOutcome.DRAINED, 2)


async def test_a_pod_that_came_after_the_list_leaves_too(kube_server: KubeUnderTest, drain: DrainActivities) -> None:
    asked = await request(kube_server)
    await kube_server.create_pod("first", node="node-a", owner=JOB)
    running = asyncio.create_task(drain.drain_node(asked))
    await until(terminating("first"), kube_server)
    await kube_server.create_pod("second", node="node-a", owner=REPLICAS)
    async with kubelet(kube_server):
        report = await running
    assert report.evicted == ("default/first", "default/second")


async def test_a_persons_uncordon_stops_the_drain(kube_server: KubeUnderTest, drain: DrainActivities) -> None:
    asked = await request(kube_server)
    mark = {"sickbay.dev/incident": asked.incident_id}
    patch = {"metadata": {"annotations": mark}, "spec": {"unschedulable": False}}
    await kube_server.request("PATCH", "/api/v1/nodes/node-a?fieldManager=kubectl-edit", patch, MERGE_PATCH)
    await kube_server.create_pod("serve-1", owner=REPLICAS)
    report = await drain.drain_node(asked)
    assert (report.outcome, report.evicted) == (DrainOutcome.CANCELLED, ())


async def test_a_new_pod_of_the_same_name_elsewhere_does_not_count(
    kube_server: KubeUnderTest, drain: DrainActivities
) -> None:
    asked = await request(kube_server)
    await kube_server.create_node("node-b")
    await kube_server.create_pod("stateful-0", node="node-a", owner=REPLICAS)
    running = asyncio.create_task(drain.drain_node(asked))
    await until(terminating("stateful-0"), kube_server)
    await kube_server.finish_pod("stateful-0")
    await kube_server.create_pod("stateful-0", node="node-b", owner=REPLICAS)
    report = await running
    assert report.outcome is DrainOutcome.DRAINED
    (left,) = (await kube_server.request("GET", "/api/v1/pods"))["items"]
    assert "deletionTimestamp" not in left["metadata"]


@pytest.mark.parametrize(
    ("goal", "outcome"), [(DrainGoal.WORKLOAD, DrainOutcome.DRAINED), (DrainGoal.GPU_PODS, DrainOutcome.BLOCKED)]
)
async def test_a_dead_kubelets_pod_may_be_left_for_a_reboot_but_not_for_a_reset(
    kube_server: KubeUnderTest,
    drain: DrainActivities,
    clock: JumpingClock,
    goal: DrainGoal,
    outcome: DrainOutcome,
) -> None:
    asked = await request(kube_server, goal, ready="Unknown")
    await kube_server.create_pod("train-0", node="node-a", owner=JOB, gpus=8)
    running = asyncio.create_task(drain.drain_node(asked))
    await until(terminating("train-0"), kube_server)
    clock.jump(asked.policy.dead_kubelet_grace + timedelta(minutes=1))
    if outcome is DrainOutcome.BLOCKED:
        clock.jump(asked.policy.deadline)
    report = await running
    assert report.outcome is outcome
    assert all("kubelet is dead" in each.reason for each in report.blockers)


async def test_a_node_found_empty_past_the_deadline_is_drained(
    kube_server: KubeUnderTest, drain: DrainActivities
) -> None:
    report = await drain.drain_node(await request(kube_server, deadline=timedelta()))
    assert report.outcome is DrainOutcome.DRAINED


async def test_nothing_is_evicted_past_the_deadline(kube_server: KubeUnderTest, drain: DrainActivities) -> None:
    asked = await request(kube_server, deadline=timedelta())
    await kube_server.create_pod("train-0", node="node-a", owner=JOB)
    report = await drain.drain_node(asked)
    assert (report.outcome, report.evicted) == (DrainOutcome.TIMED_OUT, ())
    assert [each.pod for each in report.blockers] == ["train-0"]


async def test_a_pod_that_its_controller_puts_back_each_time_is_not_evicted_for_ever(
    kube_server: KubeUnderTest, drain: DrainActivities, clock: JumpingClock
) -> None:
    asked = await request(kube_server)
    await kube_server.create_pod("held", node="node-a")
    clock.jump(timedelta(seconds=-10))
    running = asyncio.create_task(drain.drain_node(asked))
    for number in range(MOST_RETURNS):
        await kube_server.create_pod(f"back-{number}", node="node-a", owner=REPLICAS)
        await until(terminating(f"back-{number}"), kube_server)
        await kube_server.finish_pod(f"back-{number}")
    await kube_server.create_pod("back-again", node="node-a", owner=REPLICAS)
    clock.jump(timedelta(seconds=10) + asked.policy.deadline)
    report = await running
    assert (report.outcome, len(report.evicted)) == (DrainOutcome.BLOCKED, MOST_RETURNS)
    reasons = {each.pod: each.reason for each in report.blockers}
    assert "tolerates the cordon" in reasons["back-again"]


async def test_critical_pods_leave_last(kube_server: KubeUnderTest, drain: DrainActivities) -> None:
    asked = await request(kube_server)
    critical = {"containers": [{"name": "main", "image": "dns:1"}], "nodeName": "node-a"}
    owner = [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "dns", "uid": "u-dns", "controller": True}]
    if kube_server.is_real:
        pytest.skip("a real API server lets only its admission set a priority")
    await kube_server.request(
        "POST",
        "/api/v1/namespaces/default/pods",
        {
            "metadata": {"name": "a-dns", "ownerReferences": owner},
            "spec": {**critical, "priorityClassName": "system-cluster-critical", "priority": 2_000_000_000},
        },
    )
    await kube_server.set_pod_status("a-dns")
    await kube_server.create_pod("train-0", node="node-a", owner=JOB)
    async with kubelet(kube_server):
        report = await drain.drain_node(asked)
    assert report.evicted == ("default/train-0", "default/a-dns")


async def test_a_node_that_is_gone_or_another_one_ends_the_drain(
    kube_server: KubeUnderTest, drain: DrainActivities
) -> None:
    asked = await request(kube_server)
    await kube_server.create_pod("train-0", node="node-a", owner=JOB)
    other = asked.node.model_copy(update={"uid": "11111111-1111-1111-1111-111111111111"})
    report = await drain.drain_node(asked.model_copy(update={"node": other}))
    assert (report.outcome, report.evicted) == (DrainOutcome.NODE_GONE, ())


async def test_overload_without_a_cause_is_waited_out(
    kube_server: KubeUnderTest, drain: DrainActivities, clock: JumpingClock
) -> None:
    if kube_server.simulator is None:
        pytest.skip("a real API server is not overloaded on order")
    asked = await request(kube_server)
    await kube_server.create_pod("train-0", node="node-a", owner=JOB)
    kube_server.simulator.faults.add(RequestFault(method="POST", path="/eviction$", status=429, retry_after=1))
    kube_server.simulator.faults.add(RequestFault(method="GET", path="/nodes/", status=503))
    async with kubelet(kube_server):
        report = await drain.drain_node(asked)
    assert report.outcome is DrainOutcome.DRAINED


async def test_no_permission_to_evict_is_final(kube_server: KubeUnderTest, drain: DrainActivities) -> None:
    if kube_server.simulator is None:
        pytest.skip("a real API server forbids nothing here")
    asked = await request(kube_server)
    await kube_server.create_pod("train-0", node="node-a", owner=JOB)
    kube_server.simulator.faults.add(RequestFault(method="POST", path="/eviction$", status=403))
    with pytest.raises(FinalError, match="403"):
        await drain.drain_node(asked)


async def test_the_policys_rate_is_kept(
    kube_server: KubeUnderTest, drain: DrainActivities, clock: JumpingClock
) -> None:
    asked = await request(kube_server, evictions_per_minute=1)
    for number in range(3):
        await kube_server.create_pod(f"train-{number}", node="node-a", owner=JOB, grace=7200)
    report = await drain_until_deadline(drain, asked, clock, until(terminating("train-0"), kube_server))
    assert report.evicted == ("default/train-0",)


async def test_a_cancelled_drain_is_not_drained(kube_server: KubeUnderTest, drain: DrainActivities) -> None:
    asked = await request(kube_server)
    await kube_server.create_pod("train-0", node="node-a", owner=JOB, grace=7200)
    environment = scheduled_now()
    running = asyncio.ensure_future(environment.run(drain.drain_node, asked))
    await until(terminating("train-0"), kube_server)
    environment.cancel()
    report = await running
    assert (report.outcome, report.evicted) == (DrainOutcome.CANCELLED, ("default/train-0",))


async def test_a_workers_shutdown_leaves_the_drain_to_the_next_attempt(
    kube_server: KubeUnderTest, drain: DrainActivities
) -> None:
    asked = await request(kube_server)
    await kube_server.create_pod("train-0", node="node-a", owner=JOB, grace=7200)
    environment = scheduled_now()
    running = asyncio.ensure_future(environment.run(drain.drain_node, asked))
    await until(terminating("train-0"), kube_server)
    environment.cancel(ActivityCancellationDetails(worker_shutdown=True))
    with pytest.raises(asyncio.CancelledError):
        await running


async def test_heartbeats_tell_the_next_attempt_what_was_evicted(
    kube_server: KubeUnderTest, drain: DrainActivities
) -> None:
    asked = await request(kube_server)
    environment = scheduled_now()
    beats: list[tuple[Any, ...]] = []
    environment.on_heartbeat = lambda *details: beats.append(details)
    environment.info = replace(environment.info, heartbeat_details=[["default/earlier"]])
    report = await environment.run(drain.drain_node, asked)
    assert report.evicted == ("default/earlier",)
    assert beats[0] == (["default/earlier"],)
