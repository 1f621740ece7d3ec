"""One training job, attempt by attempt, until its target is reached, a restart cannot help, or a person ends it.

Started by `sickbay train submit` under `names.job_id`, one open at a time per name. This module holds the handlers, the
turns and the close; a running attempt is in `training_attempt`, its end in `training_ending`, how it waits in
`training_waits`, what it knows in `training_record`, its calls in `training_calls`. Rules are in `sickbay.training` and
`sickbay.checkpoints`.

The loop plans anew at each turn from all that is known. Between attempts a turn picks the resume point and the size and
creates the next attempt; while one runs, a turn is its watch.
"""

import asyncio

from temporalio import workflow
from temporalio.exceptions import ApplicationError

from sickbay.checkpoints.choice import choose, judged, why_not
from sickbay.checkpoints.model import ResumeChoice
from sickbay.names import WORKFLOW_JOB
from sickbay.training import bookkeeping, budgets, exclusions, manifests, sizes
from sickbay.training.attempts import AttemptPlan
from sickbay.training.commands import refusal
from sickbay.training.handshake import NodeOver, NodeTrouble
from sickbay.training.history import PauseKind
from sickbay.training.job import (
    JobCommand,
    JobCommandKind,
    JobInput,
    JobOutcome,
    JobReply,
    JobResult,
    JobStage,
    JobView,
)
from workflows.outside import OutsideError
from workflows.training_attempt import RunningAttempt
from workflows.training_calls import TrainingCalls
from workflows.training_ending import AttemptEnding
from workflows.training_record import TrainingRecord
from workflows.training_waits import JobOver, TrainingWaits

COMMAND_REFUSED = "CommandRefused"


