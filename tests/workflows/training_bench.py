"""Runs one training job on a real Temporal server against scripted attempts: what each shows, how its end is judged.

A script is a list of words for each attempt, one for each look: `pending`, `run`, `step N`, `durable N`, `fail`, `end`,
`evicted`, `absent`, `hang`, `slow`, or `hold`, which lasts until the watch is cancelled or a checkpoint is asked for.
"""

import asyncio
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from temporalio import activity
from temporalio.client import WorkflowHandle, WorkflowUpdateFailedError
from temporalio.exceptions import ApplicationError
from temporalio.testing import WorkflowEnvironment
from temporalio.worker import Worker

from activities.checkpoints import TargetLook, TargetQuery
from activities.host_jobs import AskCheckpoint, CheckpointAsked
from activities.job_evidence import EvidenceRequest
from activities.job_incidents import IncidentAnswer, NodeNamed, NodeReport, NodeReported, Told
from activities.job_watch import WatchAttempt
from activities.jobs import AttemptQuery, CapacityQuery, CheckpointPosted, CreateAttempt, PostCheckpoint, WaitGone
from sickbay.checkpoints.model import (
    Checkpoint,
    CheckpointFormat,
    CheckpointListing,
    CheckpointPlace,
    CheckpointQuery,
    Level,
)
from sickbay.names import job_id, node_queue
from sickbay.nodes import NodeRef
from sickbay.ranks.model import Hang, Pace, RanksLook, SlowCause, SlowRank
from sickbay.training.attempts import (
    AttemptCreated,
    AttemptGone,
    AttemptLook,
    AttemptPlan,
    AttemptState,
    CapacityLook,
    Placement,
    PodWait,
    WatchRequest,
)
from sickbay.training.evidence import Evidence
from sickbay.training.handshake import HurtReport
from sickbay.training.job import (
    JobCommand,
    JobCommandKind,
    JobInput,
    JobReply,
    JobResult,
    JobStage,
    JobView,
    Target,
    TrainingSpec,
)
from sickbay.training.verdicts import FailureVerdict
from tests.sickbay.training.records import verdict
from workflows.training_job import TrainingJob

HEARTBEAT_EVERY = timedelta(milliseconds=100)
MANIFEST = {
    "apiVersion": "batch/v1",
    "kind": "Job",
    "spec": {
        "parallelism": 2,
        "completions": 2,
        "template": {
            "spec": {
                "restartPolicy": "Never",
                "containers": [{"name": "main", "resources": {"limits": {"nvidia.com/gpu": 8}}}],
            }
        },
    },
}


def checkpoint(step: int, level: Level = Level.COMMITTED, attempt: int | None = None) -> Checkpoint:
    """A whole checkpoint, unless told otherwise."""
    return Checkpoint(step=step, path=f"/ck/{step}", format=CheckpointFormat.MANIFEST, level=level, attempt=attempt)


