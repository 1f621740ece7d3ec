"""One turn up the ladder: tolerance, approval, permit, drain, the last look, the act and its proof.

Called by the incident workflow with the step that is due; what follows a proof is in `incident_settling`. Everything
before the act returns to the workflow's loop as soon as something else is due; from the act to the end of its
verification nothing interrupts but a relapse.
"""

import asyncio
from typing import Final

from temporalio import workflow
from temporalio.exceptions import ActivityError, is_cancelled_exception

from sickbay import ladder
from sickbay.faults import Rung
from sickbay.incident import HandoverReason, Intent, Outcome, Stage
from sickbay.ladder import Step
from sickbay.nodes import DrainGoal, DrainOutcome, DrainReport, NodeSnapshot, OwnerKind
from sickbay.policy.model import ApprovalNeed
from sickbay.safety import Objection, Obstacle, objection_to_disrupting, outlived
from workflows.incident_calls import IncidentCalls
from workflows.incident_jobs import JobTalk
from workflows.incident_permit import PermitDesk
from workflows.incident_record import IncidentRecord
from workflows.incident_rungs import RungEnd, RungRunner
from workflows.incident_settling import Settling
from workflows.incident_waits import Ended, IncidentWaits
from workflows.outside import HostSilentError, OutsideError, failure_of

ASK_JOBS: Final = "ask-training-jobs"
"""Patch: incidents that were open before it drain without asking."""

_MADE_BY_OTHERS = (Obstacle.FOREIGN_LOCK, Obstacle.NOT_CONTAINED)
"""Obstacles that other software makes and takes away; past a deadline a person is asked."""


