"""The disruption budget of one cluster: an entity that grants leave to disrupt, and takes it back.

Started by the controller under `names.budget_id`, and never ends. Incidents signal it; it answers them by signal, since
of updates no more than ten may be in flight (facts: Temporal, 0.4). All rules are in `sickbay.budget`; here are only
their order, the looks at pools, the sweep for holders that are gone, and the account for people.

A permit cannot be lost: the ledger changes in signal handlers and in the turn alone, both in history, and goes over
whole when the workflow continues as new. A grant that reaches nobody is taken back at once; one whose holder was
terminated is taken back by the sweep.
"""

import asyncio
from datetime import datetime, timedelta
from typing import Final

from temporalio import workflow
from temporalio.exceptions import ActivityError, ApplicationError, is_cancelled_exception

from activities.incidents import HoldersQuery, IncidentActivities
from activities.nodes import NodeActivities, PoolQuery, PoolSnapshot
from sickbay import budget
from sickbay.budget import Decision, Ledger, Member, Notice, PoolLook
from sickbay.budget_account import account
from sickbay.model import Frozen
from sickbay.permits import Permit, PermitRefusal, PermitRelease, PermitRenewal, PermitRequest, PermitWaiting
from workflows import policies

SIGNALS: Final = {Permit: "permit_granted", PermitRefusal: "permit_refused", PermitWaiting: "permit_waiting"}
"""What holders are told, by the name of the signal that tells it."""
HOLDER_GONE: Final = "ExternalWorkflowExecutionNotFound"
"""The server's word for a workflow that is closed or never was (facts: Temporal, 1.8)."""


class BudgetInput(Frozen):
    """What starts a budget, and what it carries over when it continues as new."""

    cluster: str
    look_every: timedelta = timedelta(seconds=15)
    """Between two looks at a pool that somebody waits for; requests and releases have it looked at at once."""
    sweep_every: timedelta = timedelta(minutes=5)
    """Between two searches for holders that are gone, while anybody holds or waits."""
    ledger: Ledger = Ledger()
    swept_at: datetime | None = None


@workflow.defn
class DisruptionBudget:
    """Grants, renews and takes back permits; see the module."""

    @workflow.init
    def __init__(self, start: BudgetInput) -> None:
        self._start = start
        self._ledger = start.ledger
        self._outbox: list[Notice] = []
        self._swept_at = start.swept_at or workflow.now()
        self._changed = False
        """Something happened since the turn began that the turn may not have seen."""
        workflow.set_current_details(account(self._ledger, workflow.now()))

    @workflow.run
    async def run(self, start: BudgetInput) -> None:  # noqa: ARG002 - `__init__` has read it
        """Turn after turn; each ends in a rest until something happens or a look or sweep is due."""
        while True:
            self._changed = False
            await self._sweep()
            await self._look()
            await self._deliver()
            if workflow.info().is_continue_as_new_suggested() and not self._outbox:
                workflow.continue_as_new(self._carried())
            await self._rest()

    @workflow.signal
    def request_permit(self, request: PermitRequest) -> None:
        """Ask for leave to disrupt; the answer comes by signal."""
        self._apply(budget.request(self._ledger, request, workflow.now()))
        self._changed = True

    @workflow.signal
    def renew_permit(self, renewal: PermitRenewal) -> None:
        """Say that the holder still lives; answered only if it holds no longer."""
        self._apply(budget.renew(self._ledger, renewal, workflow.now()))
        self._changed = True

    @workflow.signal
    def release_permit(self, release: PermitRelease) -> None:
        """Give a permit back, or stop waiting for it."""
        self._apply(Decision(budget.release(self._ledger, release.holder)))
        self._changed = True

    @workflow.query
    def ledger(self) -> Ledger:
        """Who holds and who waits, and why."""
        return self._ledger

    def _apply(self, decision: Decision) -> None:
        self._ledger = decision.ledger
        self._outbox.extend(decision.notices)
        workflow.set_current_details(account(self._ledger, workflow.now()))

    def _carried(self) -> BudgetInput:
        return self._start.model_copy(update={"ledger": self._ledger, "swept_at": self._swept_at})

    async def _sweep(self) -> None:
        """Take back what holders hold that no longer run."""
        if workflow.now() < self._swept_at + self._start.sweep_every:
            return
        self._swept_at = workflow.now()
        if not self._ledger.holders:
            return
        try:
            found = await workflow.execute_activity_method(
                IncidentActivities.check_holders,
                HoldersQuery(holders=self._ledger.holders),
                **policies.BUDGET,
                summary="which holders are gone",
            )
        except ActivityError as error:
            if is_cancelled_exception(error):
                raise
            workflow.logger.warning("the holders of permits could not be checked: %s", error.cause)
            return
        if found.gone:
            workflow.logger.warning("permits of holders that are gone are taken back: %s", ", ".join(found.gone))
            self._apply(Decision(budget.release(self._ledger, *found.gone)))

    async def _look(self) -> None:
        """Look at every pool that somebody waits for, and grant what it allows."""
        for pool in self._ledger.pools_awaited:
            try:
                snapshot = await workflow.execute_activity_method(
                    NodeActivities.observe_pool,
                    PoolQuery(cluster=self._start.cluster, pool=pool),
                    **policies.BUDGET,
                    summary=f"pool {pool or 'none'}",
                )
            except ActivityError as error:
                if is_cancelled_exception(error):
                    raise
                reason = f"pool {pool or 'none'} cannot be observed ({error.cause}); it is tried again"
                self._apply(budget.unobservable(self._ledger, pool, reason))
                continue
            self._apply(budget.observe(self._ledger, _look_at(pool, snapshot), workflow.now()))

    async def _deliver(self) -> None:
        """Tell the holders, the last word to each alone: the server may deliver two in either order."""
        last_words = {notice.holder: notice for notice in self._outbox}
        self._outbox.clear()
        await asyncio.gather(*(self._tell(notice) for notice in last_words.values()))

    async def _tell(self, notice: Notice) -> None:
        handle = workflow.get_external_workflow_handle(notice.holder)
        try:
            await handle.signal(SIGNALS[type(notice)], notice)
        except ApplicationError as error:
            workflow.logger.warning("%s was not told: %s", notice.holder, error)
            if error.type == HOLDER_GONE:
                self._apply(Decision(budget.release(self._ledger, notice.holder)))
                self._changed = True

    async def _rest(self) -> None:
        """Until a signal comes or something is due; for ever while nobody holds or waits."""
        if self._ledger.waiting:
            rest: timedelta | None = self._start.look_every
        elif self._ledger.held:
            rest = max(self._swept_at + self._start.sweep_every - workflow.now(), timedelta(0))
        else:
            rest = None
        try:
            await workflow.wait_condition(lambda: self._changed, timeout=rest, timeout_summary="next look or sweep")
        except TimeoutError:
            return


def _look_at(pool: str, snapshot: PoolSnapshot) -> PoolLook:
    members = (
        Member(node=one.node, created_at=one.created_at, available=one.available, why_not=one.why_not)
        for one in snapshot.nodes
    )
    return PoolLook(pool=pool, members=tuple(members))