@dataclass
class FakeCluster:
    """What attempts show, and what was done to them."""

    scripts: list[list[str]] = field(default_factory=list)
    verdicts: list[FailureVerdict] = field(default_factory=list)
    """By failed attempt; the last one goes on."""
    checkpoints: list[Checkpoint] = field(default_factory=list)
    listing_complete: bool = True
    fitting: tuple[str, ...] = ("n1", "n2", "n3", "n4")
    obeys: bool = True
    """Ranks write a checkpoint when they are asked."""
    target_marker: bool = False
    stays: bool = False
    """Pods do not go."""
    foreign: str = ""
    fails: dict[str, ApplicationError] = field(default_factory=dict)
    plans: list[AttemptPlan] = field(default_factory=list)
    acts: Counter[str] = field(default_factory=Counter)
    log: list[str] = field(default_factory=list)
    answers: list[str] = field(default_factory=list)
    reported: list[str] = field(default_factory=list)
    hurt: list[HurtReport] = field(default_factory=list)
    evidence: list[EvidenceRequest] = field(default_factory=list)
    asked: asyncio.Event = field(default_factory=asyncio.Event)
    alive: set[int] = field(default_factory=set)
    """Attempts whose pods are there."""
    step: int = 0

    def _begin(self, name: str) -> None:
        self.acts[name] += 1
        self.log.append(name)
        if error := self.fails.get(name):
            raise error

    @activity.defn
    async def list_checkpoints(self, query: CheckpointQuery) -> CheckpointListing:
        self._begin("list_checkpoints")
        newest = tuple(sorted(self.checkpoints, key=lambda one: -one.step))
        problems = () if self.listing_complete else ("access is denied",)
        return CheckpointListing(
            observed_at=datetime.now(UTC), complete=self.listing_complete, checkpoints=newest, problems=problems
        )

    @activity.defn
    async def target_reached(self, query: TargetQuery) -> TargetLook:
        self._begin("target_reached")
        step = query.target.step
        if step is not None and query.newest_step is not None and query.newest_step >= step:
            return TargetLook(reached=True, proof=f"step {query.newest_step}")
        return TargetLook(reached=self.target_marker, proof="the marker is there" if self.target_marker else "")

    @activity.defn
    async def look_at_capacity(self, query: CapacityQuery) -> CapacityLook:
        self._begin("look_at_capacity")
        off = {each.node for each in query.exclusions if not each.soft}
        fitting = tuple(node for node in self.fitting if node not in off)
        return CapacityLook(observed_at=datetime.now(UTC), fitting=fitting)

    @activity.defn
    async def create_attempt(self, request: CreateAttempt) -> AttemptCreated:
        self._begin("create_attempt")
        if self.foreign:
            return AttemptCreated(foreign=self.foreign)
        assert not self.alive, "two attempts at once"
        self.alive.add(request.plan.ref.attempt)
        self.plans.append(request.plan)
        return AttemptCreated(uid=f"uid-{request.plan.ref.attempt}")

    @activity.defn
    async def watch_attempt(self, watched: WatchAttempt) -> AttemptLook:
        self._begin("watch_attempt")
        script = self.scripts[self.plans[-1].ref.attempt - 1] if len(self.scripts) >= len(self.plans) else []
        word = script.pop(0) if script and script[0] != "hold" else "hold"
        if word == "hold":
            word = await self._held(watched.request)
        return self._look(word)

    async def _held(self, request: WatchRequest) -> str:
        """Nothing happens, until a checkpoint is asked for, or one has come that the watcher does not know."""
        while not self.asked.is_set():
            known = max((one.step for one in self.checkpoints), default=0)
            if known > (request.newest_step or 0) or datetime.now(UTC) >= request.until:
                return "step 0"
            activity.heartbeat()
            await asyncio.sleep(0.02)
        self.asked.clear()
        highest = max((one.step for one in self.checkpoints), default=self.step)
        return f"durable {highest + 1}" if self.obeys else "step 0"

    def _look(self, word: str) -> AttemptLook:
        kind, _, number = word.partition(" ")
        now = datetime.now(UTC)
        state = {
            "pending": AttemptState.PENDING,
            "fail": AttemptState.FAILED,
            "end": AttemptState.ENDED,
            "evicted": AttemptState.EVICTED,
            "absent": AttemptState.ABSENT,
        }.get(kind, AttemptState.RUNNING)
        if kind in ("step", "durable") and int(number):
            self.step = int(number)
        if kind == "durable":
            self.checkpoints.append(checkpoint(self.step, attempt=self.plans[-1].ref.attempt))
        ranks = RanksLook(observed_at=now, reporting=2, step=self.step or None, step_at=now if self.step else None)
        if self.step:
            ranks = ranks.model_copy(update={"first_step_at": now})
        if kind == "hang":
            hang = Hang(since=now, last_step=self.step, limit=timedelta(minutes=5))
            ranks = ranks.model_copy(update={"hang": hang})
        if kind == "dear":
            ranks = ranks.model_copy(update={"pace": Pace(step=timedelta(hours=1))})
        if kind in ("slow", "dear"):
            slow = SlowRank(rank=1, node="n2", cause=SlowCause.COMPUTE, slowdown=1.5, since=now, evidence=("it lags",))
            ranks = ranks.model_copy(update={"slow": (slow,)})
        waits = (PodWait(pod="p", reason="Unschedulable", capacity=True),) if kind == "pending" else ()
        newest = max(self.checkpoints, key=lambda one: one.step, default=None)
        plan = self.plans[-1]
        nodes = [node for node in self.fitting if node not in {each.node for each in plan.exclusions}][: plan.nodes]
        placements = tuple(
            Placement(rank=rank, pod=f"{plan.ref.name}-{rank}", pod_uid=f"{rank}", node=node, node_uid=f"uid-{node}")
            for rank, node in enumerate(nodes)
        )
        return AttemptLook(
            observed_at=now,
            state=state,
            why=word,
            pods=plan.nodes,
            running=plan.nodes if state is AttemptState.RUNNING else 0,
            placements=placements,
            waits=waits,
            running_since=now if state is AttemptState.RUNNING else None,
            ranks=ranks if state is AttemptState.RUNNING else None,
            newest=newest,
        )

    @activity.defn
    async def observe_attempt(self, query: AttemptQuery) -> AttemptLook:
        self._begin("observe_attempt")
        return self._look("run")

    @activity.defn
    async def delete_attempt(self, query: AttemptQuery) -> AttemptGone:
        self._begin("delete_attempt")
        if not self.stays:
            self.alive.discard(query.ref.attempt)
        return AttemptGone(gone=not self.alive)

    @activity.defn
    async def wait_attempt_gone(self, request: WaitGone) -> AttemptGone:
        self._begin("wait_attempt_gone")
        left = () if not self.stays else (Placement(rank=0, pod="p0", node="n1"),)
        return AttemptGone(gone=not self.stays, left=left)

    @activity.defn
    async def post_checkpoint(self, request: PostCheckpoint) -> CheckpointPosted:
        self._begin("post_checkpoint")
        return CheckpointPosted(taken=0, why="no pod listens")

    @activity.defn
    async def collect_evidence(self, request: EvidenceRequest) -> Evidence:
        self._begin("collect_evidence")
        self.evidence.append(request)
        return Evidence(attempt=request.ref.attempt, ending=request.ending, past=request.past)

    @activity.defn
    async def classify_failure(self, evidence: Evidence) -> FailureVerdict:
        self._begin("classify_failure")
        return self.verdicts.pop(0) if len(self.verdicts) > 1 else self.verdicts[0] if self.verdicts else verdict()

    @activity.defn
    async def answer_incident(self, request: IncidentAnswer) -> Told:
        self._begin("answer_incident")
        self.answers.append(f"{request.incident_id} {request.answer.kind}")
        return Told(open=True)

    @activity.defn
    async def report_node(self, report: NodeReport) -> NodeReported:
        self._begin("report_node")
        self.reported.append(f"{report.node} {report.faults[0].code}")
        return NodeReported(incident_id=f"incident-{report.node}")

    @activity.defn
    async def name_node(self, request: NodeNamed) -> NodeReported:
        self._begin("name_node")
        return NodeReported(node=NodeRef(cluster=request.cluster, name=request.node, uid=f"uid-{request.node}"))

    @activity.defn
    async def tell_suspicions(self, report: HurtReport) -> Told:
        self._begin("tell_suspicions")
        self.hurt.append(report)
        return Told(open=True)

    @activity.defn
    async def ask_checkpoint(self, request: AskCheckpoint) -> CheckpointAsked:
        self._begin("ask_checkpoint")
        self.asked.set()
        return CheckpointAsked(taken=True)

    @property
    def activities(self) -> list[Callable[..., Any]]:
        """Those of the controller's queue."""
        return [
            self.list_checkpoints,
            self.target_reached,
            self.look_at_capacity,
            self.create_attempt,
            self.watch_attempt,
            self.observe_attempt,
            self.delete_attempt,
            self.wait_attempt_gone,
            self.post_checkpoint,
            self.collect_evidence,
            self.classify_failure,
            self.answer_incident,
            self.report_node,
            self.name_node,
            self.tell_suspicions,
        ]


