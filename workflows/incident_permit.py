"""An incident's side of the talk with the disruption budget. Called by the incident workflow and its climb."""

from datetime import datetime

from temporalio import workflow
from temporalio.exceptions import ApplicationError

from sickbay.faults import Rung
from sickbay.names import budget_id
from sickbay.permits import PermitRelease, PermitRenewal, PermitRequest
from workflows.incident_record import IncidentRecord


class PermitDesk:
    """Asks for, renews and gives back the permit of one incident."""

    def __init__(self, record: IncidentRecord) -> None:
        self._record = record

    async def renewed(self) -> bool:
        """Whether a permit is held; it is renewed if so. One that no budget counts any more is none."""
        record = self._record
        if record.permit is None or record.permit.expires_at <= workflow.now():
            return False
        if not await self._tell("renew_permit", PermitRenewal(holder=record.incident_id, epoch=record.permit.epoch)):
            record.change(permit=None)
        if record.permit is None:
            return False
        expires_at = workflow.now() + record.policy.budget.lease
        record.change(permit=record.permit.model_copy(update={"expires_at": expires_at}))
        return True

    async def ask(self, rung: Rung, until: datetime) -> None:
        """Ask for a permit; the answer comes by signal. A budget that is not there is a refusal."""
        record = self._record
        record.permit_refused = ""
        record.change(permit=None, permit_requested=True)
        request = PermitRequest(
            holder=record.incident_id,
            node=record.node,
            rung=rung,
            limit=record.policy.budget.max_unavailable,
            lease=record.policy.budget.lease,
            requested_at=workflow.now(),
            wait_until=until,
        )
        if not await self._tell("request_permit", request):
            record.permit_refused = "the disruption budget does not run; start `sickbay controller`"

    async def give_back(self) -> None:
        """Give the permit back, or stop waiting for one."""
        if self._record.permit is None and not self._record.state.permit_requested:
            return
        self._record.change(permit=None, permit_requested=False)
        await self._tell("release_permit", PermitRelease(holder=self._record.incident_id))

    async def _tell(self, signal: str, message: PermitRequest | PermitRenewal | PermitRelease) -> bool:
        """Whether the budget is there to hear it."""
        budget = workflow.get_external_workflow_handle(budget_id(self._record.node.cluster))
        try:
            await budget.signal(signal, message)
        except ApplicationError as error:
            self._record.note(f"the disruption budget was not told ({signal}): {error}")
            return False
        return True
