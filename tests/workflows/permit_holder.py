"""A workflow that asks for a permit as an incident does, and does with it as its test says."""

from temporalio import workflow

from sickbay.model import Frozen
from sickbay.permits import Permit, PermitRefusal, PermitRelease, PermitRequest, PermitWaiting


class HolderInput(Frozen):
    """Whom to ask, and for what."""

    budget_id: str
    request: PermitRequest


class Heard(Frozen):
    """What the budget has told."""

    permits: tuple[Permit, ...] = ()
    refusals: tuple[PermitRefusal, ...] = ()
    waits: tuple[PermitWaiting, ...] = ()


@workflow.defn
class PermitHolder:
    """Asks, listens, and gives its permit back when it is told to."""

    def __init__(self) -> None:
        self._heard = Heard()
        self._done = False

    @workflow.run
    async def run(self, start: HolderInput) -> None:
        budget = workflow.get_external_workflow_handle(start.budget_id)
        await budget.signal("request_permit", start.request)
        await workflow.wait_condition(lambda: self._done)
        await budget.signal("release_permit", PermitRelease(holder=start.request.holder))

    @workflow.signal
    def permit_granted(self, permit: Permit) -> None:
        self._heard = self._heard.model_copy(update={"permits": (*self._heard.permits, permit)})

    @workflow.signal
    def permit_refused(self, refusal: PermitRefusal) -> None:
        self._heard = self._heard.model_copy(update={"refusals": (*self._heard.refusals, refusal)})

    @workflow.signal
    def permit_waiting(self, waiting: PermitWaiting) -> None:
        self._heard = self._heard.model_copy(update={"waits": (*self._heard.waits, waiting)})

    @workflow.signal
    def finish(self) -> None:
        self._done = True

    @workflow.query
    def heard(self) -> Heard:
        return self._heard
