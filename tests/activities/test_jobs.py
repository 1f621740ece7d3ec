"""Attempts made, looked at, removed and proven gone, against a simulated and a real API server."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest
from aiohttp import ClientTimeout, web
from kubernetes.aio.client import ApiClient, Configuration

from activities import job_hooks, job_reads
from activities.errors import FinalError, PassingError
from activities.job_removal import Teardown
from activities.jobs import CapacityQuery, CreateAttempt, JobActivities, PostCheckpoint, WaitGone
from sickbay import names
from sickbay.training import manifests
from sickbay.training.attempts import AttemptState, Placement
from sickbay.training.job import CheckpointHook
from simulator.kube.faults import RequestFault
from simulator.kube.requests import MERGE_PATCH
from tests.activities.attempts import JOBS, PLAN, PODS, QUERY, REF, SPEC, exists, make_pod, served, set_status
from tests.kube_under_test import KubeUnderTest
from tests.sickbay.training.manifests.given import NOW, keeps_off, put

pytestmark = pytest.mark.kube

CREATE = CreateAttempt(spec=SPEC, plan=PLAN)
SOON, NEVER = timedelta(seconds=30), timedelta()
OTHER_RUN = REF.model_copy(update={"fence": "run-0"})


@pytest.fixture
def jobs(kube_server: KubeUnderTest) -> JobActivities:
    return JobActivities(kube_server.api_client(), look_every=timedelta(milliseconds=20))


async def job_of(kube: KubeUnderTest, name: str = REF.name) -> dict[str, Any]:
    return await kube.request("GET", f"{JOBS}/{name}")


def wait(*placements: Placement, deadline: timedelta = NEVER) -> WaitGone:
    return WaitGone(query=QUERY, placements=placements, deadline=deadline)


# Creation


async def test_an_attempt_is_made_once_however_often_it_is_asked_for(
    kube_server: KubeUnderTest, jobs: JobActivities
) -> None:
    first = await jobs.create_attempt(CREATE)
    assert await jobs.create_attempt(CREATE) == first
    made = await job_of(kube_server)
    assert (made["metadata"]["uid"], made["metadata"]["annotations"][names.ANNOTATION_FENCE]) == (first.uid, "run-1")
    assert (made["spec"]["parallelism"], made["spec"]["backoffLimit"]) == (2, 0)


async def test_an_attempt_whose_answer_was_lost_is_found_again(kube_server: KubeUnderTest, jobs: JobActivities) -> None:
    if kube_server.simulator is None:
        pytest.skip("a real API server loses no answers on order")
    kube_server.simulator.faults.add(RequestFault(method="POST", path="/jobs", status=504, after_work=True))
    with pytest.raises(PassingError):
        await jobs.create_attempt(CREATE)
    uid = (await job_of(kube_server))["metadata"]["uid"]
    assert (await jobs.create_attempt(CREATE)).uid == uid


@pytest.mark.parametrize(("fence", "told"), [("run-0", "bears the fence run-0"), ("", "is nobody's of Sickbay")])
async def test_a_foreign_object_of_that_name_is_told_and_never_touched(
    kube_server: KubeUnderTest, jobs: JobActivities, fence: str, told: str
) -> None:
    await jobs.create_attempt(CREATE)
    mark = {"metadata": {"annotations": {names.ANNOTATION_FENCE: fence or None}}}
    before = await kube_server.request("PATCH", f"{JOBS}/{REF.name}", mark, MERGE_PATCH)
    assert told in (await jobs.create_attempt(CREATE)).foreign
    assert (await jobs.observe_attempt(QUERY)).state is AttemptState.ABSENT
    assert (await jobs.delete_attempt(QUERY)).gone
    assert (await job_of(kube_server))["metadata"]["uid"] == before["metadata"]["uid"]


async def test_no_attempt_begins_beside_pods_of_another_run_that_may_still_write(
    kube_server: KubeUnderTest, jobs: JobActivities
) -> None:
    name = await make_pod(kube_server, ref=OTHER_RUN, node="node-a")
    refused = await jobs.create_attempt(CREATE)
    assert "1 pod(s) of another run" in refused.foreign
    assert name in refused.foreign
    await kube_server.set_pod_status(name, phase="Failed")
    assert (await jobs.create_attempt(CREATE)).uid


async def test_what_the_server_refuses_for_good_is_final(kube_server: KubeUnderTest, jobs: JobActivities) -> None:
    broken = SPEC.model_copy(update={"manifest": put(SPEC.manifest, "spec.template.spec.containers.0.name", "No Name")})
    if kube_server.simulator is not None:
        kube_server.simulator.faults.add(RequestFault(method="POST", path="/jobs", status=422))
    with pytest.raises(FinalError):
        await jobs.create_attempt(CREATE.model_copy(update={"spec": broken}))


async def test_a_namespaces_quota_is_waited_for() -> None:
    words = "exceeded quota: gpus, requested: count/jobs.batch=1, used: 5, limited: 5"

    async def refuses_jobs(request: web.Request) -> web.Response:
        if request.method == "POST":
            return web.json_response({"kind": "Status", "reason": "Forbidden", "message": words}, status=403)
        if request.path.endswith("/pods"):
            return web.json_response({"items": []})
        missing = {"kind": "Status", "reason": "NotFound", "details": {"name": REF.name}}
        return web.json_response(missing, status=404)

    async with (
        served(web.route("*", "/{rest:.*}", refuses_jobs)) as port,
        ApiClient(Configuration(host=f"http://127.0.0.1:{port}")) as api,
    ):
        with pytest.raises(PassingError, match="exceeded quota"):
            await JobActivities(api).create_attempt(CREATE)


# Looks


async def test_a_look_shows_the_pods_where_they_are(kube_server: KubeUnderTest, jobs: JobActivities) -> None:
    assert (await jobs.observe_attempt(QUERY)).state is AttemptState.ABSENT
    await jobs.create_attempt(CREATE)
    pending = await jobs.observe_attempt(QUERY)
    assert (pending.state, pending.why) == (AttemptState.PENDING, "2 of 2 pods: NotCreated")
    for rank in (0, 1):
        await kube_server.create_node(f"node-{rank}")
        await make_pod(kube_server, rank, node=f"node-{rank}")
    await make_pod(kube_server, 0, ref=OTHER_RUN, node="node-1", suffix="-old")
    seen = await jobs.observe_attempt(QUERY)
    assert seen.state is AttemptState.RUNNING
    assert [(each.rank, each.node, each.boot_id) for each in seen.placements] == [
        (0, "node-0", "boot-1"),
        (1, "node-1", "boot-1"),
    ]


async def test_many_nodes_are_read_as_one_list(
    kube_server: KubeUnderTest, jobs: JobActivities, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_reads, "SINGLY", 1)
    await kube_server.create_node("node-0")
    api = kube_server.api_client()
    found = await job_reads.nodes_named(api, ["node-0", "gone", "", "node-0"])
    assert sorted((name, node is None) for name, node in found.items()) == [("gone", True), ("node-0", False)]


async def test_a_controller_that_may_not_make_pods_is_quoted(kube_server: KubeUnderTest, jobs: JobActivities) -> None:
    uid = (await jobs.create_attempt(CREATE)).uid
    for number, (at, of) in enumerate((("12:00:02", uid), ("12:00:01", uid), ("12:00:09", "another"))):
        event = {
            "metadata": {"name": f"{REF.name}.{number}"},
            "involvedObject": {"kind": "Job", "name": REF.name, "namespace": "default", "uid": of},
            "reason": "FailedCreate",
            "message": f"pods is forbidden: exceeded quota: {at}",
            "firstTimestamp": f"2026-11-01T{at}Z",
            "lastTimestamp": f"2026-11-01T{at}Z",
            "source": {"component": "job-controller"},
        }
        await kube_server.request("POST", "/api/v1/namespaces/default/events", event)
    (waits,) = (await jobs.observe_attempt(QUERY)).waits
    assert (waits.message, waits.capacity) == ("pods is forbidden: exceeded quota: 12:00:02", True)


# Removal


async def test_an_attempt_is_removed_with_its_pods_and_nothing_else(
    kube_server: KubeUnderTest, jobs: JobActivities
) -> None:
    await jobs.create_attempt(CREATE)
    ours = await make_pod(kube_server, 0)
    next_attempt = await make_pod(kube_server, 0, ref=REF.model_copy(update={"attempt": 4}))
    other_run = await make_pod(kube_server, 0, ref=OTHER_RUN, suffix="-old")
    # It may be ours; it goes with its owner.
    bare = await make_pod(kube_server, 1, suffix="-bare", annotations={names.ANNOTATION_FENCE: ""})
    await kube_server.request(
        "PATCH", f"{PODS}/{bare}", {"metadata": {"annotations": {names.ANNOTATION_FENCE: None}}}, MERGE_PATCH
    )
    for _ in range(2):
        left = await jobs.delete_attempt(QUERY)
        assert not await exists(kube_server, JOBS, REF.name)
        assert [await exists(kube_server, PODS, name) for name in (ours, next_attempt, other_run, bare)] == [
            False,
            True,
            True,
            True,
        ]
    assert bare in [place.pod for place in left.left]


async def test_a_pod_that_a_budget_holds_is_told_as_left(kube_server: KubeUnderTest, jobs: JobActivities) -> None:
    name = await make_pod(kube_server, node="node-a")
    await kube_server.create_budget("held", labels={names.LABEL_JOB: REF.job}, allowed=0)
    await kube_server.create_node("node-a")
    left = await jobs.delete_attempt(QUERY)
    assert (left.gone, [place.pod for place in left.left]) == (False, [name])
    assert await exists(kube_server, PODS, name)


async def test_a_pod_that_is_only_deleted_is_not_gone(kube_server: KubeUnderTest, jobs: JobActivities) -> None:
    await kube_server.create_node("node-a", ready="Unknown")
    name = await make_pod(kube_server, node="node-a")
    await jobs.delete_attempt(QUERY)
    seen = await jobs.wait_attempt_gone(wait())
    assert (seen.gone, [place.pod for place in seen.left], seen.fenced) == (False, [name], ())


async def test_the_wait_ends_when_the_last_pod_is_gone(kube_server: KubeUnderTest, jobs: JobActivities) -> None:
    await kube_server.create_node("node-a")
    name = await make_pod(kube_server, node="node-a")
    waiting = asyncio.create_task(jobs.wait_attempt_gone(wait(deadline=SOON)))
    await jobs.delete_attempt(QUERY)
    assert not waiting.done()
    await kube_server.finish_pod(name)
    seen = await waiting
    assert (seen.gone, seen.left) == (True, ())


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
async def test_a_pod_that_has_ended_writes_no_more(kube_server: KubeUnderTest, jobs: JobActivities, phase: str) -> None:
    await make_pod(kube_server, node="node-a", phase=phase)
    assert (await jobs.wait_attempt_gone(wait())).gone


async def test_a_machine_that_is_gone_or_was_started_anew_fences_its_pod(
    kube_server: KubeUnderTest, jobs: JobActivities
) -> None:
    made = await kube_server.create_node("node-b", ready="Unknown", boot_id="boot-2")
    await make_pod(kube_server, 0, node="node-gone")
    name = await make_pod(kube_server, 1, node="node-b")
    uid = (await kube_server.request("GET", f"{PODS}/{name}"))["metadata"]["uid"]
    place = Placement(rank=1, pod=name, pod_uid=uid, node="node-b", node_uid=made["metadata"]["uid"], boot_id="boot-2")
    seen = await jobs.wait_attempt_gone(wait(place))
    assert (seen.gone, seen.fenced) == (False, ("node-gone",))
    seen = await jobs.wait_attempt_gone(wait(place.model_copy(update={"boot_id": "boot-1"})))
    assert (seen.gone, seen.fenced) == (True, ("node-gone", "node-b"))


async def test_a_pod_deleted_by_force_from_a_silent_node_is_still_there(kube_server: KubeUnderTest) -> None:
    await kube_server.create_node("node-a", ready="Unknown")
    name = await make_pod(kube_server, node="node-a")
    adapter = manifests.adapter_of(SPEC.manifest)
    teardown = Teardown(kube_server.api_client(), adapter, REF)
    assert not (await teardown.look()).gone
    await kube_server.finish_pod(name)
    for _ in range(2):
        seen = await teardown.look()
        assert (seen.gone, [place.pod for place in seen.left]) == (False, [name])
    # Its kubelet is back, and has ended what the server no longer knows.
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": ""}
    await kube_server.set_node_status("node-a", {"conditions": [ready]})
    assert (await teardown.look()).gone


async def test_an_api_server_that_is_away_for_a_moment_does_not_end_the_wait(
    kube_server: KubeUnderTest, jobs: JobActivities
) -> None:
    if kube_server.simulator is None:
        pytest.skip("a real API server is not away on order")
    kube_server.simulator.faults.add(RequestFault(method="GET", path="/pods", status=503, times=3))
    assert (await jobs.wait_attempt_gone(wait(deadline=SOON))).gone


# Room


async def test_room_is_where_a_well_node_has_free_gpus(kube_server: KubeUnderTest) -> None:
    jobs = JobActivities(kube_server.api_client(), clock=lambda: NOW)
    bad = {"type": names.CONDITION_GPU, "status": "False"}
    unsure = {"type": names.CONDITION_FABRIC, "status": "Unknown"}
    taint = {"key": "team", "value": "x", "effect": "NoSchedule"}
    await kube_server.create_node("free")
    await kube_server.create_node("own")
    await make_pod(kube_server, node="own", gpus=8)
    await kube_server.create_node("other")
    await kube_server.create_pod("other-job", node="other", gpus=1)
    await kube_server.create_node("done")
    await kube_server.create_pod("done-job", node="done", gpus=8, phase="Succeeded")
    await kube_server.create_node("sick", conditions=[bad])
    await kube_server.create_node("unsure", conditions=[unsure])
    await kube_server.create_node("cordoned", unschedulable=True)
    await kube_server.create_node("away", ready="Unknown")
    await kube_server.create_node("tainted", taints=[taint])
    await kube_server.create_node("off")
    seen = await jobs.look_at_capacity(CapacityQuery(ref=REF, spec=SPEC, exclusions=(keeps_off("off"),)))
    assert seen.fitting == ("done", "free", "own")
    told = dict(each.split(": ", 1) for each in seen.unfit)
    assert told["other"] == "7 of 8 GPUs are free"
    assert {"sick", "unsure", "cordoned", "away", "tainted", "off"} <= told.keys()


# The hook

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


async def takes(_: web.Request) -> web.Response:
    return web.Response(text="on it")


async def refuses(_: web.Request) -> web.Response:
    return web.Response(status=503)


async def sends_elsewhere(_: web.Request) -> web.Response:
    raise web.HTTPFound("http://127.0.0.1:9/")


async def says_nothing(_: web.Request) -> web.Response:
    await asyncio.sleep(60)
    return web.Response()


@pytest.mark.parametrize(
    ("answer", "taken", "why"),
    [
        (takes, 1, "127.0.0.9"),
        (refuses, 0, "127.0.0.1 answered 503"),
        (sends_elsewhere, 0, "127.0.0.1 answered 302"),
        (says_nothing, 0, "127.0.0.1"),
    ],
)
async def test_every_running_pod_is_asked_and_none_holds_the_others_up(
    kube_server: KubeUnderTest,
    jobs: JobActivities,
    monkeypatch: pytest.MonkeyPatch,
    answer: Answer,
    taken: int,
    why: str,
) -> None:
    monkeypatch.setattr(job_hooks, "POST_TIMEOUT", ClientTimeout(total=0.5))
    for rank, address in enumerate(("127.0.0.1", "127.0.0.9")):
        await set_status(kube_server, await make_pod(kube_server, rank, node="node-a"), podIP=address)
    await make_pod(kube_server, 2, phase="Pending")
    async with served(web.post("/checkpoint", answer)) as port:
        posted = await jobs.post_checkpoint(PostCheckpoint(query=QUERY, hook=CheckpointHook(http_port=port)))
    assert posted.taken == taken
    assert why in posted.why


async def test_a_job_without_a_hook_or_without_pods_says_so(jobs: JobActivities) -> None:
    none = await jobs.post_checkpoint(PostCheckpoint(query=QUERY, hook=CheckpointHook()))
    assert (none.taken, none.why) == (0, "the job names no HTTP hook")
    nobody = await jobs.post_checkpoint(PostCheckpoint(query=QUERY, hook=CheckpointHook(http_port=8080)))
    assert (nobody.taken, nobody.why) == (0, "no pod runs")
