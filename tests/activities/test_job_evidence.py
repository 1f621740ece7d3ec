"""Evidence of an ended attempt over a simulated API server, with pods' logs as its kubelets would serve them."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from aiohttp import web
from kubernetes.aio.client import ApiClient, Configuration

from activities import job_evidence
from activities.job_evidence import EvidenceRequest, JobEvidenceActivities
from activities.jobs import CreateAttempt, JobActivities
from activities.kube import read_text
from sickbay.training.attempts import AttemptLook, AttemptState, Placement
from sickbay.training.evidence import Ending, Evidence, LogState
from sickbay.training.verdicts import FailureClass
from simulator.kube.faults import RequestFault
from tests.activities.attempts import PLAN, QUERY, REF, SPEC, make_pod, served, set_status
from tests.kube_under_test import KubeUnderTest

pytestmark = pytest.mark.kube

BEGIN = datetime(2026, 11, 1, 11, tzinfo=UTC)
END = datetime(2026, 11, 1, 12, tzinfo=UTC)
LOST = b"step 41: loss 2.1\nRuntimeError: CUDA error: GPU has fallen off the bus\n"
BROKEN_PEER = b"step 41: loss 2.1\nncclRemoteError: remote process exited or there was a network error\n"


class Bench:
    """An attempt of two pods, of which the test says how they ended."""

    def __init__(self, kube: KubeUnderTest) -> None:
        self.kube = kube
        self.logs: dict[str, bytes] = {}
        self.jobs = JobActivities(kube.api_client())
        self.evidence = JobEvidenceActivities(kube.api_client())
        if kube.simulator is not None:
            kube.simulator.pod_logs = lambda _, name: self.logs.get(name)

    async def set_up(self) -> None:
        await self.jobs.create_attempt(CreateAttempt(spec=SPEC, plan=PLAN))
        for rank in (0, 1):
            await self.kube.create_node(f"node-{rank}")
            await self.ends(await make_pod(self.kube, rank, node=f"node-{rank}"), 1)

    async def ends(self, pod: str, code: int) -> None:
        ended = {"exitCode": code, "reason": "Error", "startedAt": stamp(BEGIN), "finishedAt": stamp(END)}
        status = {"name": "main", "state": {"terminated": ended}, "image": "", "imageID": "", "ready": False}
        await set_status(self.kube, pod, phase="Failed", containerStatuses=[{**status, "restartCount": 0}])

    def trouble(self, path: str, **fault: Any) -> None:
        """What goes wrong with requests on this path from now on; only the simulated server can be told so."""
        if self.kube.simulator is None:
            pytest.skip("a real API server has no trouble on order")
        self.kube.simulator.faults.add(RequestFault(path=path, times=1000, **fault))

    async def collect(self, look: AttemptLook | None = None, **values: Any) -> Evidence:
        fixed: dict[str, Any] = {"ending": Ending.FAILED, "ended_at": END, "deadline": timedelta(seconds=20), **values}
        look = look or await self.jobs.observe_attempt(QUERY)
        return await self.evidence.collect_evidence(EvidenceRequest(ref=REF, spec=SPEC, look=look, **fixed))


def stamp(at: datetime) -> str:
    return at.strftime("%Y-%m-%dT%H:%M:%SZ")


@pytest.fixture
async def bench(kube_server: KubeUnderTest) -> Bench:
    if kube_server.is_real:
        pytest.skip("a kube-apiserver without kubelets has no logs of pods")
    made = Bench(kube_server)
    await made.set_up()
    made.logs = {f"{REF.name}-0": BROKEN_PEER, f"{REF.name}-1": LOST}
    return made


def codes(evidence: Evidence, rank: int) -> list[str]:
    return [sign.code for each in evidence.ranks if each.rank == rank for sign in each.signs]


async def test_all_that_an_attempt_left_is_collected_and_classified(bench: Bench) -> None:
    found = await bench.collect(started_at=BEGIN, ran_before=True, resumed_from="s3://bucket/llama/step-20")
    assert found.missing == ()
    assert [(each.rank, each.node, each.exit_code, each.log, each.last_step) for each in found.ranks] == [
        (0, "node-0", 1, LogState.READ, 41),
        (1, "node-1", 1, LogState.READ, 41),
    ]
    assert (codes(found, 0)[0], codes(found, 1)[0]) == ("nccl-remote", "gpu-lost")
    assert [(node.node, node.ready, node.told) for node in found.nodes] == [
        ("node-0", True, True),
        ("node-1", True, True),
    ]
    assert (found.stepped, found.last_step, found.target_step) == (True, 41, SPEC.target.step)
    verdict = await bench.evidence.classify_failure(found)
    assert verdict.failure_class is FailureClass.PLATFORM
    assert [blame.node for blame in verdict.blamed] == ["node-1"]


async def test_what_the_workflow_knows_of_steps_outweighs_the_logs(bench: Bench) -> None:
    assert (await bench.collect(stepped=False)).stepped is False


async def test_a_log_that_cannot_be_had_is_missing_and_not_empty(bench: Bench) -> None:
    bench.trouble(f"/pods/{REF.name}-1/log", status=500)
    found = await bench.collect()
    assert [each.log for each in found.ranks] == [LogState.READ, LogState.UNAVAILABLE]
    (missing,) = found.missing
    assert missing.startswith(f"log of pod {REF.name}-1: ")


@pytest.mark.parametrize(
    ("path", "missing"),
    [("/pods$", "the pods: "), ("/events$", "events of the attempt: "), ("/nodes/node-0$", "node node-0: ")],
)
@pytest.mark.parametrize("fault", [{"status": 403}, {"status": 503}])
async def test_a_source_that_does_not_answer_is_told_and_the_rest_is_collected(
    bench: Bench, path: str, missing: str, fault: dict[str, int]
) -> None:
    look = await bench.jobs.observe_attempt(QUERY)
    bench.trouble(path, **fault)
    found = await bench.collect(look)
    assert any(each.startswith(missing) for each in found.missing)
    assert [each.rank for each in found.ranks] == [0, 1]
    assert [node.node for node in found.nodes] == ["node-0", "node-1"]
    assert all(node.told for node in found.nodes) is not path.startswith("/nodes")


async def test_the_deadline_holds_for_all_sources_together(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_evidence, "LOGS_AT_ONCE", 1)
    look = await bench.jobs.observe_attempt(QUERY)
    bench.trouble("/log$", latency=30)
    async with asyncio.timeout(10):
        found = await bench.collect(look, deadline=timedelta(seconds=0.5))
    assert [each.log for each in found.ranks] == [LogState.UNAVAILABLE] * 2
    assert [each.exit_code for each in found.ranks] == [1, 1]
    assert len(found.missing) == 2


async def test_pods_that_are_gone_are_known_from_the_last_look(bench: Bench) -> None:
    look = await bench.jobs.observe_attempt(QUERY)
    await bench.kube.finish_pod(f"{REF.name}-1")
    found = await bench.collect(look)
    assert [(each.rank, each.node, each.log) for each in found.ranks][1] == (1, "node-1", LogState.UNAVAILABLE)
    assert found.missing == (f"pod {REF.name}-1 is gone, with its log",)


async def test_a_node_that_is_gone_or_came_back_as_another_does_not_exist(bench: Bench) -> None:
    look = AttemptLook(
        observed_at=END,
        state=AttemptState.FAILED,
        placements=(
            Placement(rank=0, pod="p0", node="node-gone", node_uid="uid-9"),
            Placement(rank=1, pod="p1", node="node-1", node_uid="uid-of-before"),
        ),
    )
    found = await bench.collect(look)
    assert [(node.node, node.exists, node.ready) for node in found.nodes] == [
        ("node-0", True, True),
        ("node-1", False, False),
        ("node-gone", False, False),
    ]


async def test_what_events_say_of_the_attempt_counts_and_of_others_does_not(bench: Bench) -> None:
    for number, name in enumerate((f"{REF.name}-1", f"{REF.name}1-0", REF.name)):
        event = {
            "metadata": {"name": f"{name}.{number}"},
            "involvedObject": {"kind": "Pod", "name": name, "namespace": "default"},
            "reason": "NodeNotReady" if name != f"{REF.name}1-0" else "Preempted",
            "message": "Node is not ready",
            "firstTimestamp": stamp(END),
            "lastTimestamp": stamp(END),
            "source": {"component": "node-controller"},
        }
        await bench.kube.request("POST", "/api/v1/namespaces/default/events", event)
    assert [sign.code for sign in (await bench.collect()).cluster_signs] == ["node-not-ready"]


async def test_of_a_long_log_the_end_is_read(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_evidence, "LOG_BYTES", 4096)
    monkeypatch.setattr(job_evidence, "LOG_BYTES_LEAST", 4096)
    # 4000 lines of it are far more than may be asked for at once, and the server cuts what goes over at its end.
    bench.logs[f"{REF.name}-1"] = b"step 40: loss 2.1 %s\n" % (b"." * 80) * 9000 + LOST
    found = await bench.collect()
    assert "gpu-lost" in codes(found, 1)
    assert [each.log for each in found.ranks] == [LogState.READ, LogState.CUT]


async def test_of_too_many_pods_the_failed_ones_logs_are_read(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_evidence, "RANKS_MOST", 1)
    await bench.kube.set_pod_status(f"{REF.name}-0", phase="Running")
    found = await bench.collect()
    assert [each.log for each in found.ranks] == [LogState.UNAVAILABLE, LogState.READ]
    assert found.missing == ("logs of 1 pods: not read, since there are too many",)


async def test_a_pod_that_never_ran_has_an_empty_log(bench: Bench) -> None:
    await make_pod(bench.kube, 2, node="node-1", phase="Failed")
    await set_status(bench.kube, f"{REF.name}-2", reason="UnexpectedAdmissionError")
    found = await bench.collect()
    assert [each.log for each in found.ranks] == [LogState.READ, LogState.READ, LogState.EMPTY]
    assert found.missing == ()


async def test_of_a_log_without_end_no_more_is_held_than_was_asked_for() -> None:
    async def talks(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for number in range(200):
            await response.write(b"%06d " % number * 1000)
        return response

    async with (
        served(web.get("/log", talks)) as port,
        ApiClient(Configuration(host=f"http://127.0.0.1:{port}")) as api,
    ):
        assert await read_text(api, "/log", most=14) == b"000199 000199 "
