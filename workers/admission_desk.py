"""What the watch says to Temporal of admissions and asks of it, over the connection of `workers.incident_desk`.

Used by `workers.node_admissions`. Every call has a timeout; what could not be said is said at a later look, and until
then the node keeps its taint.
"""

from typing import Final

from temporalio.client import WorkflowExecutionDescription, WorkflowExecutionStatus, WorkflowFailureError
from temporalio.common import WorkflowIDConflictPolicy, WorkflowIDReusePolicy
from temporalio.service import RPCError, RPCStatusCode

from activities.incident_starts import attributes_of
from sickbay import names, search_attributes
from sickbay.admission import AdmissionInput, AdmissionOutcome, AdmissionResult, AdmissionStage, KnownAdmission
from workers.incident_desk import CALL_TIMEOUT, LOOK_TIMEOUT, IncidentDesk, TemporalSilentError

_RUNNING: Final = (WorkflowExecutionStatus.RUNNING, WorkflowExecutionStatus.CONTINUED_AS_NEW)


class AdmissionDesk:
    """The admissions of one cluster. Every method raises TemporalSilentError where Temporal does not answer."""

    def __init__(self, cluster: str, incidents: IncidentDesk) -> None:
        self._cluster = cluster
        self._incidents = incidents

    async def look(self, admission_id: str) -> KnownAdmission:
        """How the latest admission of a machine stands."""
        handle = self._incidents.client.get_workflow_handle(admission_id)
        try:
            described = await handle.describe(rpc_timeout=LOOK_TIMEOUT)
            if described.status in _RUNNING:
                return KnownAdmission(open=True)
            left = await self._left_to_people(described)
        except RPCError as error:
            if error.status is RPCStatusCode.NOT_FOUND:
                return KnownAdmission()
            raise TemporalSilentError(f"{admission_id}: {error.message}") from error
        return KnownAdmission(closed_at=described.close_time, left_to_people=left)

    async def start(self, start: AdmissionInput) -> None:
        """Start the admission of a machine, unless one runs."""
        start = start.model_copy(update={"attributes_missing": self._incidents.missing_attributes})
        node = start.node
        try:
            await self._incidents.client.start_workflow(
                names.WORKFLOW_ADMISSION,
                start,
                id=names.admission_id(self._cluster, node.machine),
                task_queue=names.CONTROLLER_QUEUE,
                id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
                id_reuse_policy=WorkflowIDReusePolicy.ALLOW_DUPLICATE,
                search_attributes=attributes_of(node, AdmissionStage.WAITING, (), start.attributes_missing),
                static_summary=f"{node.name}: no work before it is validated",
                rpc_timeout=CALL_TIMEOUT,
            )
        except RPCError as error:
            raise TemporalSilentError(f"the admission of {node.name} was not started: {error.message}") from error

    async def under_validation(self) -> frozenset[str]:
        """Ids of running admissions that take part in the batch, as visibility knows them: seconds late."""
        query = (
            f"WorkflowType = '{names.WORKFLOW_ADMISSION}' AND ExecutionStatus = 'Running' "
            f"AND WorkflowId STARTS_WITH '{names.admission_id(self._cluster, '')}'"
        )
        found = set()
        try:
            async for execution in self._incidents.client.list_workflows(query, rpc_timeout=CALL_TIMEOUT):
                if execution.typed_search_attributes.get(search_attributes.STAGE) != AdmissionStage.REPAIRING:
                    found.add(execution.id)
        except RPCError as error:
            raise TemporalSilentError(f"admissions cannot be listed: {error.message}") from error
        return frozenset(found)

    async def _left_to_people(self, described: WorkflowExecutionDescription) -> bool:
        """Whether it ended without a word on the node; an end that its own rules did not make is a person's."""
        if described.status is not WorkflowExecutionStatus.COMPLETED:
            return True
        handle = self._incidents.client.get_workflow_handle(
            described.id, run_id=described.run_id, result_type=AdmissionResult
        )
        try:
            result = await handle.result(follow_runs=False, rpc_timeout=LOOK_TIMEOUT)
        except WorkflowFailureError:
            return True
        return result.outcome is AdmissionOutcome.LEFT_TO_PEOPLE
