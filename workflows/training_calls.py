"""The activities of a training job, each with its timeouts, retries and the summary that people read on the timeline.

Called by the training workflow and its parts. No decisions. What a failed activity means is in `outside`.
"""

from collections.abc import Awaitable
from datetime import datetime, timedelta
from typing import Final, TypeVar

from temporalio import workflow
from temporalio.workflow import ActivityCancellationType

from activities.checkpoints import CheckpointActivities, TargetLook, TargetQuery
from activities.host_jobs import AskCheckpoint, HostJobActivities
from activities.job_evidence import EvidenceRequest, JobEvidenceActivities
from activities.job_incidents import (
    IncidentAnswer,
    JobIncidentActivities,
    NodeNamed,
    NodeReport,
)
from activities.job_watch import JobWatchActivities, WatchAttempt
from activities.jobs import AttemptQuery, CapacityQuery, CreateAttempt, JobActivities, PostCheckpoint, WaitGone
from sickbay.checkpoints.model import Checkpoint, CheckpointListing, CheckpointQuery
from sickbay.faults import Fault
from sickbay.names import node_queue
from sickbay.nodes import NodeRef
from sickbay.training.attempts import (
    AttemptCreated,
    AttemptGone,
    AttemptLook,
    AttemptPlan,
    AttemptRef,
    CapacityLook,
    Exclusion,
    Placement,
    WatchRequest,
)
from sickbay.training.evidence import Evidence
from sickbay.training.handshake import HurtReport, JobAnswer
from sickbay.training.job import TrainingSpec
from sickbay.training.verdicts import FailureVerdict
from workflows import policies
from workflows.outside import HostSilentError, OutsideError, told

T = TypeVar("T")

ASK_PICKUP: Final = timedelta(seconds=20)
"""How long a node's own worker may take to pick the request for a checkpoint up, before another node is asked."""


