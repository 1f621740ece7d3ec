"""What an admission knows of itself: seen by people, taken over by a continued run.

Only bookkeeping, for the admission workflow; every rule is asked of `sickbay.admission`. Nothing here waits or calls.
"""

from datetime import datetime
from typing import Any

from temporalio import workflow
from temporalio.common import SearchAttributeUpdate

from sickbay import search_attributes
from sickbay.admission import (
    AdmissionInput,
    AdmissionOutcome,
    AdmissionStage,
    AdmissionState,
    AdmissionView,
)
from sickbay.admission_account import account
from sickbay.incident import TimelineEntry

TIMELINE_KEPT = 100
"""Entries kept; one that has more to tell keeps its newest."""


class AdmissionRecord:
    """Mutable state of one admission; one writer, the workflow's own loop."""

    def __init__(self, admission_id: str, start: AdmissionInput) -> None:
        self.admission_id = admission_id
        self.start = start
        self.node = start.node
        self.policy = start.policy
        self.state = start.carried or AdmissionState(round_began=start.started_at)
        self.waiting_for = ""
        self.waiting_until: datetime | None = None
        self.outcome: AdmissionOutcome | None = None

    @property
    def until(self) -> datetime:
        """The deadline of this round."""
        return self.state.round_began + self.policy.admission.deadline

    def change(self, **values: object) -> None:
        """Replace fields of the carried state."""
        self.state = self.state.model_copy(update=values)

    def note(self, text: str) -> None:
        """Add a line to the account; one that only repeats the last would push older ones out."""
        if self.state.timeline and self.state.timeline[-1].text == text:
            return
        entry = TimelineEntry(at=workflow.now(), text=text)
        self.change(timeline=(*self.state.timeline, entry)[-TIMELINE_KEPT:])
        workflow.logger.info(text, extra={"admission": self.admission_id, "node": self.node.name})
        self.show()

    def enter(self, stage: AdmissionStage) -> None:
        """Go to another stage, and show it where people look. Each upsert is billed, so only a change makes one."""
        if stage is self.state.stage:
            return
        self.change(stage=stage)
        updates: list[SearchAttributeUpdate[Any]] = [
            search_attributes.STAGE.value_set(stage),
            search_attributes.FAULT.value_set(sorted({fault.code for fault in self.state.faults})),
        ]
        if self.outcome is not None:
            updates.append(search_attributes.OUTCOME.value_set(self.outcome))
        missing = self.start.attributes_missing
        if known := [update for update in updates if update.key.name not in missing]:
            workflow.upsert_search_attributes(known)
        self.show()

    def waits(self, what: str, until: datetime | None) -> None:
        """Show what it waits for and until when."""
        self.waiting_for, self.waiting_until = what, until
        self.show()

    def view(self) -> AdmissionView:
        """The admission as people see it."""
        return AdmissionView(
            admission_id=self.admission_id,
            node=self.node,
            stage=self.state.stage,
            outcome=self.outcome,
            waiting_for=self.waiting_for,
            waiting_until=self.waiting_until,
            rounds=self.state.rounds,
            faults=self.state.faults,
            policy_version=self.policy.version,
            started_at=self.start.started_at,
            timeline=self.state.timeline,
        )

    def continued(self) -> AdmissionInput:
        """What the next run of this admission starts with."""
        return self.start.model_copy(update={"carried": self.state})

    def show(self) -> None:
        """Bring the details in the Temporal UI up to date."""
        workflow.set_current_details(account(self.view()))
