"""What Temporal itself knows: past incidents of a machine, and which workflows still run; and opening an incident.

Incidents ask for the history of their machine once, at opening; the disruption budget asks for its holders while it
waits. An admission opens the incident of a node that failed it, and tells it if the node came late. Visibility lags by
up to seconds, which costs nothing: an incident's predecessor closed long before, or the two are one workflow.
"""

from datetime import UTC, datetime, timedelta
from typing import Final

from temporalio import activity
from temporalio.client import Client, WorkflowExecution, WorkflowExecutionStatus
from temporalio.service import RPCError, RPCStatusCode

from activities.incident_starts import open_incident, signal_incident
from sickbay import search_attributes
from sickbay.faults import Rung
from sickbay.incident import FaultReport, FaultsCleared, IncidentInput, Outcome
from sickbay.model import Frozen
from sickbay.names import SIGNAL_CLEAR_FAULTS

RPC_TIMEOUT: Final = timedelta(seconds=10)
INCIDENTS_READ: Final = 100
"""Of one machine, the newest: far more than any rule asks for, and an end for a machine that flaps."""


class HistoryQuery(Frozen):
    """Closed incidents of one machine inside a window."""

    cluster: str
    machine: str
    window: timedelta


class PastIncident(Frozen):
    """One closed incident."""

    outcome: Outcome
    rung: Rung
    closed_at: datetime


class PastIncidents(Frozen):
    """Newest first."""

    incidents: tuple[PastIncident, ...]


class HoldersQuery(Frozen):
    """Workflow ids that hold or await a permit."""

    holders: tuple[str, ...]


class HoldersGone(Frozen):
    """Those of them that no longer run."""

    gone: tuple[str, ...]


class IncidentOpening(Frozen):
    """Open the incident of a node that must not have work."""

    start: IncidentInput
    report: FaultReport


class IncidentOpened(Frozen):
    """It was opened, or an open one was told."""

    incident_id: str


class IncidentClearing(Frozen):
    """Tell an incident that what it was opened for is gone."""

    incident_id: str
    cleared: FaultsCleared


class IncidentTold(Frozen):
    """Whether the incident was still open."""

    open: bool


class IncidentActivities:
    """What workflows ask of the incidents beside them, over one injected Temporal client.

    All of these activities raise RPCError, to be retried, if the server does not answer.
    """

    def __init__(self, client: Client) -> None:
        self._client = client

    @activity.defn
    async def past_incidents(self, query: HistoryQuery) -> PastIncidents:
        """Closed incidents of a machine, newest first."""
        since = datetime.now(UTC) - query.window
        executions = self._client.list_workflows(
            _past_incidents(query, since), limit=INCIDENTS_READ, rpc_timeout=RPC_TIMEOUT
        )
        found = [incident async for execution in executions if (incident := _past_incident(execution))]
        return PastIncidents(incidents=tuple(sorted(found, key=lambda incident: incident.closed_at, reverse=True)))

    @activity.defn
    async def check_holders(self, query: HoldersQuery) -> HoldersGone:
        """Which holders have ended or never were. One of whom nothing is known keeps its permit."""
        gone = []
        for holder in query.holders:
            if not await self._runs(holder):
                gone.append(holder)
            activity.heartbeat()
        return HoldersGone(gone=tuple(gone))

    @activity.defn
    async def open_incident(self, opening: IncidentOpening) -> IncidentOpened:
        """Open the incident of a machine, or tell the one that is open."""
        return IncidentOpened(incident_id=await open_incident(self._client, opening.start, opening.report))

    @activity.defn
    async def clear_incident(self, clearing: IncidentClearing) -> IncidentTold:
        """Tell an incident that faults are gone."""
        signal = SIGNAL_CLEAR_FAULTS
        return IncidentTold(open=await signal_incident(self._client, clearing.incident_id, signal, clearing.cleared))

    async def _runs(self, holder: str) -> bool:
        """Whether the newest run of a workflow id is open; a continued one is."""
        try:
            description = await self._client.get_workflow_handle(holder).describe(rpc_timeout=RPC_TIMEOUT)
        except RPCError as error:
            if error.status == RPCStatusCode.NOT_FOUND:
                return False
            raise
        return description.status == WorkflowExecutionStatus.RUNNING


def _past_incidents(query: HistoryQuery, since: datetime) -> str:
    """The visibility query. Only an incident that ended by its own rules has an outcome."""
    return (
        f"{search_attributes.MACHINE.name} = {_quoted(query.machine)}"
        f" AND {search_attributes.CLUSTER.name} = {_quoted(query.cluster)}"
        f" AND {search_attributes.OUTCOME.name} IS NOT NULL"
        f" AND ExecutionStatus = 'Completed' AND CloseTime >= {_quoted(since.isoformat())}"
    )


def _quoted(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def _past_incident(execution: WorkflowExecution) -> PastIncident | None:
    """None for an execution whose words this version does not know: a newer worker may have written it."""
    outcome = execution.typed_search_attributes.get(search_attributes.OUTCOME)
    rung = execution.typed_search_attributes.get(search_attributes.RUNG)
    if outcome not in set(Outcome) or rung not in set(Rung) or execution.close_time is None:
        return None
    return PastIncident(outcome=Outcome(outcome), rung=Rung(rung), closed_at=execution.close_time)
