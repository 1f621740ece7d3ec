"""One node that gets no work before it is validated: new, replaced, rebooted by others, or returned from a repair.

Started by the controller's watch under `names.admission_id`, one open at a time per machine, for a node that bears our
startup taint. It looks and waits until the node can be judged, judges it without load and then under load, and lets it
work. A node that fails, or is late, gets an incident at the fitting rung, and is judged again once that is over. The
rules are in `sickbay.admission`, what it knows in `admission_record`, its calls in `admission_calls`.

It works by level: each turn begins with a look, so that nothing depends on a signal that may be lost (facts:
peer-nvsentinel, 4.30). However it ends, the taint goes only from a node that passed; a cancelled admission leaves it.
"""

import asyncio
from datetime import datetime, timedelta

from temporalio import workflow

from sickbay import admission
from sickbay.admission import (
    AdmissionInput,
    AdmissionOutcome,
    AdmissionResult,
    AdmissionStage,
    AdmissionView,
    Finding,
)
from sickbay.checks import ActiveDepth
from sickbay.faults import Fault
from sickbay.incident import IncidentInput
from sickbay.names import TAINT_ADMISSION, WORKFLOW_ADMISSION, incident_id
from sickbay.nodes import HostProbe, NodeSnapshot
from sickbay.safety import Obstacle, objection_to_touching
from workflows.admission_calls import AdmissionCalls
from workflows.admission_record import AdmissionRecord
from workflows.outside import HostSilentError, OutsideError

_ENDED = (Obstacle.NODE_GONE, Obstacle.BEING_REPLACED)


class _Over(Exception):  # noqa: N818 - an end, not an error
    """The admission is over; raised from wherever that becomes clear, caught once."""

    def __init__(self, outcome: AdmissionOutcome, reason: str, boot_id: str = "") -> None:
        super().__init__(reason)
        self.outcome = outcome
        self.reason = reason
        self.boot_id = boot_id