@dataclass
class TrainingBench:
    """One job under test."""

    environment: WorkflowEnvironment
    cluster: FakeCluster
    queue: str
    start_input: JobInput
    handle: WorkflowHandle[Any, JobResult] = field(init=False)

    async def start(self) -> None:
        spec = self.start_input.spec
        self.handle = await self.environment.client.start_workflow(
            TrainingJob.run,
            self.start_input,
            id=job_id(self.start_input.cluster, spec.namespace, spec.name),
            task_queue=self.queue,
        )

    async def result(self) -> JobResult:
        """Its end, which must come."""
        return await asyncio.wait_for(self.handle.result(), 60)

    async def view(self) -> JobView:
        return await self.handle.query(TrainingJob.view)

    async def until(self, reached: JobStage | Callable[[JobView], bool]) -> JobView:
        """Wait until the job shows this."""
        async with asyncio.timeout(60):
            while True:
                view = await self.view()
                if view.stage is reached if isinstance(reached, JobStage) else reached(view):
                    return view
                await asyncio.sleep(0.03)

    async def until_act(self, name: str, count: int = 1) -> None:
        """Wait until an activity has begun, for the `count`th time."""
        async with asyncio.timeout(60):
            while self.cluster.acts[name] < count:  # noqa: ASYNC110 - what it waits for is in a worker
                await asyncio.sleep(0.02)

    async def say(self, kind: JobCommandKind, **values: Any) -> JobReply:
        """An order by update."""
        command = JobCommand(kind=kind, **{"by": "ada", "reason": "looked at it", **values})
        return await self.handle.execute_update(TrainingJob.command, command)

    async def refused(self, kind: JobCommandKind, **values: Any) -> str:
        """Why an order is refused."""
        with pytest.raises(WorkflowUpdateFailedError) as caught:
            await self.say(kind, **values)
        cause = caught.value.cause
        assert isinstance(cause, ApplicationError)
        assert cause.type == "CommandRefused"
        return cause.message