@workflow.defn(name=WORKFLOW_JOB)
class TrainingJob:
    """The workflow of one job; see the module."""

    @workflow.init
    def __init__(self, start: JobInput) -> None:
        info = workflow.info()
        self._start = start
        self._spec = start.spec
        self._record = TrainingRecord(info.workflow_id, start, info.first_execution_run_id)
        self._calls = TrainingCalls(info.workflow_id, start.cluster, start.spec)
        self._waits = TrainingWaits(self._record)
        self._ending = AttemptEnding(self._record, self._calls, self._waits)
        self._attempt = RunningAttempt(self._record, self._calls, self._waits, self._ending)

    @workflow.run
    async def run(self, start: JobInput) -> JobResult:  # noqa: ARG002 - `__init__` has read it
        """Attempt after attempt; no attempt of ours outlives the workflow."""
        try:
            while True:
                await self._turn()
        except JobOver as over:
            return await self._close(over)
        except asyncio.CancelledError:
            await self._remove_all()
            self._record.outcome = JobOutcome.CANCELLED
            self._record.enter(JobStage.CLOSED, "cancelled: its attempt is removed")
            raise

    # What others say to it

    @workflow.signal
    def node_trouble(self, trouble: NodeTrouble) -> None:
        """A node is about to be disrupted: checkpoint and leave it, if the job is on it."""
        if self._record.outcome is None:
            self._record.hear(trouble)

    @workflow.signal
    def node_over(self, over: NodeOver) -> None:
        """A node's incident is over."""
        self._record.forget(over)

    @workflow.update
    def command(self, command: JobCommand) -> JobReply:
        """A person's order. Refused with `CommandRefused` before anything enters history."""
        answer = "This was done before." if self._record.knows(command) else self._obey(command)
        return JobReply(stage=self._record.state.stage, message=answer)

    @command.validator
    def _check_command(self, command: JobCommand) -> None:
        if self._record.knows(command):
            return
        if (reason := refusal(command, self._record.situation())) is not None:
            raise ApplicationError(reason, type=COMMAND_REFUSED, non_retryable=True)

    @workflow.query
    def view(self) -> JobView:
        """The job as people see it."""
        return self._record.view()

    def _obey(self, command: JobCommand) -> str:
        if command.kind in (JobCommandKind.RETRY, JobCommandKind.FROM_STEP):
            self._record.remember(budgets.forgiven(self._record.history))
        return self._record.obey(command)

    # The order of things

    async def _turn(self) -> None:
        """Plan from all that is known, and take one step."""
        record = self._record
        self._waits.heed_cancellation()
        self._waits.continue_if_long()
        if record.state.plan is not None:
            await self._attempt.go_on()
        elif record.state.cancelled_by:
            raise JobOver(JobOutcome.CANCELLED, f"cancelled by {record.state.cancelled_by}")
        elif record.late:
            raise JobOver(JobOutcome.TIMED_OUT, f"not done within {self._spec.deadlines.total}")
        elif record.state.paused_by:
            await self._while_paused()
        elif record.state.held_for:
            await self._while_held()
        else:
            await self._begin()

    async def _while_paused(self) -> None:
        record = self._record
        record.enter(JobStage.PAUSED, f"paused by {record.state.paused_by}")
        record.remember(bookkeeping.paused(record.history, PauseKind.HELD, "paused", workflow.now()))
        until = record.state.stage_since + self._spec.deadlines.person
        resumed = await self._waits.until(
            until, "a person to resume it", lambda: not record.state.paused_by or bool(record.state.cancelled_by)
        )
        record.remember(bookkeeping.resumed(record.history, workflow.now()))
        if not resumed:
            raise JobOver(JobOutcome.FAILED, f"nobody resumed it within {self._spec.deadlines.person}")

    async def _while_held(self) -> None:
        record = self._record
        why = record.state.held_for
        record.enter(JobStage.HELD, f"a person must decide: {why}")
        record.remember(bookkeeping.paused(record.history, PauseKind.HELD, why, workflow.now()))
        until = (record.state.held_since or workflow.now()) + self._spec.deadlines.person
        decided = await self._waits.until(
            until, f"a person: {why}", lambda: not record.state.held_for or record.ordered
        )
        record.remember(bookkeeping.resumed(record.history, workflow.now()))
        if not decided:
            raise JobOver(JobOutcome.FAILED, f"nobody decided within {self._spec.deadlines.person}: {why}")

    async def _begin(self) -> None:
        """The next attempt: the target first, then where to resume, how large, and on which nodes not."""
        record = self._record
        record.enter(JobStage.QUEUED)
        record.remember(bookkeeping.paused(record.history, PauseKind.QUEUE, "", workflow.now()))
        if not await self._its_turn():
            return
        choice = await self._choice()
        if choice is None or record.ordered:
            return
        for words in choice.passed_over[:3]:
            record.note(f"not resumed from {words}")
        if not choice.allowed:
            record.hold(choice.why)
            return
        plan = await self._plan(choice)
        if plan is not None and not record.ordered:
            await self._create(plan, choice)

    async def _its_turn(self) -> bool:
        """Whether the budget's pause is over; false if an order came instead."""
        record = self._record
        due = record.state.not_before
        if due is None or due <= workflow.now():
            return True
        await self._waits.until(due, "its turn: restarts are limited per hour", lambda: record.ordered)
        return not record.ordered

    async def _choice(self) -> ResumeChoice | None:
        """Where to resume. Ends the job if its target is reached already: launching it would only do harm."""
        record = self._record
        attempts = tuple(each.attempt for each in record.history.attempts)
        listing = await self._waits.until_answered(lambda: self._calls.list_checkpoints(attempts, ()))
        if listing is None:
            return None
        whole = [each for each in listing.checkpoints if each.level.may_resume]
        record.change(checkpoint_steps=tuple(each.step for each in whole[:50]))
        known = judged(listing.checkpoints, record.history)
        usable = next((each for each in known if not why_not(each, self._spec.checkpoints, record.history)), None)
        target = await self._waits.until_answered(lambda: self._calls.target(attempts, usable.step if usable else None))
        if target is None:
            return None
        if target.reached:
            raise JobOver(JobOutcome.SUCCEEDED, "the target is reached", proof=target.proof)
        return choose(
            listing,
            self._spec.checkpoints,
            record.history,
            allow_nothing=self._spec.start_from_nothing,
            override=record.state.resume_override,
        )

    async def _plan(self, choice: ResumeChoice) -> AttemptPlan | None:
        """The next attempt; None if nobody could tell where it can run, or if an order came."""
        record, template = self._record, manifests.nodes_of(self._spec.manifest)
        attempt = len(record.history.attempts) + 1
        ref, kept_off = record.ref(attempt), record.kept_off()
        room = await self._waits.until_answered(lambda: self._calls.capacity(ref, kept_off))
        if room is None:
            return None
        kept_off = tuple(each for each in kept_off if each.node not in room.renewed)
        size = sizes.size_to_ask_for(self._spec, template, len(room.fitting))
        return AttemptPlan(
            ref=ref,
            nodes=size.nodes,
            resume=choice.checkpoint,
            exclusions=exclusions.yielding(kept_off, len(room.fitting), size.nodes),
            accumulation=size.accumulation,
            checkpoint_url=self._spec.checkpoints.for_attempt(attempt),
        )

    async def _create(self, plan: AttemptPlan, choice: ResumeChoice) -> None:
        """Make it, under a name that nobody else has; what was planned is remembered before."""
        record = self._record
        try:
            created = await self._calls.create(plan)
        except OutsideError as failed:
            if not failed.final:
                record.note(f"could not be created, and is tried again: {failed}")
                await self._waits.wait(lambda: record.ordered, self._spec.deadlines.checkpoint / 10, "create again")
                return
            record.hold(f"the cluster refuses it: {failed}")
            return
        if created.foreign:
            record.hold(created.foreign)
            return
        now = workflow.now()
        gpus = plan.nodes * manifests.gpus_per_node(self._spec.manifest)
        history = bookkeeping.resumed(record.history, now)
        record.remember(bookkeeping.begun(history, plan, gpus, record.state.planned_at or now, now))
        record.change(
            plan=plan, look=None, sized_at=now, not_before=None, resume=choice, resume_override=None, restart_by=""
        )
        record.enter(JobStage.STARTING, f"attempt {plan.ref.attempt} on {plan.nodes} node(s): {choice.why}")

    # Ways out

    async def _close(self, over: JobOver) -> JobResult:
        record = self._record
        await self._remove_all()
        record.outcome, record.closed_at = over.outcome, workflow.now()
        record.remember(bookkeeping.resumed(record.history, workflow.now()))
        record.enter(JobStage.CLOSED, f"{over.outcome}: {over.reason}{f' ({over.proof})' if over.proof else ''}")
        await workflow.wait_condition(workflow.all_handlers_finished)
        return JobResult(outcome=over.outcome, reason=over.reason, proof=over.proof, view=record.view())

    async def _remove_all(self) -> None:
        """No attempt outlives the job, also if the workflow is cancelled meanwhile."""
        plan = self._record.state.plan
        if plan is None:
            return
        removing = asyncio.ensure_future(self._remove(plan))
        try:
            await asyncio.shield(removing)
        except asyncio.CancelledError:
            await removing

    async def _remove(self, plan: AttemptPlan) -> None:
        try:
            await self._calls.delete(plan.ref)
        except OutsideError as failed:
            self._record.note(f"{plan.ref.name} could not be removed, and needs a person: {failed}")
        else:
            self._record.change(plan=None)
