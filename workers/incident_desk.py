"""Everything the watch says to Temporal and asks of it: how an incident stands, opening one, telling it more.

Used by `workers.triage`. Every call has a timeout, since the watch must go on containing nodes while Temporal is away;
whatever could not be said is said at a later look. Opening is one atomic call (start with a signal), so that two
controllers, or two tries of one, give one incident (facts: Temporal, 1.4).
"""

from collections.abc import Collection
from datetime import timedelta
from typing import Final

from temporalio.client import Client, WorkflowExecutionDescription, WorkflowExecutionStatus, WorkflowFailureError
from temporalio.client import WorkflowQueryFailedError as QueryFailedError
from temporalio.client import WorkflowQueryRejectedError as QueryRejectedError
from temporalio.service import RPCError, RPCStatusCode

from activities import incident_starts
from sickbay import names
from sickbay.faults import Fault
from sickbay.incident import FaultReport, FaultsCleared, IncidentInput, IncidentResult, IncidentView
from sickbay.triage import LEFT_TO_PEOPLE, KnownIncident, Standing

LOOK_TIMEOUT: Final = timedelta(seconds=2)
"""The longest that containment waits for Temporal's word on whether a person has decided on this node."""
CALL_TIMEOUT: Final = timedelta(seconds=10)

ABSENT: Final = KnownIncident(standing=Standing.ABSENT)
UNKNOWN: Final = KnownIncident(standing=Standing.UNKNOWN)


class TemporalSilentError(Exception):
    """Temporal did not take a message; the message is to be said again."""


class IncidentDesk:
    """The incidents of one cluster, as the watch speaks with them; silent until `connected`."""

    def __init__(self, cluster: str) -> None:
        self._cluster = cluster
        self._connected: Client | None = None
        self._missing: frozenset[str] = frozenset()
        self._decided: dict[str, KnownIncident] = {}
        """Incidents that a person ended, as last seen: their word holds also while Temporal is away."""

    def connected(self, client: Client, missing_attributes: Collection[str] = ()) -> None:
        """Speak through this client from now on.

        `missing_attributes` names search attributes that the namespace lacks: a start that named one would be refused.
        """
        self._connected = client
        self._missing = frozenset(missing_attributes)

    @property
    def missing_attributes(self) -> tuple[str, ...]:
        """Search attributes that the namespace lacks, sorted."""
        return tuple(sorted(self._missing))

    @property
    def client(self) -> Client:
        """The connection. Raises TemporalSilentError while there is none."""
        if self._connected is None:
            raise TemporalSilentError("there is no connection to Temporal yet")
        return self._connected

    async def look(self, incident_id: str) -> KnownIncident:
        """How an incident stands. Never raises: a Temporal that does not answer is its own standing."""
        if self._connected is None:
            return self._unknown(incident_id)
        handle = self._connected.get_workflow_handle(incident_id)
        try:
            described = await handle.describe(rpc_timeout=LOOK_TIMEOUT)
            if described.status in (WorkflowExecutionStatus.RUNNING, WorkflowExecutionStatus.CONTINUED_AS_NEW):
                self._decided.pop(incident_id, None)
                return KnownIncident(standing=Standing.OPEN, faults=await self._faults(incident_id))
            closed = await self._closed(described)
        except RPCError as error:
            return ABSENT if error.status is RPCStatusCode.NOT_FOUND else self._unknown(incident_id)
        if closed.outcome in LEFT_TO_PEOPLE:
            self._decided[incident_id] = closed
        else:
            self._decided.pop(incident_id, None)
        return closed

    def _unknown(self, incident_id: str) -> KnownIncident:
        """A standing that Temporal does not tell, with what a person decided before, if anything."""
        decided = self._decided.get(incident_id)
        return decided.model_copy(update={"standing": Standing.UNKNOWN}) if decided else UNKNOWN

    async def open(self, start: IncidentInput, report: FaultReport) -> None:
        """Start the incident of a machine, or tell the open one. Raises TemporalSilentError."""
        start = start.model_copy(update={"attributes_missing": self.missing_attributes})
        try:
            await incident_starts.open_incident(self.client, start, report)
        except RPCError as error:
            raise TemporalSilentError(f"the incident of {start.node.name} was not opened: {error.message}") from error

    async def report(self, incident_id: str, report: FaultReport) -> bool:
        """Tell an open incident of faults; false if it is over by now. Raises TemporalSilentError."""
        return await self._signal(incident_id, names.SIGNAL_REPORT_FAULTS, report)

    async def clear(self, incident_id: str, cleared: FaultsCleared) -> bool:
        """Tell an open incident of faults that are gone; false if it is over by now. Raises TemporalSilentError."""
        return await self._signal(incident_id, names.SIGNAL_CLEAR_FAULTS, cleared)

    async def open_ids(self) -> frozenset[str]:
        """Ids of all open incidents of this cluster, as visibility knows them: seconds late, and for hints only.

        Raises TemporalSilentError.
        """
        query = (
            f"WorkflowType = '{names.WORKFLOW_INCIDENT}' AND ExecutionStatus = 'Running' "
            f"AND WorkflowId STARTS_WITH '{names.incident_id(self._cluster, '')}'"
        )
        try:
            listed = self.client.list_workflows(query, rpc_timeout=CALL_TIMEOUT)
            return frozenset([execution.id async for execution in listed])
        except RPCError as error:
            raise TemporalSilentError(f"open incidents cannot be listed: {error.message}") from error

    async def _signal(self, incident_id: str, signal: str, message: FaultReport | FaultsCleared) -> bool:
        try:
            return await incident_starts.signal_incident(self.client, incident_id, signal, message)
        except RPCError as error:
            raise TemporalSilentError(f"{incident_id} did not take {signal}: {error.message}") from error

    async def _faults(self, incident_id: str) -> tuple[Fault, ...] | None:
        """What an open incident knows; None if no worker answers for it now."""
        handle = self.client.get_workflow_handle(incident_id)
        try:
            view: IncidentView = await handle.query(
                names.QUERY_VIEW, result_type=IncidentView, rpc_timeout=LOOK_TIMEOUT
            )
        except (RPCError, QueryFailedError, QueryRejectedError):
            return None
        return view.faults

    async def _closed(self, described: WorkflowExecutionDescription) -> KnownIncident:
        """How a closed incident ended; without an outcome if it was terminated, cancelled or failed."""
        known = KnownIncident(standing=Standing.CLOSED, closed_at=described.close_time)
        handle = self.client.get_workflow_handle(described.id, run_id=described.run_id, result_type=IncidentResult)
        try:
            result = await handle.result(follow_runs=False, rpc_timeout=LOOK_TIMEOUT)
        except WorkflowFailureError:
            return known
        return known.model_copy(update={"outcome": result.outcome, "faults": result.view.faults})