@workflow.defn(name=WORKFLOW_ADMISSION)
class NodeAdmission:
    """The admission of one node; see the module."""

    @workflow.init
    def __init__(self, start: AdmissionInput) -> None:
        self._start = start
        self._record = AdmissionRecord(workflow.info().workflow_id, start)
        self._calls = AdmissionCalls(self._record.admission_id, start.node, start.policy)
        self._rules = start.policy.admission
        self._incident_id = incident_id(start.node.cluster, start.node.machine)
        self._loaded_boot = ""
        """The boot that passed under load: a node that could only not be admitted then is not loaded again."""

    @workflow.run
    async def run(self, start: AdmissionInput) -> AdmissionResult:  # noqa: ARG002 - `__init__` has read it
        """Turn after turn until the node may work, is gone, or is left to people."""
        try:
            while True:
                await self._turn()
                if workflow.info().is_continue_as_new_suggested():
                    workflow.continue_as_new(self._record.continued())
        except _Over as over:
            return await self._close(over)
        except asyncio.CancelledError:
            await asyncio.shield(asyncio.ensure_future(self._say_cancelled()))
            raise

    @workflow.query
    def view(self) -> AdmissionView:
        """The admission as people see it."""
        return self._record.view()

    async def _turn(self) -> None:
        """Look, and take the one step that is due; every step ends in a pause or an end."""
        try:
            look = await self._look()
            expected = admission.expected_gpus(self._rules, look, self._start.expected_gpus)
            # A mark of another id is that of a cluster that was renamed, or of a node whose provider id came late.
            ids = dict.fromkeys((self._incident_id, look.incident_mark or self._incident_id))
            if (incident := await self._calls.running_incident(*ids)) is not None:
                await self._while_repaired(look, expected, incident)
                return
            self._back_from_repair()
            await self._step(look, expected)
        except OutsideError as failed:
            until = self._until()
            if failed.final and workflow.now() >= until:
                raise _Over(AdmissionOutcome.LEFT_TO_PEOPLE, f"it cannot go on: {failed}") from failed
            self._record.note(f"tries again: {failed}")
            await self._pause(f"an answer: {failed}", until, self._rules.look_every)

    async def _step(self, look: NodeSnapshot, expected: int) -> None:
        if faults := admission.layout_faults(self._start.node, look):
            await self._fail(look, faults)
        elif missing := admission.missing_to_judge(look, expected):
            self._record.enter(AdmissionStage.WAITING)
            await self._wait_or_fail(look, expected, missing)
        else:
            await self._validate(look, expected)

    async def _look(self) -> NodeSnapshot:
        """A look at the node. Ends the admission of one that is going, or whose taint somebody took away."""
        look = await self._calls.look()
        objection = objection_to_touching(self._start.node, self._incident_id, look)
        if objection is not None and objection.obstacle in _ENDED:
            raise _Over(AdmissionOutcome.GONE, objection.reason)
        if not look.admission_taint:
            raise _Over(AdmissionOutcome.TAINT_GONE, f"somebody else took {TAINT_ADMISSION} from the node")
        return look

    async def _validate(self, look: NodeSnapshot, expected: int) -> None:
        """A pass without load, and then one under load; a node that cannot pass the first is not loaded for it."""
        self._record.enter(AdmissionStage.VALIDATING)
        self._record.waits("a full healthy pass", self._record.until)
        finding = await self._pass(look, expected, ActiveDepth.NONE)
        if finding.passed and self._rules.depth is not ActiveDepth.NONE and self._loaded_boot != look.boot_id:
            self._record.note(f"well without load; now the active checks ({self._rules.depth})")
            finding = await self._pass(look, expected, self._rules.depth)
        if finding.faults:
            await self._fail(look, finding.faults)
        elif finding.missing:
            await self._wait_or_fail(look, expected, finding.missing)
        else:
            self._loaded_boot = look.boot_id
            await self._admit(look, expected)

    async def _pass(self, look: NodeSnapshot, expected: int, depth: ActiveDepth) -> Finding:
        try:
            probe = await self._calls.probe(expected, depth=depth, burn_in=self._rules.burn_in)
        except (HostSilentError, OutsideError) as failed:
            return Finding(missing=(str(failed),))
        return admission.judge(look, probe, expected)

    async def _admit(self, look: NodeSnapshot, expected: int) -> None:
        """Let it work; what forbids that has until the deadline too."""
        try:
            admittance = await self._calls.admit(look.boot_id)
        except OutsideError as failed:
            await self._wait_or_fail(look, expected, (str(failed),))
            return
        if admittance.node_gone:
            raise _Over(AdmissionOutcome.GONE, "the node was gone before it could work")
        if admittance.admitted:
            raise _Over(AdmissionOutcome.ADMITTED, "validated: a full healthy pass", look.boot_id)
        await self._wait_or_fail(look, expected, (admittance.why_not,))

    # What fails

    async def _wait_or_fail(self, look: NodeSnapshot, expected: int, missing: tuple[str, ...]) -> None:
        """Give the node until the deadline; then its own faults, or a person, decide."""
        left = self._record.until - workflow.now()
        if left > timedelta(0):
            self._record.note(f"not yet: {'; '.join(missing)}")
            await self._pause("; ".join(missing), self._record.until, min(left, self._rules.look_every))
            return
        probe: HostProbe | None = None
        try:
            probe = await self._calls.probe(expected)
        except (HostSilentError, OutsideError) as failed:
            missing = (*missing, str(failed))
        await self._fail(look, admission.overdue_faults(self._start.node, look, probe, expected, missing))

    async def _fail(self, look: NodeSnapshot, faults: tuple[Fault, ...]) -> None:
        """Open the node's incident, which repairs it or asks a person; after so many, people have the node."""
        record = self._record
        codes = ", ".join(dict.fromkeys(fault.code for fault in faults))
        record.change(faults=faults)
        if record.state.rounds >= admission.ROUNDS:
            raise _Over(
                AdmissionOutcome.LEFT_TO_PEOPLE, f"after {record.state.rounds} incidents it still fails: {codes}"
            )
        await self._calls.open_incident(
            IncidentInput(
                node=self._start.node,
                policy=self._start.policy,
                catalogue_version=self._start.catalogue_version,
                opened_at=workflow.now(),
                faults=faults,
                expected_gpus=admission.expected_gpus(self._rules, look, self._start.expected_gpus),
                attributes_missing=self._start.attributes_missing,
            )
        )
        record.change(rounds=record.state.rounds + 1, repair_began=workflow.now())
        record.note(f"failed: {codes}; its incident {self._incident_id} decides")
        await self._calls.courtesy("SickbayAdmissionFailed", f"no work until it is repaired: {codes}")

    async def _while_repaired(self, look: NodeSnapshot, expected: int, incident: str) -> None:
        """An incident has the node, by whomever it was opened. A node that was only late may yet come by itself."""
        record = self._record
        began = record.state.repair_began or workflow.now()
        record.change(repair_began=began)
        record.enter(AdmissionStage.REPAIRING)
        until = self._until()
        if workflow.now() >= until:
            raise _Over(AdmissionOutcome.LEFT_TO_PEOPLE, f"{incident} does not end")
        if codes := admission.passed_after_all(record.state, look, expected):
            record.note("it came after all")
            await self._calls.clear_incident(incident, codes)
            record.change(faults=())
        pause = admission.pause_in_repair(self._start.policy, workflow.now() - began)
        await self._pause(f"the end of {incident}", until, pause)

    def _until(self) -> datetime:
        """The deadline now: the round's, or one past every deadline of an incident, the last of which is people's."""
        began = self._record.state.repair_began
        return self._record.until if began is None else began + 2 * self._start.policy.handover_deadline

    def _back_from_repair(self) -> None:
        """The incident is over and the node still there: it has its whole time anew."""
        if self._record.state.repair_began is not None:
            self._loaded_boot = ""
            self._record.change(repair_began=None, round_began=workflow.now())
            self._record.note("its incident is over: it is validated again")

    async def _pause(self, what: str, until: datetime, duration: timedelta) -> None:
        self._record.waits(what, until)
        await workflow.sleep(duration, summary=what[:180])

    # Ways out

    async def _close(self, over: _Over) -> AdmissionResult:
        record = self._record
        record.outcome = over.outcome
        record.waits("", None)
        record.note(f"closed, {over.outcome}: {over.reason}")
        record.enter(AdmissionStage.CLOSED)
        match over.outcome:
            case AdmissionOutcome.ADMITTED:
                await self._calls.courtesy("SickbayAdmitted", over.reason, warning=False)
            case AdmissionOutcome.LEFT_TO_PEOPLE:
                await self._calls.courtesy("SickbayNotAdmitted", f"{over.reason}; {TAINT_ADMISSION} stays on the node")
        return AdmissionResult(
            outcome=over.outcome,
            reason=over.reason,
            boot_id=over.boot_id,
            closed_at=workflow.now(),
            view=record.view(),
        )

    async def _say_cancelled(self) -> None:
        words = f"cancelled: {TAINT_ADMISSION} stays, and the node gets no work until somebody takes it away"
        self._record.waits("", None)
        self._record.note(words)
        await self._calls.courtesy("SickbayNotAdmitted", words)
