"""A small workflow that answers as an incident does, for tests of those who speak with incidents.

It bears the incident workflow's name and handlers, keeps what it is told, and ends when a person or a test says so. It
repairs nothing: what an incident does is tested in `tests/workflows`.
"""

from datetime import timedelta

from temporalio import workflow
from temporalio.exceptions import ApplicationError

from sickbay import names
from sickbay.diagnosis import diagnose
from sickbay.faults import Fault, Rung
from sickbay.incident import (
    Command,
    CommandKind,
    CommandReply,
    FaultReport,
    FaultsCleared,
    IncidentInput,
    IncidentResult,
    IncidentView,
    Outcome,
    Stage,
    TimelineEntry,
)


@workflow.defn(name=names.WORKFLOW_INCIDENT)
class StandInIncident:
    """Waits for a yes to its replacement, and for its end."""

    @workflow.init
    def __init__(self, start: IncidentInput) -> None:
        self._start = start
        self._faults: dict[tuple[str, str, str, str], Fault] = {}
        self._orders: list[Command] = []
        self._outcome: Outcome | None = None

    @workflow.run
    async def run(self, start: IncidentInput) -> IncidentResult:
        await workflow.wait_condition(lambda: self._outcome is not None)
        await workflow.wait_condition(workflow.all_handlers_finished)
        return IncidentResult(
            outcome=self._outcome or Outcome.RETURNED,
            rung=Rung.REPLACE,
            reason="told to end",
            opened_at=start.opened_at,
            closed_at=workflow.now(),
            view=self.view(),
        )

    @workflow.signal
    def report_faults(self, report: FaultReport) -> None:
        """Keep faults that are open."""
        self._faults.update({fault.identity: fault for fault in report.faults})

    @workflow.signal
    def clear_faults(self, cleared: FaultsCleared) -> None:
        """Forget faults that are gone."""
        self._faults = {
            identity: fault
            for identity, fault in self._faults.items()
            if cleared.codes and fault.code not in cleared.codes
        }

    @workflow.signal
    def end(self, outcome: Outcome) -> None:
        """End so, in a test's name."""
        self._outcome = outcome

    @workflow.update
    def command(self, order: Command) -> CommandReply:
        """Take a person's order."""
        self._orders.append(order)
        if order.kind is CommandKind.WITHDRAW:
            self._outcome = Outcome.WITHDRAWN
        if order.kind is CommandKind.CLOSE:
            self._outcome = Outcome.HANDED_OVER
        return CommandReply(stage=Stage.DRAINING, message=f"{order.kind} by {order.by}")

    @command.validator
    def check(self, order: Command) -> None:
        """Refuse a yes to what was not asked."""
        if order.kind is CommandKind.APPROVE and order.rung not in (None, Rung.REPLACE):
            raise ApplicationError(f"{order.rung} is not what waits: replace is", type="CommandRefused")

    @workflow.query
    def view(self) -> IncidentView:
        """The incident as people see it."""
        faults = tuple(self._faults.values())
        return IncidentView(
            incident_id=workflow.info().workflow_id,
            node=self._start.node,
            stage=Stage.CLOSED if self._outcome else Stage.AWAITING_APPROVAL,
            outcome=self._outcome,
            rung=Rung.REPLACE,
            attempt=1,
            verdict=diagnose(faults),
            faults=faults,
            waiting_for="a person's yes to replace",
            waiting_until=self._start.opened_at + timedelta(hours=8),
            opened_at=self._start.opened_at,
            policy_version=self._start.policy.version,
            catalogue_version=self._start.catalogue_version,
            timeline=(
                TimelineEntry(at=self._start.opened_at, text="opened"),
                *(TimelineEntry(at=workflow.now(), text=f"{order.kind} by {order.by}") for order in self._orders),
            ),
        )
