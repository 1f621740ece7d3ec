"""A running attempt of a training job: watched until something is to be decided, and left when it must be left.

Called by the training workflow. What follows an end is in `training_ending`; what a look means is decided by the
activities' rules and by `sickbay.training`. Everything here returns to the workflow's loop as soon as the attempt is
over, or something that ranks above it is due.
"""

import asyncio
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Final

from temporalio import workflow
from temporalio.exceptions import ActivityError, is_cancelled_exception

from sickbay.training import bookkeeping, pace_of_job
from sickbay.training.attempts import AttemptLook, AttemptState, WatchRequest
from sickbay.training.handshake import AnswerKind, JobAnswer, NodeTrouble
from sickbay.training.job import JobStage
from workflows.outside import OutsideError, failure_of
from workflows.training_calls import TrainingCalls
from workflows.training_ending import AttemptEnding
from workflows.training_fit import TrainingFit
from workflows.training_record import TrainingRecord
from workflows.training_waits import TrainingWaits

WATCH: Final = timedelta(minutes=10)
"""One watch, if nothing happens."""
QUIET_PAUSE: Final = timedelta(seconds=5)
"""After a watch that brought no news before its time, so that a fault of ours cannot become a busy loop."""
ASKED_NODES: Final = 3
"""Nodes that are asked for a checkpoint, until one takes it: the ranks agree among themselves."""


