"""What an incident does about a suspicion: a node that jobs suspect, and of which no detector knows anything.

Called by the incident's watch (design, 3.2: no evidence, no exclusion). New work is kept away already; as soon as no
GPU is in use, all of them are put under load. If they pass, the suspicion is over; if they do not, the faults that they
show are the incident's from then on. The two are told apart by `sickbay.suspicions` and the rule of every verification.
"""

from datetime import datetime

from temporalio import workflow

from sickbay import admission, suspicions
from sickbay.checks import ActiveDepth
from sickbay.ladder import Step
from workflows.incident_calls import IncidentCalls
from workflows.incident_record import IncidentRecord
from workflows.incident_waits import IncidentWaits
from workflows.outside import HostSilentError, OutsideError


class SuspicionCheck:
    """The active check that decides on a suspicion."""

    def __init__(self, record: IncidentRecord, calls: IncidentCalls, waits: IncidentWaits) -> None:
        self._record = record
        self._calls = calls
        self._waits = waits

    async def decide(self, step: Step, until: datetime) -> bool:
        """Try until the checks have decided or the plan changes; False at the deadline."""
        while workflow.now() < until:
            missing = await self._try()
            if not missing or self._waits.overtaken(step):
                return True
            pause = min(until, workflow.now() + self._record.policy.look_every)
            what = f"an active check of the idle node: {'; '.join(missing)}"
            if await self._waits.for_plan_to_change(step, pause, what):
                return True
        return False

    async def _try(self) -> tuple[str, ...]:
        """One pass under load; what keeps it from deciding, in words."""
        record = self._record
        look = await self._waits.look()
        expected = record.state.expected_gpus or look.gpu_devices or look.gpu_capacity or 1
        load = record.policy.verification.burn_in
        try:
            probe = await self._calls.probe(expected, depth=ActiveDepth.BURN_IN, burn_in=load)
        except (HostSilentError, OutsideError) as failed:
            return (str(failed),)
        if shown := tuple(fault for fault in probe.faults if fault.code not in suspicions.CODES):
            record.join(shown)
        if missing := suspicions.not_tried(probe) or admission.judge(look, probe, expected).missing:
            return missing
        if suspicions.only_suspicions(record.troubles):
            record.note(f"every GPU passed under load for {load}: the suspicion is not confirmed")
            record.clear(tuple(sorted({fault.code for fault in record.troubles})))
        return ()
