"""The activities of an admission, each with its timeouts, retries and the summary that people read on the timeline.

Called by the admission workflow. What it shares with an incident (looks, probes, Events) is that one's own; here is
what only an admission asks. No decisions.
"""

from temporalio import workflow

from activities.incidents import (
    HoldersQuery,
    IncidentActivities,
    IncidentClearing,
    IncidentOpening,
)
from activities.nodes import AdmitRequest, Admittance, NodeActivities
from sickbay.incident import FaultReport, FaultsCleared, IncidentInput
from workflows import policies
from workflows.incident_calls import IncidentCalls
from workflows.outside import told


class AdmissionCalls(IncidentCalls):
    """All that one admission asks of the world."""

    async def admit(self, boot_id: str) -> Admittance:
        """Let the node work."""
        return await told(
            workflow.execute_activity_method(
                NodeActivities.admit_node,
                AdmitRequest(node=self._node, boot_id=boot_id),
                **policies.LOOK,
                summary=f"let {self._node.name} work",
            )
        )

    async def running_incident(self, *incident_ids: str) -> str | None:
        """The first of these incidents that is open."""
        holders = await told(
            workflow.execute_activity_method(
                IncidentActivities.check_holders,
                HoldersQuery(holders=incident_ids),
                **policies.LOOK,
                summary="has the node an incident?",
            )
        )
        return next((each for each in incident_ids if each not in holders.gone), None)

    async def open_incident(self, start: IncidentInput) -> None:
        """Open the incident of a node that failed, or tell the open one."""
        report = FaultReport(faults=start.faults, observed_at=start.opened_at)
        codes = ", ".join(sorted({fault.code for fault in start.faults}))
        await told(
            workflow.execute_activity_method(
                IncidentActivities.open_incident,
                IncidentOpening(start=start, report=report),
                **policies.LOOK,
                summary=f"open an incident: {codes}"[:180],
            )
        )

    async def clear_incident(self, incident_id: str, codes: tuple[str, ...]) -> None:
        """Tell the incident that the node came after all."""
        cleared = FaultsCleared(codes=codes, observed_at=workflow.now())
        await told(
            workflow.execute_activity_method(
                IncidentActivities.clear_incident,
                IncidentClearing(incident_id=incident_id, cleared=cleared),
                **policies.LOOK,
                summary="the node came after all",
            )
        )
