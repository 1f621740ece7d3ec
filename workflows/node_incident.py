"""One sick node, from its first fault until it is returned, replaced, handed over or withdrawn (design, 5).

Started by the controller's watch under `names.incident_id`, one open at a time per machine. This module holds the
handlers, the opening, the turns and the close; one turn up the ladder is in `incident_climb`, what follows a proof in
`incident_settling`, how it waits in `incident_waits`, what it knows in `incident_record`, what orders do to that in
`incident_orders`, its calls in `incident_calls`. Rules are in `sickbay`.

The loop plans anew at each turn from all that is known, so that a fault or an order that comes at any time is simply
part of the next plan. Everything that an order or a new fault may interrupt ends in a return to the loop; what must not
be interrupted (the act and its proof) is not.
"""

import asyncio
from collections.abc import Awaitable

from temporalio import workflow
from temporalio.exceptions import ApplicationError

from sickbay import job_notice, ladder, search_attributes, suspicions
from sickbay.commands import refusal
from sickbay.faults import Rung
from sickbay.incident import (
    Command,
    CommandReply,
    FaultReport,
    FaultsCleared,
    HandoverReason,
    IncidentInput,
    IncidentResult,
    IncidentView,
    Outcome,
    Stage,
)
from sickbay.ladder import Step
from sickbay.names import WORKFLOW_INCIDENT
from sickbay.permits import Permit, PermitRefusal, PermitWaiting
from sickbay.training.handshake import JobAnswer
from workflows.incident_calls import IncidentCalls
from workflows.incident_climb import Climb
from workflows.incident_jobs import JobTalk
from workflows.incident_orders import obey
from workflows.incident_permit import PermitDesk
from workflows.incident_record import IncidentRecord
from workflows.incident_settling import Settling
from workflows.incident_suspicion import SuspicionCheck
from workflows.incident_waits import Ended, IncidentWaits
from workflows.outside import OutsideError

COMMAND_REFUSED = "CommandRefused"


