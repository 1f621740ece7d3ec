"""What a training job knows of itself: changed by its handlers and its loop, seen by people, kept by the next run.

Only bookkeeping: every rule is asked of `sickbay.training`. Nothing here waits or calls.
"""

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from temporalio import workflow
from temporalio.common import SearchAttributeUpdate

from sickbay import search_attributes
from sickbay.ranks.outcome import in_words
from sickbay.training import corruption, exclusions
from sickbay.training.attempts import AttemptRef, Exclusion
from sickbay.training.blame import left_node
from sickbay.training.commands import JobSituation
from sickbay.training.handshake import NodeOver, NodeTrouble, Urgency
from sickbay.training.history import JobHistory
from sickbay.training.job import (
    CarriedJob,
    JobCommand,
    JobCommandKind,
    JobInput,
    JobOutcome,
    JobStage,
    JobTimelineEntry,
    JobView,
)
from sickbay.training.job_account import account

TIMELINE_KEPT = 200
"""Entries kept; a job that has more to tell keeps its newest."""
REQUESTS_KEPT = 200
_DURABLE = " is durable"


class TrainingRecord:
    """Mutable state of one job; one writer, the workflow's own loop and its handlers."""

    def __init__(self, job_id: str, start: JobInput, fence: str) -> None:
        self.job_id = job_id
        self.start = start
        self.spec = start.spec
        self.fence = fence
        self.state = start.carried or CarriedJob(
            stage=JobStage.SUBMITTED,
            stage_since=start.submitted_at,
            history=JobHistory(),
            planned_at=start.submitted_at,
        )
        self.waiting_for = ""
        self.waiting_until: datetime | None = None
        self.outcome: JobOutcome | None = None
        self.closed_at: datetime | None = None

    # What it stands for now

    @property
    def history(self) -> JobHistory:
        """Its attempts and all that was learned of them."""
        return self.state.history

    def ref(self, attempt: int) -> AttemptRef:
        """Who an attempt is."""
        return AttemptRef(
            cluster=self.start.cluster,
            namespace=self.spec.namespace,
            job=self.spec.name,
            attempt=attempt,
            fence=self.fence,
        )

    @property
    def nodes_in_use(self) -> tuple[str, ...]:
        """Nodes of the running attempt, as last seen."""
        look = self.state.look
        return tuple(dict.fromkeys(place.node for place in look.placements if place.node)) if look else ()

    @property
    def ordered(self) -> bool:
        """A person has ended, paused or restarted it, or cancelled the workflow."""
        state = self.state
        return bool(state.cancelled_by or state.paused_by or state.restart_by) or (
            workflow.cancellation_reason() is not None
        )

    @property
    def late(self) -> bool:
        """Whether its whole time is over."""
        total = self.spec.deadlines.total
        return total is not None and workflow.now() >= self.start.submitted_at + total

    def pressing(self) -> tuple[NodeTrouble, ...]:
        """Troubles of nodes in use that ask it to leave at once, or whose time is up."""
        now = workflow.now()
        return tuple(one for one in self.troubles_here() if one.urgency is Urgency.NOW or one.until <= now)

    def checkpointed_since(self) -> int | None:
        """A durable step that came by itself since a node in use was to be left at the next checkpoint."""
        durable = self.history.durable_step
        waiting = [self.state.steps_at_trouble.get(one.incident_id, 0) for one in self.troubles_here()]
        return durable if durable is not None and any(durable > step for step in waiting) else None

    def troubles_here(self) -> tuple[NodeTrouble, ...]:
        """Troubles of nodes that the running attempt uses."""
        look = self.state.look
        uids = {place.node_uid for place in look.placements} if look else set()
        return tuple(one for one in self.state.troubles if one.node.uid in uids)

    def kept_off(self) -> tuple[Exclusion, ...]:
        """Nodes that the next attempt keeps off."""
        return exclusions.live(self.history.exclusions, workflow.now())

    def situation(self) -> JobSituation:
        """How it stands, as far as orders care."""
        return JobSituation(
            stage=JobStage.CLOSED if self.outcome is not None else self.state.stage,
            paused=bool(self.state.paused_by),
            ending=bool(self.state.cancelled_by),
            attempt_running=self.state.plan is not None,
            excluded=tuple(each.node for each in self.kept_off()),
            checkpoint_steps=self.state.checkpoint_steps,
        )

    # What changes it

    def change(self, **values: object) -> None:
        """Replace fields of the carried state."""
        self.state = self.state.model_copy(update=values)

    def remember(self, history: JobHistory) -> None:
        """Take a changed history."""
        self.change(history=history)

    def note(self, text: str) -> None:
        """Add a line to the account; one that only repeats the last would push older ones out."""
        if self.state.timeline and self.state.timeline[-1].text == text:
            return
        entry = JobTimelineEntry(at=workflow.now(), text=text)
        self.change(timeline=(*self.state.timeline, entry)[-TIMELINE_KEPT:])
        workflow.logger.info(text, extra={"job": self.job_id, "stage": str(self.state.stage)})
        self.show()

    def note_durable(self, step: int | None) -> None:
        """Tell how far it is saved. A job saves thousands of times, so one line takes the place of the last."""
        timeline = self.state.timeline
        if timeline and timeline[-1].text.endswith(_DURABLE):
            self.change(timeline=timeline[:-1])
        self.note(f"step {step}{_DURABLE}")

    def enter(self, stage: JobStage, text: str = "") -> None:
        """Go to another stage, and show it where people look. Each upsert is billed, so only a change makes one."""
        if stage is not self.state.stage:
            self.change(stage=stage, stage_since=workflow.now())
            updates: list[SearchAttributeUpdate[Any]] = [search_attributes.STAGE.value_set(stage)]
            if self.outcome is not None:
                updates.append(search_attributes.OUTCOME.value_set(self.outcome))
            self._tag(updates)
        if text:
            self.note(text)
        self.waits("", None)

    def _tag(self, updates: Iterable[SearchAttributeUpdate[Any]]) -> None:
        missing = self.start.attributes_missing
        if known := [update for update in updates if update.key.name not in missing]:
            workflow.upsert_search_attributes(known)

    def waits(self, what: str, until: datetime | None) -> None:
        """Show what it waits for and until when."""
        self.waiting_for, self.waiting_until = what, until
        self.show()

    def hold(self, why: str) -> None:
        """From now on a person decides."""
        if not self.state.held_for:
            self.change(held_for=why, held_since=workflow.now())

    def keep_off(self, added: Iterable[Exclusion]) -> None:
        """Exclude nodes."""
        known = exclusions.added_to(self.history.exclusions, added)
        self.remember(self.history.model_copy(update={"exclusions": known}))

    def hear(self, trouble: NodeTrouble) -> None:
        """A node is about to be disrupted; a repeat has another deadline."""
        others = tuple(one for one in self.state.troubles if one.incident_id != trouble.incident_id)
        answered = tuple(one for one in self.state.answered if one != trouble.incident_id)
        steps = {**self.state.steps_at_trouble, trouble.incident_id: self.history.durable_step or 0}
        self.change(troubles=(*others, trouble), answered=answered, steps_at_trouble=steps)
        self.remember(corruption.told_of(self.history, trouble.node.name, trouble.codes, workflow.now()))
        self.keep_off([left_node(trouble, workflow.now())])
        self.note(f"{trouble.node.name} is about to be disrupted ({', '.join(trouble.codes) or trouble.rung})")

    def forget(self, over: NodeOver) -> None:
        """A node's incident is over; a well node is used again."""
        self.change(
            troubles=tuple(one for one in self.state.troubles if one.incident_id != over.incident_id),
            answered=tuple(one for one in self.state.answered if one != over.incident_id),
            steps_at_trouble={
                incident: step for incident, step in self.state.steps_at_trouble.items() if incident != over.incident_id
            },
        )
        if over.well:
            known = exclusions.ended(self.history.exclusions, over.node.name, workflow.now())
            self.remember(self.history.model_copy(update={"exclusions": known}))
        how = "well" if over.well else "not known to be well"
        self.note(f"{over.node.name}: its incident is over, and it is {how}")

    def knows(self, command: JobCommand) -> bool:
        """Whether this very order was taken before."""
        return bool(command.request_id) and command.request_id in self.state.seen_requests

    def obey(self, command: JobCommand) -> str:
        """Take an order that is not refused; what it leads to, in words."""
        if command.request_id:
            self.change(seen_requests=(*self.state.seen_requests, command.request_id)[-REQUESTS_KEPT:])
        self.note(f"{command.by}: {command.kind} {command.node}: {command.reason}".replace(" : ", ": "))
        match command.kind:
            case JobCommandKind.CANCEL:
                self.change(cancelled_by=command.by)
                return "it checkpoints if it can, and ends"
            case JobCommandKind.PAUSE:
                self.change(paused_by=command.by)
                return "it checkpoints, and gives its nodes back until it is resumed"
            case JobCommandKind.RESUME:
                self.change(paused_by="", planned_at=workflow.now())
                return "it goes on"
            case JobCommandKind.RESTART:
                self.change(restart_by=command.by)
                return "it checkpoints, and begins its next attempt"
            case JobCommandKind.EXCLUDE_NODE:
                return self._exclude(command)
            case JobCommandKind.INCLUDE_NODE:
                known = exclusions.ended(self.history.exclusions, command.node, workflow.now())
                self.remember(self.history.model_copy(update={"exclusions": known}))
                return f"the next attempt may use {command.node} again"
            case JobCommandKind.RETRY:
                self.change(held_for="", held_since=None, restart_by="", planned_at=workflow.now())
                return "it tries again"
            case JobCommandKind.FROM_STEP:
                self.change(held_for="", held_since=None, resume_override=command.step, planned_at=workflow.now())
                return f"it resumes from step {command.step}" if command.step else "it begins anew"

    def _exclude(self, command: JobCommand) -> str:
        now = workflow.now()
        until = now + exclusions.HARDWARE_FOR
        self.keep_off([Exclusion(node=command.node, reason=f"{command.by}: {command.reason}", since=now, until=until)])
        if command.node in self.nodes_in_use:
            return f"it keeps off {command.node} from its next attempt on; restart it to leave the node now"
        return f"it keeps off {command.node} until {until:%Y-%m-%d}"

    # What others see

    def view(self) -> JobView:
        """The job as people see it."""
        state, plan, look = self.state, self.state.plan, self.state.look
        attempts = self.history.attempts
        ranks_step = look.ranks.step if look is not None and look.ranks is not None else None
        steps = [step for step in (ranks_step, self.history.durable_step) if step is not None]
        return JobView(
            job_id=self.job_id,
            cluster=self.start.cluster,
            namespace=self.spec.namespace,
            name=self.spec.name,
            stage=state.stage,
            outcome=self.outcome,
            attempt=attempts[-1].attempt if attempts else 0,
            nodes=plan.nodes if plan else (attempts[-1].nodes if attempts else 0),
            placements=look.placements if plan is not None and look is not None else (),
            step=max(steps, default=None),
            target_step=self.spec.target.step,
            resume=state.resume,
            verdict=next((record.verdict for record in reversed(attempts) if record.verdict is not None), None),
            slow=tuple(in_words(each, f"{self.spec.namespace}/{self.spec.name}") for each in state.slow),
            waiting_for=self.waiting_for,
            waiting_until=self.waiting_until,
            history=self.history,
            submitted_at=self.start.submitted_at,
            closed_at=self.closed_at,
            timeline=state.timeline,
        )

    def continued(self) -> JobInput:
        """What the next run of this job starts with."""
        return self.start.model_copy(update={"carried": self.state})

    def show(self) -> None:
        """Bring the details in the Temporal UI up to date."""
        workflow.set_current_details(account(self.view()))