class TrainingCalls:
    """All that one job asks of the world."""

    def __init__(self, job_id: str, cluster: str, spec: TrainingSpec) -> None:
        self._job_id = job_id
        self._cluster = cluster
        self._spec = spec

    async def list_checkpoints(self, attempts: tuple[int, ...], known: tuple[Checkpoint, ...]) -> CheckpointListing:
        """All checkpoints of the job."""
        return await told(
            workflow.execute_activity_method(
                CheckpointActivities.list_checkpoints,
                self.checkpoint_query(attempts, known),
                **policies.LISTING,
                summary="list the checkpoints",
            )
        )

    def checkpoint_query(self, attempts: tuple[int, ...], known: tuple[Checkpoint, ...]) -> CheckpointQuery:
        """What a listing looks at; each attempt's own place, where they have one."""
        place = self._spec.checkpoints
        return CheckpointQuery(place=place, attempts=attempts if place.per_attempt else (), known=known)

    async def target(self, attempts: tuple[int, ...], newest_step: int | None) -> TargetLook:
        """Whether the job is done."""
        query = TargetQuery(
            target=self._spec.target, place=self._spec.checkpoints, attempts=attempts, newest_step=newest_step
        )
        return await told(
            workflow.execute_activity_method(
                CheckpointActivities.target_reached, query, **policies.LISTING, summary="is the target reached?"
            )
        )

    async def capacity(self, ref: AttemptRef, exclusions: tuple[Exclusion, ...]) -> CapacityLook:
        """Where pods could run now."""
        return await told(
            workflow.execute_activity_method(
                JobActivities.look_at_capacity,
                CapacityQuery(ref=ref, spec=self._spec, exclusions=exclusions),
                **policies.LOOK,
                summary="which nodes fit",
            )
        )

    async def create(self, plan: AttemptPlan) -> AttemptCreated:
        """Make the attempt's object."""
        return await told(
            workflow.execute_activity_method(
                JobActivities.create_attempt,
                CreateAttempt(spec=self._spec, plan=plan),
                **policies.LOOK,
                summary=f"create {plan.ref.name} on {plan.nodes} node(s)",
            )
        )

    def start_watch(self, request: WatchRequest) -> "workflow.ActivityHandle[AttemptLook]":
        """Watch the attempt; cancel the handle to stop."""
        span = max(request.until - workflow.now(), timedelta(seconds=1))
        return workflow.start_activity_method(
            JobWatchActivities.watch_attempt,
            WatchAttempt(spec=self._spec, request=request),
            **policies.waiting(span, policies.PATIENT),
            cancellation_type=ActivityCancellationType.TRY_CANCEL,
            summary=f"watch {request.ref.name}",
        )

    async def collect(self, request: EvidenceRequest) -> Evidence:
        """What an ended attempt left."""
        return await told(
            workflow.execute_activity_method(
                JobEvidenceActivities.collect_evidence,
                request,
                **policies.waiting(request.deadline, policies.HOST_ONCE),
                summary=f"collect evidence of {request.ref.name}",
            )
        )

    async def classify(self, evidence: Evidence) -> FailureVerdict:
        """What it means."""
        return await told(
            workflow.execute_activity_method(
                JobEvidenceActivities.classify_failure,
                evidence,
                **policies.LOOK,
                summary=f"classify the end of attempt {evidence.attempt}",
            )
        )

    async def delete(self, ref: AttemptRef) -> AttemptGone:
        """Remove the attempt's objects."""
        return await told(
            workflow.execute_activity_method(
                JobActivities.delete_attempt,
                AttemptQuery(ref=ref, spec=self._spec),
                **policies.UNDO,
                summary=f"delete {ref.name}",
            )
        )

    async def wait_gone(self, ref: AttemptRef, placements: tuple[Placement, ...], deadline: timedelta) -> AttemptGone:
        """Wait until it can write no more."""
        return await told(
            workflow.execute_activity_method(
                JobActivities.wait_attempt_gone,
                WaitGone(query=AttemptQuery(ref=ref, spec=self._spec), placements=placements, deadline=deadline),
                **policies.waiting(deadline, policies.PATIENT),
                summary=f"wait until {ref.name} is gone",
            )
        )

    async def ask_checkpoint(self, ref: AttemptRef, node: str, request_id: str) -> str:
        """Ask the ranks on one node for a checkpoint; why that failed, in words."""
        request = AskCheckpoint(job=ref.full_job, attempt=ref.attempt, request_id=request_id)
        try:
            asked = await told(
                workflow.execute_activity_method(
                    HostJobActivities.ask_checkpoint,
                    request,
                    task_queue=node_queue(node),
                    schedule_to_start_timeout=ASK_PICKUP,
                    start_to_close_timeout=policies.CALL,
                    retry_policy=policies.HOST_ONCE,
                    summary=f"ask the ranks on {node} for a checkpoint",
                )
            )
        except (HostSilentError, OutsideError) as failed:
            return str(failed)
        return "" if asked.taken else asked.why or "it was not taken"

    async def post_checkpoint(self, ref: AttemptRef) -> str:
        """Ask the pods by their own hook; why that failed, in words."""
        request = PostCheckpoint(query=AttemptQuery(ref=ref, spec=self._spec), hook=self._spec.hook)
        try:
            posted = await told(
                workflow.execute_activity_method(
                    JobActivities.post_checkpoint, request, **policies.STEP, summary="ask the pods for a checkpoint"
                )
            )
        except OutsideError as failed:
            return str(failed)
        return "" if posted.taken else posted.why or "no pod took it"

    async def answer(self, incident_id: str, answer: JobAnswer) -> None:
        """Tell an incident what the job did; one that is over needs no answer."""
        await self._courtesy(
            workflow.execute_activity_method(
                JobIncidentActivities.answer_incident,
                IncidentAnswer(incident_id=incident_id, answer=answer),
                **policies.STEP,
                summary=f"answer {incident_id}: {answer.kind}",
            ),
            f"{incident_id} was not answered",
        )

    async def report_node(self, node: str, node_uid: str, faults: tuple[Fault, ...]) -> None:
        """Open or feed the incident of a node."""
        report = NodeReport(cluster=self._cluster, node=node, node_uid=node_uid, job_id=self._job_id, faults=faults)
        await self._courtesy(
            workflow.execute_activity_method(
                JobIncidentActivities.report_node, report, **policies.STEP, summary=f"report {node}"
            ),
            f"{node} was not reported",
        )

    async def tell_suspicions(
        self, attempt: int, node: str, verdict: FailureVerdict, gpu: str, at: datetime, *, explained: bool
    ) -> None:
        """Tell the cluster's suspicions where an attempt failed."""
        named = await self._courtesy(
            workflow.execute_activity_method(
                JobIncidentActivities.name_node,
                NodeNamed(cluster=self._cluster, node=node),
                **policies.COURTESY,
                summary=f"which machine is {node}",
            ),
            f"{node} could not be named",
        )
        ref: NodeRef | None = named.node if named is not None else None
        if ref is None:
            return
        report = HurtReport(
            job_id=self._job_id,
            attempt=attempt,
            node=ref,
            gpu_uuid=gpu,
            fingerprint=verdict.fingerprint,
            explained=explained,
            at=at,
        )
        await self._courtesy(
            workflow.execute_activity_method(
                JobIncidentActivities.tell_suspicions, report, **policies.COURTESY, summary=f"it failed on {node}"
            ),
            "the suspicions were not told",
        )

    async def _courtesy(self, call: Awaitable[T], words: str) -> T | None:
        """Good to have said, and never a reason to stop."""
        try:
            return await told(call)
        except (OutsideError, HostSilentError) as failed:
            workflow.logger.warning("%s: %s", words, failed)
            return None
