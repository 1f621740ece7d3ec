"""What follows a proven rung: verification, soak, and the end of the incident if the node is well and stays so.

Called by the climb right after the proof, and by the incident workflow where a hold or a continued run came in between.
A fault that arises after the proof is a failed verification, not a new incident (design, 5).
"""

from temporalio import workflow

from sickbay.checks import ActiveDepth
from sickbay.faults import Rung
from sickbay.incident import HandoverReason, Intent, Outcome, Stage
from sickbay.nodes import NodeRef, NodeSnapshot
from sickbay.proof import Judgement, depth_due, verification
from workflows.incident_calls import IncidentCalls
from workflows.incident_record import IncidentRecord
from workflows.incident_waits import Ended, IncidentWaits
from workflows.outside import HostSilentError, OutsideError


class Settling:
    """The verification and soak of one incident."""

    def __init__(self, record: IncidentRecord, calls: IncidentCalls, waits: IncidentWaits) -> None:
        self._record = record
        self._calls = calls
        self._waits = waits
        self._policy = record.policy
        self.verified_boot = ""
        """The boot of the last full healthy pass, if the last one was."""

    async def settle(self, intent: Intent) -> None:
        """Verify and soak what a proven rung has left behind; ends the incident if the node is well and stays so."""
        record = self._record
        self._waits.heed_orders()
        if record.watched is None:
            record.watch(intent)
        soaks = record.state.stage is Stage.SOAKING
        if (soaks or await self._verified(intent)) and await self._soaked():
            raise Ended(Outcome.RETURNED, f"{intent.rung} cured it", proof=intent.proof)

    async def settle_successor(self, successor: NodeRef, proof: str) -> None:
        """Another node stands in this one's place; it must be well too, or a person decides."""
        record = self._record
        record.enter(Stage.VERIFYING, f"verifies {successor.name}")
        until = workflow.now() + self._policy.verify_deadline
        while True:
            try:
                probe = await self._calls.probe(record.state.expected_gpus, successor, depth=self._depth_of_successor())
                missing = [fault.code for fault in probe.faults if fault.rung is not Rung.NONE]
                missing += [] if probe.gpus_answered else ["its GPUs do not answer"]
            except (HostSilentError, OutsideError) as failed:
                missing = [str(failed)]
            if not missing:
                raise Ended(Outcome.REPLACED, "replaced", proof=proof)
            if workflow.now() >= until:
                break
            await workflow.sleep(self._policy.verify_every)
        record.hand_over(HandoverReason.LADDER_EXHAUSTED, f"the successor is not well: {'; '.join(missing)}")

    async def _verified(self, intent: Intent) -> bool:
        """Whether the node passes in full within the deadline; a fault after the proof ends it at once."""
        record = self._record
        record.enter(Stage.VERIFYING, "verifies the repair")
        until = workflow.now() + self._policy.verify_deadline
        record.waits("a full healthy pass", until)
        while True:
            judgement = await self.judge(await self._waits.look(), self._policy.verification.after(intent.rung))
            if judgement.passed or judgement.final or record.state.relapse or workflow.now() >= until:
                break
            await self._waits.brief(lambda: bool(record.state.relapse), str(judgement))
        if judgement.passed and not record.state.relapse:
            record.note("verified: a full healthy pass")
            return True
        record.unwell(record.state.relapse or str(judgement))
        return False

    async def _soaked(self) -> bool:
        """Whether the node stays well for the soak, and is well at its end. After a hold it is settled anew."""
        record = self._record
        record.enter(Stage.SOAKING)
        until = record.since + self._policy.soak
        record.waits("the soak to end", until)
        await self._waits.soak(until, lambda: bool(record.state.relapse) or record.holding)
        trouble = record.state.relapse
        if not trouble and record.holding:
            return False
        if not trouble:
            judgement = await self.judge(await self._waits.look())
            trouble = str(judgement)
        if trouble:
            record.unwell(trouble)
            return False
        record.cured()
        return True

    def _depth_of_successor(self) -> ActiveDepth:
        """One that was admitted has been loaded already: a successor only counts once its startup taint is gone."""
        policy = self._policy
        return ActiveDepth.NONE if policy.admission.enabled else policy.verification.after(Rung.REPLACE)

    async def judge(self, look: NodeSnapshot, wanted: ActiveDepth = ActiveDepth.NONE) -> Judgement:
        """One full pass, by the node's own worker and by the API server; of the active checks, to the wanted depth."""
        record = self._record
        expected = record.state.expected_gpus
        try:
            probe = await self._calls.probe(expected, depth=depth_due(wanted, look, expected))
        except (HostSilentError, OutsideError) as failed:
            return Judgement(missing=(str(failed),))
        judgement = verification(look, probe, expected)
        self.verified_boot = look.boot_id if judgement.passed else ""
        if judgement.final:
            record.join(probe.faults)
        return judgement