TrainingBench.__test__ = False  # type: ignore[attr-defined]


@asynccontextmanager
async def training_bench(
    environment: WorkflowEnvironment, *scripts: list[str], spec: dict[str, Any] | None = None, **cluster: Any
) -> AsyncIterator[TrainingBench]:
    """A bench with its own cluster and queue; `spec` are fields of the job's spec."""
    unique = uuid.uuid4().hex[:8]
    fake = FakeCluster(scripts=[list(script) for script in scripts], **cluster)
    queue = f"jobs-{unique}"
    needed: dict[str, Any] = {
        "name": f"run-{unique}",
        "manifest": MANIFEST,
        "checkpoints": CheckpointPlace(url="/ck"),
        "target": Target(step=100),
    }
    start = JobInput(
        cluster=f"c{unique}",
        spec=TrainingSpec(**{**needed, **(spec or {})}),
        submitted_by="ada",
        submitted_at=datetime.now(UTC),
    )
    client = environment.client
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(
            Worker(
                client,
                task_queue=queue,
                workflows=[TrainingJob],
                activities=fake.activities,
                max_cached_workflows=50,
                max_heartbeat_throttle_interval=HEARTBEAT_EVERY,
                default_heartbeat_throttle_interval=HEARTBEAT_EVERY,
            )
        )
        for node in ("n1", "n2", "n3", "n4"):
            await stack.enter_async_context(
                Worker(client, task_queue=node_queue(node), activities=[fake.ask_checkpoint])
            )
        yield TrainingBench(environment, fake, queue, start)
