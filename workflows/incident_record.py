"""What an incident knows of itself: changed by its handlers, seen by people, taken over by a continued run.

Only bookkeeping: every rule is asked of `sickbay`. Nothing here waits or calls.
"""

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from temporalio import workflow
from temporalio.common import SearchAttributeUpdate

from sickbay import ladder, search_attributes
from sickbay.account import account
from sickbay.commands import Situation
from sickbay.diagnosis import diagnose
from sickbay.faults import Fault, Rung, Verdict, strongest, update_faults
from sickbay.incident import (
    ApprovalRequest,
    CarriedState,
    HandoverReason,
    IncidentInput,
    IncidentView,
    Intent,
    Outcome,
    Stage,
    TimelineEntry,
)
from sickbay.ladder import Step
from sickbay.permits import Permit
from sickbay.proof import relapses

TIMELINE_KEPT = 200
"""Entries kept; an incident that has more to tell keeps its newest."""


class IncidentRecord:
    """Mutable state of one incident; one writer, the workflow's own loop and its handlers."""

    def __init__(self, incident_id: str, start: IncidentInput) -> None:
        carried = start.carried
        self.incident_id = incident_id
        self.start = start
        self.node = start.node
        self.policy = start.policy
        self.state = carried or CarriedState(stage=Stage.OPENED, faults=start.faults, expected_gpus=start.expected_gpus)
        self.waiting_for = ""
        self.waiting_until: datetime | None = None
        self.permit_refused = ""
        self.watched = self.unsettled
        """The proven intent whose repair is being verified or soaked."""
        self.known_at_proof = self.state.faults
        self.withdrawn_by = ""
        self.closed_by = ""
        self.keep_cordon = False
        self.closing = False
        """It has ended and undoes its marks: no order can be obeyed any more."""
        self.outcome: Outcome | None = None
        self.closed_at: datetime | None = None

    # What it stands for now

    @property
    def troubles(self) -> tuple[Fault, ...]:
        """Open faults with the rungs that the policy gives them."""
        return ladder.under_policy(self.state.faults, self.policy)

    @property
    def verdict(self) -> Verdict:
        """The diagnosis of all open faults."""
        return diagnose(self.troubles)

    def plan(self) -> Step:
        """The next step by everything known now."""
        if self.state.handover is not None:
            return Step(rung=Rung.HUMAN)
        verdict = self.verdict
        return ladder.next_step(
            verdict.rung,
            verdict.fault_class,
            self.state.intents,
            self.policy,
            floor=self.state.floor,
            chosen=self.state.chosen_rung,
        )

    @property
    def unsettled(self) -> Intent | None:
        """The newest intent, if it is proven and it is not known yet whether it helped."""
        newest = self.state.intents[-1] if self.state.intents else None
        if newest is None or newest.proven_at is None or newest.failure or newest.rung is Rung.REPLACE:
            return None
        return newest if self.state.handover is None else None

    @property
    def since(self) -> datetime:
        """When it came to its stage: deadlines count from here, also over a continue-as-new."""
        return self.state.stage_since or self.start.opened_at

    @property
    def holding(self) -> bool:
        """A person holds it, or has ended it: nothing new may begin."""
        return bool(self.state.held_by) or self.ordered

    @property
    def ordered(self) -> bool:
        """A person has ended it, or cancelled the workflow, which an activity that ends well hides from its caller."""
        return bool(self.withdrawn_by or self.closed_by) or workflow.cancellation_reason() is not None

    @property
    def asked(self) -> Step | None:
        """The step that a person's yes is asked for."""
        asked = self.state.asked
        return None if asked is None else Step(rung=asked.rung, attempt=asked.attempt)

    @property
    def approved(self) -> bool:
        """A person said yes to the step since it is asked for; a yes to an older question is spent."""
        asked = self.state.asked
        return asked is not None and any(
            approval.rung is asked.rung and approval.attempt == asked.attempt and approval.at >= asked.at
            for approval in self.state.approvals
        )

    @property
    def permit(self) -> Permit | None:
        """Leave to disrupt, while we have it."""
        return self.state.permit

    def situation(self) -> Situation:
        """How it stands, as far as commands care."""
        return Situation(
            stage=Stage.CLOSED if self.closing else self.state.stage,
            asked=self.asked,
            held_by=self.state.held_by,
            enabled=tuple(rung for rung in Rung if rung.disrupts and self.policy.for_rung(rung).enabled),
        )

    # What changes it

    def change(self, **values: object) -> None:
        """Replace fields of the carried state."""
        self.state = self.state.model_copy(update=values)

    def note(self, text: str) -> None:
        """Add a line to the account; one that only repeats the last would push older ones out."""
        if self.state.timeline and self.state.timeline[-1].text == text:
            return
        entry = TimelineEntry(at=workflow.now(), text=text)
        self.change(timeline=(*self.state.timeline, entry)[-TIMELINE_KEPT:])
        workflow.logger.info(
            text, extra={"incident": self.incident_id, "node": self.node.name, "stage": str(self.state.stage)}
        )
        self.show()

    def enter(self, stage: Stage, text: str = "", rung: Rung | None = None) -> None:
        """Go to another stage, and show it where people look."""
        rung_now = self.state.stage_rung if rung is None else rung
        if stage is not self.state.stage or rung_now is not self.state.stage_rung:
            self.change(stage=stage, stage_since=workflow.now(), stage_rung=rung_now)
            attributes: list[SearchAttributeUpdate[Any]] = [
                search_attributes.STAGE.value_set(stage),
                search_attributes.FAULT.value_set(sorted({fault.code for fault in self.all_faults()})),
            ]
            if rung is not None:
                attributes.append(search_attributes.RUNG.value_set(rung))
            self.tag(attributes)
            if text:
                self.note(text)
        self.waits("", None)

    def tag(self, attributes: Iterable[SearchAttributeUpdate[Any]]) -> None:
        """Set search attributes, as far as the namespace has them."""
        missing = self.start.attributes_missing
        if known := [update for update in attributes if update.key.name not in missing]:
            workflow.upsert_search_attributes(known)

    def waits(self, what: str, until: datetime | None) -> None:
        """Show what it waits for and until when."""
        self.waiting_for, self.waiting_until = what, until
        self.show()

    def all_faults(self) -> tuple[Fault, ...]:
        """Open and cleared ones."""
        return (*self.state.faults, *self.state.cleared)

    def join(self, faults: tuple[Fault, ...]) -> None:
        """Take in what a detector reports; after a proof, a fault that is new since then is a relapse.

        What comes while the incident closes is left to the watch, which opens another one if it is still there.
        """
        if self.closing:
            return
        if self.watched is not None:
            fresh = relapses(self.watched, self.known_at_proof, faults)
            if not fresh:
                return
            self.change(relapse="; ".join(f"{fault.code} on {fault.component.id}" for fault in fresh))
            faults = fresh
        new = [fault for fault in faults if fault.identity not in [known.identity for known in self.state.faults]]
        self.change(faults=update_faults(self.state.faults, faults))
        first = self.state.first_verdict
        if first is None or self.verdict.rung.strength > first.rung.strength:
            self.change(first_verdict=self.verdict)
        for fault in new:
            self.note(f"fault {fault.code} on {fault.component.kind} {fault.component.id} joins ({fault.rung})")

    def clear(self, codes: tuple[str, ...]) -> None:
        """Its own detectors no longer see these faults (all, if none is named)."""
        gone = tuple(fault for fault in self.state.faults if not codes or fault.code in codes)
        if not gone:
            return
        self.change(
            faults=tuple(fault for fault in self.state.faults if fault not in gone),
            cleared=update_faults(self.state.cleared, gone),
        )
        self.note(f"no longer seen: {', '.join(dict.fromkeys(fault.code for fault in gone))}")

    def hand_over(self, reason: HandoverReason, text: str) -> None:
        """From now on a person decides."""
        if self.state.handover is None:
            self.change(handover=reason, handover_text=text, handed_over_at=workflow.now())

    def ask(self, step: Step | None) -> None:
        """A person's yes is asked for this step, or for none any more. The same question asked again keeps its time."""
        if step != self.asked:
            asked = step and ApprovalRequest(rung=step.rung, attempt=step.attempt, at=workflow.now())
            self.change(asked=asked)

    def begin(self, intent: Intent) -> None:
        """Record what will be done, before it is done."""
        self.change(intents=(*self.state.intents, intent), open_before=self.state.faults, chosen_rung=None)

    def end(self, intent: Intent) -> None:
        """Replace the newest intent by what became of it."""
        self.change(intents=(*self.state.intents[:-1], intent))

    def watch(self, intent: Intent) -> None:
        """From now on a fault that is new is a failed verification."""
        self.watched, self.known_at_proof = intent, self.state.faults
        self.change(relapse="")

    def cured(self) -> None:
        """Verification passed: all open faults are gone."""
        self.change(faults=(), cleared=update_faults(self.state.cleared, self.state.faults))
        self.watched = None

    def unwell(self, why: str) -> None:
        """Verification failed: the rung has not helped, whatever the detectors have cleared since."""
        self.watched = None
        self.end(self.state.intents[-1].model_copy(update={"failure": why}))
        if self.verdict.rung is Rung.NONE:
            reopened = [fault.identity for fault in self.state.open_before]
            cleared = tuple(fault for fault in self.state.cleared if fault.identity not in reopened)
            self.change(faults=update_faults(self.state.faults, self.state.open_before), cleared=cleared)
        self.note(f"verification failed: {why}")

    # What others see

    def view(self) -> IncidentView:
        """The incident as people see it."""
        newest = self.state.intents[-1] if self.state.intents else None
        asked = self.asked
        return IncidentView(
            incident_id=self.incident_id,
            node=self.node,
            stage=self.state.stage,
            outcome=self.outcome,
            rung=asked.rung if asked else newest.rung if newest else Rung.NONE,
            attempt=asked.attempt if asked else newest.attempt if newest else 0,
            verdict=self.state.first_verdict or self.verdict,
            faults=self.state.faults,
            cleared=self.state.cleared,
            waiting_for=self.waiting_for,
            waiting_until=self.waiting_until,
            handover=self.state.handover,
            intents=self.state.intents,
            approvals=self.state.approvals,
            policy_version=self.policy.version,
            catalogue_version=self.start.catalogue_version,
            opened_at=self.start.opened_at,
            contained_at=self.state.contained_at,
            closed_at=self.closed_at,
            timeline=self.state.timeline,
        )

    def continued(self) -> IncidentInput:
        """What the next run of this incident starts with."""
        return self.start.model_copy(update={"carried": self.state})

    def show(self) -> None:
        """Bring the details in the Temporal UI up to date."""
        workflow.set_current_details(account(self.view()))

    def strongest_tried(self) -> Rung:
        """The strongest rung that was tried."""
        return strongest(intent.rung for intent in self.state.intents)
