"""What the training jobs of one cluster suspect of its nodes: an entity that lasts, told by signals.

Started with the first signal of a job (`activities.job_incidents`). It keeps what jobs tell (rules in
`sickbay.suspicions`), opens the incident of a node where one job after another failed, and shows its account. It blocks
and repairs nothing itself.
"""

from datetime import timedelta
from typing import Final

from temporalio import workflow

from activities.job_incidents import JobIncidentActivities, NodeReport, NodeReported
from sickbay import suspicions
from sickbay.names import WORKFLOW_SUSPICIONS
from sickbay.suspicions import Suspect, Suspicions
from sickbay.training.handshake import HurtReport, SuspicionsInput
from workflows import policies
from workflows.outside import OutsideError, told

AGAIN: Final = timedelta(hours=1)
"""Until a suspect is looked at again whose incident could not be opened, or that the day's cap held back."""


@workflow.defn(name=WORKFLOW_SUSPICIONS)
class NodeSuspicions:
    """The suspicions of one cluster; see the module."""

    @workflow.init
    def __init__(self, start: SuspicionsInput) -> None:
        self._start = start
        self._known = Suspicions.model_validate(start.carried) if start.carried else Suspicions()
        self._news = False
        self._show()

    @workflow.run
    async def run(self, start: SuspicionsInput) -> None:  # noqa: ARG002 - `__init__` has read it
        """Hear, name, and rest; for ever."""
        while True:
            self._news = False
            for suspect in suspicions.new_suspects(self._known, workflow.now()):
                await self._name(suspect)
            if workflow.info().is_continue_as_new_suggested() and not self._news:
                carried = self._known.model_dump(mode="json")
                workflow.continue_as_new(self._start.model_copy(update={"carried": carried}))
            await self._rest()

    @workflow.signal
    def job_hurt(self, report: HurtReport) -> None:
        """An attempt of a job failed, and this is where its culprit ran."""
        self._known = suspicions.heard(self._known, report, workflow.now())
        self._news = True
        self._show()

    @workflow.query
    def view(self) -> Suspicions:
        """All that is known."""
        return self._known

    async def _name(self, suspect: Suspect) -> None:
        """Open the suspect's incident. One whose machine is gone is named too, and so never asked for again."""
        report = NodeReport(
            cluster=self._start.cluster,
            node=suspect.node.name,
            node_uid=suspect.node.uid,
            job_id=", ".join(suspect.jobs),
            faults=(suspicions.fault_of_suspect(suspect),),
        )
        try:
            reported: NodeReported = await told(
                workflow.execute_activity_method(
                    JobIncidentActivities.report_node,
                    report,
                    **policies.LOOK,
                    summary=f"suspects {suspect.node.name}",
                )
            )
        except OutsideError as failed:
            workflow.logger.warning("the incident of suspect %s was not opened: %s", suspect.node.name, failed)
            return
        self._known = suspicions.named(self._known, (suspect,))
        workflow.logger.info(
            "node is a suspect", extra={"node": suspect.node.name, "incident": reported.incident_id or "gone"}
        )
        self._show()

    async def _rest(self) -> None:
        held_back = bool(suspicions.new_suspects(self._known, workflow.now() + timedelta(days=1)))
        try:
            await workflow.wait_condition(
                lambda: self._news, timeout=AGAIN if held_back else None, timeout_summary="suspects that wait"
            )
        except TimeoutError:
            return

    def _show(self) -> None:
        lines = [f"{len(self._known.reports)} unexplained failures of jobs are known for 28 days."]
        lines += [
            f"- **{one.node.name}**, {one.since:%Y-%m-%d %H:%M}: {len(one.jobs)} jobs failed on it: {one.fingerprint}"
            for one in self._known.named
        ]
        workflow.set_current_details("\n".join(lines))