@workflow.defn(name=WORKFLOW_INCIDENT)
class NodeIncident:
    """The incident of one node; see the module."""

    @workflow.init
    def __init__(self, start: IncidentInput) -> None:
        self._start = start
        self._record = IncidentRecord(workflow.info().workflow_id, start)
        self._calls = IncidentCalls(self._record.incident_id, start.node, start.policy)
        self._waits = IncidentWaits(self._record, self._calls)
        self._permit = PermitDesk(self._record)
        self._settling = Settling(self._record, self._calls, self._waits)
        self._jobs = JobTalk(self._record, self._waits, self._permit)
        self._climb = Climb(self._record, self._calls, self._waits, self._permit, self._settling, self._jobs)
        self._policy = start.policy

    @workflow.run
    async def run(self, start: IncidentInput) -> IncidentResult:  # noqa: ARG002 - `__init__` has read it
        """Climb until it ends; then undo every mark of ours, whatever the end."""
        try:
            if self._record.state.stage is Stage.OPENED:
                await self._open()
            while True:
                await self._turn()
        except Ended as ended:
            return await self._close(ended.outcome, ended.reason, proof=ended.proof)
        except asyncio.CancelledError:
            self._record.closing = True
            await self._undo(keep_cordon=False, well=False)
            self._record.enter(Stage.CLOSED, "cancelled: all our marks are undone")
            raise

    # What others say to it

    @workflow.signal
    def report_faults(self, report: FaultReport) -> None:
        """Faults that are open now; repeats only count up."""
        self._record.join(report.faults)

    @workflow.signal
    def clear_faults(self, cleared: FaultsCleared) -> None:
        """Faults that the node's own detectors no longer see."""
        self._record.clear(cleared.codes)

    @workflow.signal
    def job_answer(self, answer: JobAnswer) -> None:
        """What a training job on the node does about its trouble."""
        if not self._record.closing and answer.node_uid == self._record.node.uid:
            self._record.change(job_answers=job_notice.taken_in(self._record.state.job_answers, answer))
            self._record.note(job_notice.in_words(answer))

    @workflow.signal
    def permit_granted(self, permit: Permit) -> None:
        """Leave to disrupt; one that comes when none is asked for any more has been given back by then."""
        if self._record.state.permit_requested:
            self._record.change(permit=permit)

    @workflow.signal
    def permit_refused(self, answer: PermitRefusal) -> None:
        """There will be no leave, or it is taken back."""
        self._record.change(permit=None)
        self._record.permit_refused = answer.reason

    @workflow.signal
    def permit_waiting(self, notice: PermitWaiting) -> None:
        """Why there is no leave yet."""
        if self._record.state.stage is Stage.AWAITING_PERMIT:
            self._record.waits(f"a permit: {notice.reason}", self._record.waiting_until)

    @workflow.signal
    def command_signal(self, command: Command) -> None:
        """An order from a bot that can only signal; a refusal shows in the details and costs nothing else."""
        if (reason := self._refusal(command)) is not None:
            self._record.note(f"{command.by or 'somebody'}: {command.kind} was refused: {reason}")
        elif not self._known(command):
            obey(self._record, command)

    @workflow.update
    def command(self, command: Command) -> CommandReply:
        """A person's order. Refused with `CommandRefused` before anything enters history."""
        answer = "This was done before." if self._known(command) else obey(self._record, command)
        return CommandReply(stage=self._record.state.stage, message=answer)

    @command.validator
    def _check_command(self, command: Command) -> None:
        if (reason := self._refusal(command)) is not None:
            raise ApplicationError(reason, type=COMMAND_REFUSED, non_retryable=True)

    @workflow.query
    def view(self) -> IncidentView:
        """The incident as people see it."""
        return self._record.view()

    def _known(self, command: Command) -> bool:
        return bool(command.request_id) and command.request_id in self._record.state.seen_requests

    def _refusal(self, command: Command) -> str | None:
        return None if self._known(command) else refusal(command, self._record.situation())

    # The order of things

    async def _open(self) -> None:
        """Block new work first, within the watch's cap; everything else may take its time."""
        record = self._record
        record.change(first_verdict=record.verdict)
        record.note(f"opened: {record.verdict.reason}")
        if self._start.contain:
            await self._waits.contain()
        else:
            record.note("the cap on cordons is reached: new work is not blocked before there is a permit")
        look = await self._waits.look()
        record.change(expected_gpus=record.state.expected_gpus or look.gpu_devices or look.gpu_capacity or None)
        await self._calls.courtesy("SickbayIncidentOpened", record.verdict.reason)
        record.change(floor=await self._floor())

    async def _floor(self) -> Rung:
        """Where this machine's past makes the ladder start."""
        lemon = self._policy.lemon
        try:
            past = await self._calls.past_incidents(lemon.window)
        except OutsideError as failed:
            self._record.note(f"the machine's past is not known: {failed}")
            return Rung.NONE
        repaired = [
            incident.closed_at
            for incident in past.incidents
            if incident.outcome is Outcome.RETURNED and incident.rung.disrupts
        ]
        floor = ladder.lemon_floor(repaired, lemon, workflow.now())
        if floor is not Rung.NONE:
            self._record.note(f"repaired {len(repaired)} times within {lemon.window}: the ladder starts at {floor}")
        return floor

    async def _turn(self) -> None:
        """Plan from all that is known, and take one step."""
        record = self._record
        await self._waits.while_held()
        if (intent := record.unsettled) is not None:
            await self._settling.settle(intent)
            return
        step = record.plan()
        if not step.rung.disrupts:
            record.ask(None)
        match step.rung:
            case Rung.NONE:
                await self._recovered()
            case Rung.HUMAN:
                await self._with_people()
            case Rung.BLOCK_NEW_WORK:
                await self._watch(step)
            case _:
                await self._climb.take(step)

    async def _recovered(self) -> None:
        """No open fault asks for anything: wait whether that lasts, and withdraw."""
        record = self._record
        record.enter(Stage.OBSERVING, "no open fault asks for a repair any more")
        if not await self._waits.lasting(self._policy.recovery_soak, "the fault to stay away"):
            return
        look = await self._waits.look()
        record.join(look.faults)
        if record.verdict.rung is not Rung.NONE:
            return
        if not any(intent.acted_at for intent in record.state.intents):
            raise Ended(Outcome.WITHDRAWN, "the fault passed by itself")
        if (judgement := await self._settling.judge(look)).passed:
            raise Ended(Outcome.RETURNED, "the fault passed after the repair", proof="a full healthy pass")
        record.hand_over(HandoverReason.LADDER_EXHAUSTED, f"no fault is open, but: {judgement}")

    async def _watch(self, step: Step) -> None:
        """Trouble that no repair is meant for: keep new work away, and call a person if it lasts."""
        self._record.enter(Stage.OBSERVING, "new work stays blocked; nothing else is done about this")
        until = self._record.since + self._policy.watch_deadline
        if suspicions.only_suspicions(self._record.troubles):
            decided = SuspicionCheck(self._record, self._calls, self._waits)
            if not await decided.decide(step, until):
                self._record.hand_over(HandoverReason.VERDICT, "no active check could decide on the suspicion in time")
            return
        if await self._waits.for_plan_to_change(step, until, "the trouble to pass"):
            return
        self._record.hand_over(HandoverReason.VERDICT, f"it lasted {self._policy.watch_deadline}")

    async def _with_people(self) -> None:
        """A person decides now. A reason is recorded where the ladder itself came to its end."""
        record = self._record
        if record.state.handover is None:
            exhausted = bool(record.state.intents)
            reason = HandoverReason.LADDER_EXHAUSTED if exhausted else HandoverReason.VERDICT
            record.hand_over(reason, "no rung is left" if exhausted else record.verdict.reason)
        await self._permit.give_back()
        record.enter(Stage.HANDED_OVER, f"handed over ({record.state.handover}): {record.state.handover_text}")
        await self._calls.courtesy("SickbayHandedOver", record.state.handover_text)
        await self._waits.for_people()

    # Ways out

    async def _close(self, outcome: Outcome, reason: str, *, proof: str) -> IncidentResult:
        record = self._record
        record.closing = True
        verified_boot = self._settling.verified_boot if outcome is Outcome.RETURNED else ""
        well = outcome in (Outcome.RETURNED, Outcome.WITHDRAWN)
        await self._undo(keep_cordon=record.keep_cordon, well=well, verified_boot=verified_boot)
        record.outcome, record.closed_at = outcome, workflow.now()
        record.waits("", None)
        rung = record.strongest_tried()
        record.tag([search_attributes.OUTCOME.value_set(outcome), search_attributes.RUNG.value_set(rung)])
        record.enter(Stage.CLOSED, f"closed, {outcome}: {reason}")
        if outcome not in (Outcome.NODE_GONE, Outcome.REPLACED):
            await self._calls.courtesy("SickbayIncidentClosed", f"{outcome}: {reason}", warning=False)
        await workflow.wait_condition(workflow.all_handlers_finished)
        return IncidentResult(
            outcome=outcome,
            rung=rung,
            handover=record.state.handover,
            reason=reason,
            proof=proof,
            opened_at=self._start.opened_at,
            contained_at=record.state.contained_at,
            closed_at=record.closed_at,
            view=record.view(),
        )

    async def _undo(self, *, keep_cordon: bool, well: bool, verified_boot: str = "") -> None:
        """Undo every mark of ours, also if the incident is cancelled meanwhile."""
        undoing = asyncio.ensure_future(self._undo_marks(keep_cordon, well, verified_boot))
        try:
            await asyncio.shield(undoing)
        except asyncio.CancelledError:
            await undoing

    async def _undo_marks(self, keep_cordon: bool, well: bool, verified_boot: str) -> None:
        """What fails is told, and does not keep the rest from being undone.

        Each tolerates that its mark was never made. An orphan that stays is found by the controller's sweep.
        """
        await self._permit.give_back()
        if self._record.state.protected:
            await self._tried(self._calls.unprotect())
        await self._tried(self._calls.release(keep_cordon=keep_cordon, verified_boot=verified_boot))
        await self._tried(self._jobs.over(well=well))

    async def _tried(self, undo: Awaitable[object]) -> None:
        try:
            await undo
        except OutsideError as failed:
            self._record.note(f"a mark could not be undone: {failed}")