class Climb:
    """The climbing of one incident."""

    def __init__(
        self,
        record: IncidentRecord,
        calls: IncidentCalls,
        waits: IncidentWaits,
        permit: PermitDesk,
        settling: Settling,
        jobs: JobTalk,
    ) -> None:
        self._record = record
        self._calls = calls
        self._waits = waits
        self._permit = permit
        self._settling = settling
        self._jobs = jobs
        self._policy = record.policy

    async def take(self, step: Step) -> None:
        """One rung: wait out the tolerance, ask, get leave, empty the node, look again, act, prove, verify, soak."""
        if not (await self._tolerated(step) and await self._approved(step) and await self._permitted(step)):
            return
        if not await self._prepared(step):
            return
        gpu_uuids = await self._gpu_uuids()
        await self._permit.renewed()
        if (look := await self._safe(step)) is None:
            return
        # From the last look to the act nothing is awaited, so that no order can come in between.
        intent = self._intended(step, look, gpu_uuids)
        end = await self._act(intent, look)
        if not end.proven:
            self._failed(end)
        elif end.successor is not None:
            await self._settling.settle_successor(end.successor, end.proof)
        else:
            await self._settling.settle(self._record.state.intents[-1])

    async def _tolerated(self, step: Step) -> bool:
        """Whether the step is still the plan when the faults have had their time to pass."""
        record = self._record
        until = ladder.tolerated_until(record.troubles, self._policy, record.start.opened_at, workflow.now())
        if until is None or until <= workflow.now() or record.state.chosen_rung is not None:
            return True
        record.enter(Stage.OBSERVING, "the fault may pass")
        return not await self._waits.for_plan_to_change(step, until, "the fault to pass")

    async def _approved(self, step: Step) -> bool:
        """Whether a person said yes to this very step, where the policy wants one."""
        record = self._record
        if self._policy.for_rung(step.rung).approval is ApprovalNeed.NEVER:
            record.ask(None)
            return True
        record.ask(step)
        if record.approved:
            return True
        await self._permit.give_back()
        record.enter(Stage.AWAITING_APPROVAL, f"asks for approval of {step.rung}, attempt {step.attempt}", step.rung)
        until, what = record.since + self._policy.approval_deadline, f"a person's approval of {step.rung}"
        record.waits(what, until)
        await self._calls.courtesy(
            "SickbayApprovalNeeded", f"{step.rung} needs a person's yes: {record.verdict.reason}"
        )
        changed = await self._waits.for_plan_to_change(step, until, what, done=lambda: record.approved)
        if record.approved:
            return True
        record.ask(None)
        if not changed:
            record.hand_over(HandoverReason.APPROVAL_EXPIRED, f"nobody approved {step.rung} in time")
        return False

    async def _permitted(self, step: Step) -> bool:
        """Whether the disruption budget gives leave in time."""
        record = self._record
        if await self._permit.renewed():
            return True
        record.enter(Stage.AWAITING_PERMIT, f"asks for a permit for {step.rung}", step.rung)
        until = record.since + self._policy.budget.permit_deadline
        await self._permit.ask(step.rung, until)
        changed = await self._waits.for_plan_to_change(
            step, until, "a permit", done=lambda: record.permit is not None or bool(record.permit_refused)
        )
        if record.permit is not None:
            record.note(f"permit {record.permit.epoch} is granted")
            return not self._waits.overtaken(step)
        await self._permit.give_back()
        if record.permit_refused or not changed:
            record.hand_over(HandoverReason.PERMIT_REFUSED, record.permit_refused or "no permit was granted in time")
        return False

    async def _prepared(self, step: Step) -> bool:
        """Whether the node is empty enough for the step. Only drained is drained (design, 3.8)."""
        record = self._record
        look = await self._waits.look()
        if look.incident_mark is None or not look.unschedulable:
            await self._waits.contain()
        if self._waits.overtaken(step):
            return False
        record.enter(Stage.DRAINING, f"drains the node for {step.rung}", step.rung)
        if look.owner.kind is OwnerKind.KARPENTER and not record.state.protected:
            record.change(protected=True)
            await self._waits.until_answered(self._calls.protect)
        if workflow.patched(ASK_JOBS) and not await self._jobs.leave(step):
            return False
        report = await self._drain(step)
        if report.outcome is DrainOutcome.DRAINED:
            record.note(f"drained: {len(report.evicted)} pod(s) left")
            return True
        if report.outcome is DrainOutcome.NODE_GONE:
            raise Ended(Outcome.NODE_GONE, "the node went away while it was drained")
        if report.outcome is DrainOutcome.CANCELLED:
            record.note("the drain was stopped")
            return False
        blockers = "; ".join(f"{one.namespace}/{one.pod}: {one.reason}" for one in report.blockers)
        record.hand_over(HandoverReason.DRAIN_BLOCKED, f"the drain ended {report.outcome}: {blockers}")
        return False

    async def _drain(self, step: Step) -> DrainReport:
        """Drain until it ends, the plan changes or leave is taken back; then stop it, and wait until it has stopped."""
        record = self._record
        gentle = step.rung in (Rung.STOP_WORKLOAD, Rung.RESET_GPU)
        handle = self._calls.start_drain(DrainGoal.GPU_PODS if gentle else DrainGoal.WORKLOAD)
        record.waits("the node's pods to leave", workflow.now() + self._policy.drain.deadline)
        try:
            await workflow.wait_condition(lambda: handle.done() or self._waits.overtaken(step) or record.permit is None)
        except asyncio.CancelledError:
            # The loop heeds it as soon as the drain has stopped: marks are not undone while pods still leave.
            record.note("cancelled while the node was drained")
        if not handle.done():
            handle.cancel()
        try:
            return await handle
        except ActivityError as error:
            if is_cancelled_exception(error):
                return DrainReport(outcome=DrainOutcome.CANCELLED)
            failed = failure_of(error)
            if isinstance(failed, OutsideError) and not failed.final:
                return DrainReport(outcome=DrainOutcome.TIMED_OUT)
            record.hand_over(HandoverReason.FINAL_ERROR, str(failed))
            return DrainReport(outcome=DrainOutcome.CANCELLED)

    async def _safe(self, step: Step) -> NodeSnapshot | None:
        """The last look before the act; None if anything stands against it (design, 3.4)."""
        record = self._record
        while not self._waits.overtaken(step):
            look = await self._waits.look()
            if over := outlived(record.state.faults, look):
                record.clear(tuple(fault.code for fault in over))
            objection = self._objection(look)
            if objection is None or objection.obstacle not in _MADE_BY_OTHERS:
                record.change(locked_since=None)
            if objection is None:
                return None if self._waits.overtaken(step) else look
            record.note(f"{step.rung} must not begin: {objection.reason}")
            if objection.obstacle is Obstacle.PERMIT_LOST:
                record.change(permit=None)
                return None
            if objection.obstacle not in _MADE_BY_OTHERS:
                return None
            locked_since = record.state.locked_since or workflow.now()
            record.change(locked_since=locked_since)
            until = locked_since + self._policy.foreign_lock_deadline
            if workflow.now() >= until:
                record.hand_over(HandoverReason.FOREIGN_LOCK, objection.reason)
                return None
            if objection.obstacle is Obstacle.NOT_CONTAINED:
                return None
            pause = min(workflow.now() + self._policy.verify_every, until)
            await self._waits.for_plan_to_change(step, pause, objection.reason)
        return None

    def _objection(self, look: NodeSnapshot) -> Objection | None:
        """What forbids an act on the node as it stands; None if nothing does."""
        record = self._record
        return objection_to_disrupting(record.node, record.incident_id, look, record.permit, workflow.now())

    async def _gpu_uuids(self) -> tuple[str, ...]:
        """The node's GPUs as its own worker tells them; none where it does not answer."""
        try:
            return tuple(gpu.uuid for gpu in (await self._calls.probe(self._record.state.expected_gpus)).gpus)
        except (HostSilentError, OutsideError):
            return ()

    def _intended(self, step: Step, look: NodeSnapshot, gpu_uuids: tuple[str, ...]) -> Intent:
        """What is recorded before acting, and compared with afterwards (design, 3.5)."""
        record = self._record
        intent = Intent(
            rung=step.rung,
            attempt=step.attempt,
            recorded_at=workflow.now(),
            boot_id=look.boot_id,
            gpu_uuids=gpu_uuids,
            components=record.verdict.components,
            node_claim_uid=look.owner.uid,
        )
        record.begin(intent)
        return intent

    async def _act(self, intent: Intent, look: NodeSnapshot) -> RungEnd:
        record = self._record
        record.ask(None)
        record.enter(Stage.REPAIRING, f"{intent.rung}, attempt {intent.attempt}", intent.rung)
        record.waits(f"the proof of {intent.rung}", workflow.now() + self._policy.for_rung(intent.rung).deadline)
        acted_at = workflow.now()
        runner = RungRunner(
            self._calls, self._policy, record.node, record.state.expected_gpus, record.note, self._objection
        )
        end = await runner.run(intent, look)
        proven_at = workflow.now() if end.proven else None
        record.end(
            intent.model_copy(
                update={"acted_at": acted_at, "proven_at": proven_at, "proof": end.proof, "failure": end.failure}
            )
        )
        if end.proven:
            record.note(f"proof: {end.proof}")
        return end

    def _failed(self, end: RungEnd) -> None:
        """The rung did not happen, or who must decide it is a person."""
        self._record.note(end.failure)
        if end.handover is not None:
            self._record.hand_over(end.handover, end.failure)
