"""The end of an attempt: evidence before anything is removed, the verdict, the removal, who is told, and what follows.

Called by the training workflow. The next attempt may only begin once this one can write no more (design, 3.15): that is
waited for here, and where it cannot be had a person decides.
"""

from temporalio import workflow

from activities.job_evidence import EvidenceRequest
from sickbay import suspicions
from sickbay.training import blame, bookkeeping, budgets, decisions
from sickbay.training.attempts import AttemptLook, AttemptState
from sickbay.training.evidence import Ending, Evidence
from sickbay.training.history import AttemptEnd
from sickbay.training.job import JobOutcome, JobStage
from sickbay.training.pace_of_job import Ended
from sickbay.training.verdicts import FailureVerdict
from workflows.outside import HostSilentError, OutsideError
from workflows.training_calls import TrainingCalls
from workflows.training_record import TrainingRecord
from workflows.training_waits import JobOver, TrainingWaits


class AttemptEnding:
    """The end of the newest attempt."""

    def __init__(self, record: TrainingRecord, calls: TrainingCalls, waits: TrainingWaits) -> None:
        self._record = record
        self._calls = calls
        self._waits = waits
        self._spec = record.spec

    async def ended(self, ended: Ended, look: AttemptLook) -> None:
        """It ended by itself, or stands still."""
        record = self._record
        record.remember(bookkeeping.stopped(record.history, ended.end, ended.why, workflow.now()))
        record.enter(JobStage.COLLECTING, f"attempt {record.history.attempts[-1].attempt} is over: {ended.why}")
        await self._last_checkpoints()
        if (proof := await self._target_proof()) is not None:
            record.remember(bookkeeping.stopped(record.history, AttemptEnd.REACHED_TARGET, proof, workflow.now()))
            await self._remove(look)
            raise JobOver(JobOutcome.SUCCEEDED, "the target is reached", proof=proof)
        evidence = await self._evidence(ended.ending, look)
        verdict = await self._verdict(evidence)
        node, gpu = blame.culprit(verdict, evidence)
        record.remember(bookkeeping.judged(record.history, verdict, node, gpu, workflow.now()))
        record.note(f"{verdict.failure_class} ({verdict.rule}): {verdict.reason}")
        await self._remove(look)
        await self._tell(verdict, node, gpu, look)
        self._decide()

    async def left(self, why: str, look: AttemptLook | None) -> None:
        """It is ended by us: nobody is to blame, and no evidence is needed."""
        record = self._record
        record.remember(bookkeeping.stopped(record.history, AttemptEnd.STOPPED, why, workflow.now()))
        await self._remove(look)
        limit = self._spec.budgets.disruptions_per_hour
        free = budgets.next_free(budgets.starts(record.history), limit, workflow.now())
        record.change(not_before=free, planned_at=workflow.now())

    async def _last_checkpoints(self) -> None:
        """What the attempt made durable until its end."""
        record = self._record
        attempts = tuple(each.attempt for each in record.history.attempts)
        try:
            listing = await self._calls.list_checkpoints(attempts, ())
        except OutsideError as failed:
            record.note(f"the checkpoints cannot be listed now: {failed}")
            return
        newest = next((each for each in listing.checkpoints if each.may_resume), None)
        look = AttemptLook(observed_at=workflow.now(), state=AttemptState.ENDED, newest=newest)
        record.remember(bookkeeping.proven(bookkeeping.looked(record.history, look, workflow.now())))

    async def _target_proof(self) -> str | None:
        """What proves that the job is done; None if it is not, or if nobody can tell now."""
        record = self._record
        attempts = tuple(each.attempt for each in record.history.attempts)
        try:
            target = await self._calls.target(attempts, record.history.durable_step)
        except OutsideError as failed:
            record.note(f"nobody can tell now whether the target is reached: {failed}")
            return None
        return target.proof if target.reached else None

    async def _evidence(self, ending: Ending, look: AttemptLook) -> Evidence:
        """All that answers in time; without any of it, that nothing answered."""
        record = self._record
        newest = record.history.attempts[-1]
        resumed = record.history.lineage[-1].resumed_path
        request = EvidenceRequest(
            ref=record.ref(newest.attempt),
            spec=self._spec,
            ending=ending,
            look=look,
            started_at=newest.running_at,
            ended_at=newest.stopped_at or workflow.now(),
            stepped=True if newest.first_step_at is not None else _stepped(look),
            ran_before=bookkeeping.stepped_before(record.history),
            resumed_from=resumed,
            target_reached=False,
            past=bookkeeping.past_failures(record.history),
            deadline=self._spec.deadlines.evidence,
        )
        try:
            return await self._calls.collect(request)
        except (OutsideError, HostSilentError) as failed:
            return Evidence(
                attempt=newest.attempt,
                ending=ending,
                ended_at=request.ended_at,
                stepped=request.stepped,
                ran_before=request.ran_before,
                target_step=self._spec.target.step,
                past=request.past,
                missing=(f"all evidence: {failed}"[:300],),
            )

    async def _verdict(self, evidence: Evidence) -> FailureVerdict:
        while True:
            verdict = await self._waits.until_answered(lambda: self._calls.classify(evidence))
            if verdict is not None:
                return verdict

    async def _remove(self, look: AttemptLook | None) -> None:
        """Delete the attempt, and wait until it can write no more; without that a person must decide."""
        record = self._record
        plan = record.state.plan
        if plan is None:
            return
        record.enter(JobStage.TEARING_DOWN)
        deadline = self._spec.deadlines.teardown
        record.waits("its pods to be gone", workflow.now() + deadline)
        placements = look.placements if look else ()
        while True:
            try:
                await self._calls.delete(plan.ref)
                gone = await self._calls.wait_gone(plan.ref, placements, deadline)
            except (OutsideError, HostSilentError) as failed:
                record.note(f"{plan.ref.name} is not known to be gone: {failed}")
                words = str(failed)
            else:
                if gone.gone:
                    break
                words = ", ".join(f"{place.pod} on {place.node}" for place in gone.left)
                record.note(f"still there after {deadline}: {words}")
            # Two writers are worse than no writer: nothing begins until this one is surely gone.
            record.enter(JobStage.HELD)
            record.waits(f"{plan.ref.name} to be gone ({words}); end its machine, or force its pods", None)
            await self._waits.wait(lambda: False, deadline, "the attempt to be gone")
            self._waits.heed_cancellation()
        record.remember(bookkeeping.gone(record.history, workflow.now()))
        record.change(plan=None, look=None, slow=(), capacity_told=False, planned_at=workflow.now())

    async def _tell(self, verdict: FailureVerdict, node: str, gpu: str, look: AttemptLook) -> None:
        """Tell the incidents of nodes with hardware evidence, and the cluster's suspicions of where it failed."""
        record = self._record
        uids = {place.node: place.node_uid for place in look.placements}
        for blamed in verdict.blamed:
            if blamed.hardware and not blamed.known:
                fault = suspicions.fault_of_blame(blamed, record.job_id, workflow.now())
                await self._calls.report_node(blamed.node, uids.get(blamed.node, ""), (fault,))
        if node:
            attempt = record.history.attempts[-1].attempt
            explained = blame.is_explained(verdict)
            await self._calls.tell_suspicions(attempt, node, verdict, gpu, workflow.now(), explained=explained)

    def _decide(self) -> None:
        """What follows, by the budgets."""
        record = self._record
        record.enter(JobStage.DECIDING)
        decision = decisions.after_failure(self._spec, record.history, workflow.now())
        if decision.kind is decisions.Next.STOP:
            raise JobOver(JobOutcome.FAILED, decision.why)
        if decision.kind is decisions.Next.ASK_PERSON:
            record.hold(decision.why)
            return
        record.keep_off(decision.exclude)
        if decision.common_cause:
            record.note(decision.common_cause)
        off = f", without {', '.join(each.node for each in decision.exclude)}" if decision.exclude else ""
        record.note(f"restarts{off}; left: {decision.left}")
        record.change(not_before=decision.not_before, planned_at=workflow.now())


def _stepped(look: AttemptLook) -> bool | None:
    """Whether the attempt ever stepped; None where no rank reports at all."""
    return False if look.ranks is not None and look.ranks.reporting else None
