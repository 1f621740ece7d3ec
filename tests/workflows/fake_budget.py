"""A disruption budget that answers as a test says; see `incident_bench`."""

from temporalio import workflow

from sickbay.permits import Permit, PermitRefusal, PermitRelease, PermitRenewal, PermitRequest, PermitWaiting


@workflow.defn(name="FakeBudget")
class FakeBudget:
    """Grants or refuses every request at once, lets it wait with a reason, or is silent."""

    def __init__(self) -> None:
        self._inbox: list[PermitRequest] = []
        self._renewals = 0
        self._holders: list[str] = []

    @workflow.run
    async def run(self, answer: str) -> None:
        while True:
            await workflow.wait_condition(lambda: bool(self._inbox))
            request = self._inbox.pop(0)
            holder = workflow.get_external_workflow_handle(request.holder)
            if answer == "grant":
                self._holders.append(request.holder)
                now = workflow.now()
                permit = Permit(holder=request.holder, epoch=1, granted_at=now, expires_at=now + request.lease)
                await holder.signal("permit_granted", permit)
            elif answer == "wait":
                await holder.signal("permit_waiting", PermitWaiting(holder=request.holder, reason="node-7 is out"))
            elif answer == "refuse":
                await holder.signal("permit_refused", PermitRefusal(holder=request.holder, reason="the ceiling is 0"))

    @workflow.signal
    def request_permit(self, request: PermitRequest) -> None:
        self._inbox.append(request)

    @workflow.signal
    def renew_permit(self, renewal: PermitRenewal) -> None:
        self._renewals += 1

    @workflow.signal
    def release_permit(self, release: PermitRelease) -> None:
        self._holders = [holder for holder in self._holders if holder != release.holder]

    @workflow.query
    def holders(self) -> list[str]:
        return self._holders

    @workflow.query
    def renewals(self) -> int:
        return self._renewals
