"""A small workflow that answers as a training job does, for tests of those who speak with jobs.

It bears the job workflow's name and handlers, keeps what it is told, and ends when a person says so. It runs nothing:
what a job does is tested in `tests/workflows`.
"""

from datetime import UTC, datetime
from typing import Any

from temporalio import workflow
from temporalio.exceptions import ApplicationError

from sickbay import names
from sickbay.checkpoints.model import CheckpointPlace
from sickbay.training.handshake import NodeOver, NodeTrouble
from sickbay.training.history import AttemptEnd, AttemptRecord, JobHistory
from sickbay.training.job import (
    JobCommand,
    JobCommandKind,
    JobInput,
    JobOutcome,
    JobReply,
    JobResult,
    JobStage,
    JobTimelineEntry,
    JobView,
    Target,
    TrainingSpec,
)
from sickbay.training.verdicts import BudgetKind, FailureAction, FailureClass, FailureVerdict, NodeBlame

VERDICT = FailureVerdict(
    failure_class=FailureClass.PLATFORM,
    action=FailureAction.RESTART_EXCLUDING_NODE,
    rule="row-03-hardware-on-node",
    reason="an uncorrectable memory error on node-a",
    culprits=("rank 3 (node-a)",),
    evidence=("CUDA error: uncorrectable ECC error encountered",),
    budget=BudgetKind.PLATFORM,
    blamed=(NodeBlame(node="node-a", reason="uncorrectable memory error", hardware=True),),
    fingerprint="uncorrectable ecc error encountered",
    missing=("log of pod run-a1-2: timed out",),
)


def job_input(name: str, cluster: str = "lab", **values: Any) -> JobInput:
    """What starts a job of this name."""
    spec = TrainingSpec(
        name=name,
        manifest={"apiVersion": "batch/v1", "kind": "Job", "spec": {"parallelism": 2, "completions": 2}},
        checkpoints=CheckpointPlace(url="/checkpoints"),
        target=Target(step=100),
        **values,
    )
    return JobInput(cluster=cluster, spec=spec, submitted_by="ada", submitted_at=datetime(2026, 3, 1, 12, tzinfo=UTC))


@workflow.defn(name=names.WORKFLOW_JOB)
class StandInJob:
    """A job that waits for a person, after one failed attempt."""

    @workflow.init
    def __init__(self, start: JobInput) -> None:
        self._start = start
        self._troubles: list[NodeTrouble] = []
        self._overs: list[NodeOver] = []
        self._orders: list[JobCommand] = []

    @workflow.run
    async def run(self, start: JobInput) -> JobResult:
        await workflow.wait_condition(lambda: any(one.kind is JobCommandKind.CANCEL for one in self._orders))
        await workflow.wait_condition(workflow.all_handlers_finished)
        return JobResult(outcome=JobOutcome.CANCELLED, reason="cancelled", view=self.view())

    @workflow.signal
    def node_trouble(self, trouble: NodeTrouble) -> None:
        """Keep it."""
        self._troubles.append(trouble)

    @workflow.signal
    def node_over(self, over: NodeOver) -> None:
        """Keep it."""
        self._overs.append(over)

    @workflow.update
    def command(self, command: JobCommand) -> JobReply:
        """Take a person's order."""
        self._orders.append(command)
        return JobReply(stage=JobStage.HELD, message=f"{command.kind} by {command.by}")

    @command.validator
    def check(self, command: JobCommand) -> None:
        """Refuse what a job that was never paused cannot do."""
        if command.kind is JobCommandKind.RESUME:
            raise ApplicationError("it is not paused", type="CommandRefused")

    @workflow.query
    def heard(self) -> list[str]:
        """Ids of the incidents of each."""
        return [one.incident_id for one in self._troubles] + [f"over {one.incident_id}" for one in self._overs]

    @workflow.query
    def orders(self) -> list[JobCommand]:
        """What it was told."""
        return self._orders

    @workflow.query
    def view(self) -> JobView:
        """The job as people see it."""
        began = self._start.submitted_at
        failed = AttemptRecord(
            attempt=1, nodes=2, gpus=16, planned_at=began, created_at=began, gone_at=began, end=AttemptEnd.FAILED,
            verdict=VERDICT, node_names=("node-a", "node-b"),
        )  # fmt: skip
        spec = self._start.spec
        return JobView(
            job_id=workflow.info().workflow_id,
            cluster=self._start.cluster,
            namespace=spec.namespace,
            name=spec.name,
            stage=JobStage.CLOSED if any(one.kind is JobCommandKind.CANCEL for one in self._orders) else JobStage.HELD,
            attempt=1,
            nodes=2,
            step=40,
            target_step=spec.target.step,
            verdict=VERDICT,
            waiting_for="a person: no checkpoint can be trusted",
            history=JobHistory(attempts=(failed,)),
            submitted_at=began,
            timeline=(JobTimelineEntry(at=began, text="submitted"),),
        )