class RunningAttempt:
    """The attempt that may run now."""

    def __init__(
        self, record: TrainingRecord, calls: TrainingCalls, waits: TrainingWaits, ending: AttemptEnding
    ) -> None:
        self._record = record
        self._calls = calls
        self._waits = waits
        self._ending = ending
        self._fit = TrainingFit(record, calls)
        self._spec = record.spec

    async def go_on(self) -> None:
        """Watch it until it is over or left; each look may change what is due."""
        while self._record.state.plan is not None:
            self._waits.continue_if_long()
            self._waits.heed_cancellation()
            if why := self._why_leave():
                await self._leave(*why)
                return
            if (step := self._record.checkpointed_since()) is not None:
                await self._leave(f"step {step} is durable", self._record.troubles_here(), step)
                return
            await self._answer_the_patient()
            began = workflow.now()
            look = await self._watch(workflow.now() + WATCH, self._interrupted)
            if look is None:
                continue
            news = self._take(look)
            if (ended := pace_of_job.end_of(self._spec, self._record.history, look, workflow.now())) is not None:
                await self._ending.ended(ended, look)
                return
            if better := await self._fit.why_leave(look):
                await self._leave(better, ())
                return
            if not news and workflow.now() - began < QUIET_PAUSE:
                await self._waits.wait(self._interrupted, QUIET_PAUSE, "between two watches")

    def _why_leave(self) -> tuple[str, tuple[NodeTrouble, ...]] | None:
        """Why the attempt must be left now, and for which nodes."""
        record, state = self._record, self._record.state
        if state.cancelled_by:
            return f"cancelled by {state.cancelled_by}", ()
        if state.paused_by:
            return f"paused by {state.paused_by}", ()
        if state.restart_by:
            return f"restarted by {state.restart_by}", ()
        if pressing := record.pressing():
            nodes = ", ".join(sorted({one.node.name for one in pressing}))
            return f"{nodes} is about to be disrupted", record.troubles_here()
        return ("its time is over", ()) if record.late else None

    def _interrupted(self) -> bool:
        record = self._record
        unanswered = [one for one in record.state.troubles if one.incident_id not in record.state.answered]
        return record.ordered or bool(record.pressing()) or bool(unanswered)

    async def _watch(self, until: datetime, stop: Callable[[], bool]) -> AttemptLook | None:
        """One watch; None if something interrupted it, or if the outside did not answer."""
        request = self._request(until)
        handle = self._calls.start_watch(request)
        try:
            await workflow.wait_condition(lambda: handle.done() or stop())
        except asyncio.CancelledError:
            handle.cancel()
            raise
        if not handle.done():
            handle.cancel()
        try:
            return await handle
        except ActivityError as error:
            if is_cancelled_exception(error):
                self._waits.heed_cancellation()
                return None
            failed = failure_of(error)
            if isinstance(failed, OutsideError) and failed.final:
                self._record.note(f"cannot watch: {failed}")
            await self._waits.wait(stop, timedelta(seconds=30), "watch again")
            return None

    def _request(self, until: datetime) -> WatchRequest:
        record, state = self._record, self._record.state
        assert state.plan is not None
        newest = record.history.attempts[-1]
        elastic = self._spec.elasticity
        due = pace_of_job.next_deadline(self._spec, record.history, workflow.now())
        until_due = until if due is None else min(until, due)
        return WatchRequest(
            ref=state.plan.ref,
            until=until_due,
            state=state.look.state if state.look else AttemptState.PENDING,
            placements=state.look.placements if state.look else (),
            step=newest.samples[-1].step if newest.samples else None,
            step_wanted=self._spec.target.step,
            checkpoints=self._calls.checkpoint_query(tuple(record.attempt for record in record.history.attempts), ()),
            newest_step=record.history.durable_step,
            slow_known=tuple(each.rank for each in state.slow),
            pace=state.pace,
            hang_floor_seconds=self._spec.deadlines.hang_floor.total_seconds(),
            ranks_expected=state.plan.nodes * elastic.ranks_per_node if elastic else 0,
        )

    def _take(self, look: AttemptLook) -> bool:
        """Note what a look shows; whether it is news."""
        record = self._record
        before, now = record.state.look, workflow.now()
        durable = record.history.durable_step
        before_first_step = record.history.attempts[-1].first_step_at is None
        history = bookkeeping.looked(record.history, look, now)
        record.remember(bookkeeping.proven(history))
        record.change(look=look, pace=look.ranks.pace if look.ranks else record.state.pace)
        newest = record.history.attempts[-1]
        if look.state is AttemptState.PENDING:
            self._pending(look)
        elif look.state is AttemptState.RUNNING and newest.first_step_at is None:
            record.enter(JobStage.STARTING, f"attempt {newest.attempt} runs on {look.running} node(s)")
        elif look.state is AttemptState.RUNNING:
            record.enter(JobStage.TRAINING, f"attempt {newest.attempt} trains" if before_first_step else "")
        if record.history.durable_step != durable:
            record.note_durable(record.history.durable_step)
        return before is None or before.state is not look.state or record.history.durable_step != durable

    def _pending(self, look: AttemptLook) -> None:
        """Waiting for capacity is not failing; after a while a person is told."""
        record, now = self._record, workflow.now()
        created = record.history.attempts[-1].created_at or now
        capacity = [wait for wait in look.waits if wait.capacity]
        record.enter(JobStage.QUEUED if capacity else JobStage.STARTING)
        until = created + self._spec.deadlines.capacity_alert
        record.waits(f"its pods to run: {look.why}", until)
        if capacity and now >= until and not record.state.capacity_told:
            record.change(capacity_told=True)
            record.note(f"waits for capacity since {created:%H:%M}: {look.why}")

    # Leaving

    async def _answer_the_patient(self) -> None:
        """Tell incidents whose node is left to the next checkpoint, or not in use at all."""
        record = self._record
        here = {one.incident_id for one in record.troubles_here()}
        for trouble in record.state.troubles:
            if trouble.incident_id in record.state.answered:
                continue
            kind = AnswerKind.LATER if trouble.incident_id in here else AnswerKind.LEFT
            await self._answer(trouble, kind)
            record.change(answered=(*record.state.answered, trouble.incident_id))

    async def _leave(self, why: str, troubles: tuple[NodeTrouble, ...], step: int | None = None) -> None:
        """Checkpoint as far as that goes, end the attempt, and tell the incidents that wait for it.

        `step` is one that has just become durable by itself.
        """
        record = self._record
        record.note(f"leaves: {why}")
        if step is None:
            step = await self._checkpointed(troubles)
        for trouble in troubles:
            kind = AnswerKind.CANNOT if step is None else AnswerKind.CHECKPOINTED
            await self._answer(trouble, kind, step)
        look = record.state.look
        await self._ending.left(why, look)
        record.change(restart_by="")
        for trouble in troubles:
            await self._answer(trouble, AnswerKind.LEFT, step)
            record.change(answered=(*record.state.answered, trouble.incident_id))

    async def _checkpointed(self, troubles: tuple[NodeTrouble, ...]) -> int | None:
        """Ask for a checkpoint and wait for it; its step, None if none came in time."""
        record, look = self._record, self._record.state.look
        if look is None or look.state is not AttemptState.RUNNING or record.state.plan is None:
            return None
        before = record.history.durable_step
        until = min([workflow.now() + self._spec.deadlines.checkpoint, *(one.until for one in troubles)])
        if until <= workflow.now():
            return None
        record.enter(JobStage.CHECKPOINTING)
        record.waits("a checkpoint that was asked for", until)
        if why := await self._ask(look, {one.node.name for one in troubles}):
            record.note(f"no rank could be asked for a checkpoint: {why}")
            return None
        while workflow.now() < until:
            seen = await self._watch(until, lambda: workflow.cancellation_reason() is not None)
            if seen is None:
                continue
            self._take(seen)
            record.enter(JobStage.CHECKPOINTING)
            durable = record.history.durable_step
            if durable is not None and (before is None or durable > before):
                return durable
            if seen.state is not AttemptState.RUNNING:
                return None
            await self._waits.wait(lambda: False, min(QUIET_PAUSE, until - workflow.now()), "the checkpoint")
        return None

    async def _ask(self, look: AttemptLook, sick: set[str]) -> str:
        """Ask ranks by the pods' hook and on some nodes, well ones first; why nobody took it, in words."""
        assert self._record.state.plan is not None
        ref = self._record.state.plan.ref
        whys = []
        if self._spec.hook.http_port is not None:
            if not (why := await self._calls.post_checkpoint(ref)):
                return ""
            whys.append(why)
        nodes = list(dict.fromkeys(place.node for place in look.placements if place.node))
        nodes.sort(key=lambda node: node in sick)
        request_id = f"{ref.name}-{workflow.info().get_current_history_length()}"
        for node in nodes[:ASKED_NODES]:
            if not (why := await self._calls.ask_checkpoint(ref, node, request_id)):
                return ""
            whys.append(f"{node}: {why}")
        return "; ".join(whys) or "it has no pod on any node"

    async def _answer(self, trouble: NodeTrouble, kind: AnswerKind, step: int | None = None) -> None:
        answer = JobAnswer(
            job_id=self._record.job_id, node_uid=trouble.node.uid, kind=kind, step=step, at=workflow.now()
        )
        await self._calls.answer(trouble.incident_id, answer)
