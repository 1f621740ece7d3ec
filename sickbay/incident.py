"""What an incident is: its input, stages, outcomes, intents, and what people and machines may tell it.

Called by `workflows.node_incident`, which only orders things, by the controller that starts incidents, and by the
console that shows them. The rules on which rung comes next are in `sickbay.ladder`; on what a person may do when, in
`sickbay.commands`.
"""

from datetime import datetime
from enum import StrEnum

from pydantic import Field

from sickbay.faults import Component, Fault, Rung, Verdict
from sickbay.model import Frozen
from sickbay.nodes import NodeRef
from sickbay.permits import Permit
from sickbay.policy.model import IncidentPolicy
from sickbay.training.handshake import JobAnswer


class Stage(StrEnum):
    """Where an incident stands (design, 5), as its search attribute says."""

    OPENED = "opened"
    CONTAINED = "contained"
    OBSERVING = "observing"
    AWAITING_PERMIT = "awaiting_permit"
    AWAITING_APPROVAL = "awaiting_approval"
    DRAINING = "draining"
    REPAIRING = "repairing"
    VERIFYING = "verifying"
    SOAKING = "soaking"
    HELD = "held"
    HANDED_OVER = "handed_over"
    CLOSED = "closed"


class Outcome(StrEnum):
    """How an incident ended."""

    RETURNED = "returned"
    REPLACED = "replaced"
    HANDED_OVER = "handed_over"
    WITHDRAWN = "withdrawn"
    NODE_GONE = "node_gone"


class HandoverReason(StrEnum):
    """Why the ladder ended at a person."""

    VERDICT = "verdict"
    """The diagnosis asks for a person from the start."""
    LADDER_EXHAUSTED = "ladder_exhausted"
    REJECTED = "rejected"
    APPROVAL_EXPIRED = "approval_expired"
    PERMIT_REFUSED = "permit_refused"
    DRAIN_BLOCKED = "drain_blocked"
    FOREIGN_LOCK = "foreign_lock"
    NO_OWNER = "no_owner"
    """Nobody we know makes nodes of this pool, so that we cannot replace one."""
    FINAL_ERROR = "final_error"
    """The outside refused for good (no permission, protection, quota)."""
    PERSON_RELEASED = "person_released"
    """A person took our cordon away: an order to leave the node alone."""


class IncidentInput(Frozen):
    """What starts an incident."""

    node: NodeRef
    policy: IncidentPolicy
    catalogue_version: str
    opened_at: datetime
    faults: tuple[Fault, ...] = ()
    """Open faults at opening; all later ones come by signal."""
    expected_gpus: int | None = None
    contain: bool = True
    """False where the watch's cap on cordons was reached: then new work is blocked only once there is a permit, so
    that a detector gone mad cordons no more nodes through incidents than through the watch."""
    attributes_missing: tuple[str, ...] = ()
    """Search attributes that the namespace lacks: one upsert of such a name would stop the incident for good."""
    carried: "CarriedState | None" = None
    """State carried over a continue-as-new; never given by a starter."""


class FaultReport(Frozen):
    """Signal `report_faults`: faults that are open now on this node. Repeats only count up."""

    faults: tuple[Fault, ...]
    observed_at: datetime


class FaultsCleared(Frozen):
    """Signal `clear_faults`: the node's own detectors no longer see these (all of them, if `codes` is empty)."""

    codes: tuple[str, ...] = ()
    observed_at: datetime


class Intent(Frozen):
    """What is recorded durably before a rung acts, and what its proof is compared with (design, 3.5)."""

    rung: Rung
    attempt: int
    """Counted per rung and incident, from 1."""
    recorded_at: datetime
    boot_id: str = ""
    gpu_uuids: tuple[str, ...] = ()
    components: tuple[Component, ...] = ()
    node_claim_uid: str = ""
    acted_at: datetime | None = None
    proven_at: datetime | None = None
    proof: str = ""
    """What was observed, in words."""
    failure: str = ""
    """Why the rung did not help, in words."""


class Approval(Frozen):
    """A person's yes to one rung of one incident at one moment."""

    rung: Rung
    attempt: int
    by: str
    reason: str
    at: datetime


class ApprovalRequest(Frozen):
    """The step that a person's yes is asked for, and since when."""

    rung: Rung
    attempt: int
    at: datetime


class CommandKind(StrEnum):
    """What a person may tell an incident."""

    APPROVE = "approve"
    REJECT = "reject"
    HOLD = "hold"
    RELEASE = "release"
    CHOOSE_RUNG = "choose_rung"
    WITHDRAW = "withdraw"
    CLOSE = "close"


class Command(Frozen):
    """One order of one person, as update `command` or, for bots that can only signal, signal `command_signal`.

    Raised on refusal: `ApplicationError` of type `CommandRefused`, its message for people.
    """

    kind: CommandKind
    by: str = Field(max_length=200)
    """Who says it; refused if empty."""
    reason: str = Field(default="", max_length=2000)
    rung: Rung | None = None
    """For approve: the rung that is approved, refused if another one is asked for. For choose_rung: the one wanted."""
    attempt: int | None = None
    """For approve: the attempt that is approved; None means the one that asks now."""
    request_id: str = ""
    """Makes a repeated order one order, also over a continue-as-new."""
    keep_cordon: bool = False
    """For close: leave the node cordoned, in the hands of the person who closes."""


class CommandReply(Frozen):
    """What an accepted order led to, for the person who gave it."""

    stage: Stage
    message: str


class TimelineEntry(Frozen):
    """One line of the incident's account for people."""

    at: datetime
    text: str


class IncidentView(Frozen):
    """Query `view`: the incident as people see it."""

    incident_id: str
    node: NodeRef
    stage: Stage
    outcome: Outcome | None = None
    rung: Rung = Rung.NONE
    attempt: int = 0
    verdict: Verdict
    faults: tuple[Fault, ...] = ()
    """Open now."""
    cleared: tuple[Fault, ...] = ()
    """Joined the incident, and are gone."""
    waiting_for: str = ""
    """What it waits for, in words; empty while it works."""
    waiting_until: datetime | None = None
    handover: HandoverReason | None = None
    intents: tuple[Intent, ...] = ()
    approvals: tuple[Approval, ...] = ()
    policy_version: str = ""
    catalogue_version: str = ""
    opened_at: datetime
    contained_at: datetime | None = None
    closed_at: datetime | None = None
    timeline: tuple[TimelineEntry, ...] = ()


class IncidentResult(Frozen):
    """How it ended; the workflow's result."""

    outcome: Outcome
    rung: Rung
    """The strongest rung that was tried."""
    handover: HandoverReason | None = None
    reason: str
    proof: str = ""
    opened_at: datetime
    contained_at: datetime | None = None
    closed_at: datetime
    view: IncidentView


class CarriedState(Frozen):
    """Everything that a continued incident must still know."""

    stage: Stage
    stage_since: datetime | None = None
    stage_rung: Rung = Rung.NONE
    """The rung that the stage was last entered for."""
    first_verdict: Verdict | None = None
    """The strongest verdict so far, which people are shown."""
    faults: tuple[Fault, ...]
    cleared: tuple[Fault, ...] = ()
    intents: tuple[Intent, ...] = ()
    open_before: tuple[Fault, ...] = ()
    """Faults that were open when the newest intent was recorded."""
    relapse: str = ""
    """Faults that arose after the newest intent's proof, in words."""
    asked: ApprovalRequest | None = None
    approvals: tuple[Approval, ...] = ()
    timeline: tuple[TimelineEntry, ...] = ()
    seen_requests: tuple[str, ...] = ()
    contained_at: datetime | None = None
    handover: HandoverReason | None = None
    handover_text: str = ""
    handed_over_at: datetime | None = None
    chosen_rung: Rung | None = None
    floor: Rung = Rung.NONE
    """Where the ladder starts at least, by the machine's past."""
    held_by: str = ""
    held_since: datetime | None = None
    locked_since: datetime | None = None
    """Since when somebody else's lock keeps the next rung waiting."""
    protected: bool = False
    """`karpenter.sh/do-not-disrupt` is ours to remove."""
    expected_gpus: int | None = None
    permit: Permit | None = None
    permit_requested: bool = False
    jobs_told: tuple[str, ...] = ()
    """Workflow ids of the training jobs that were told of the node's trouble."""
    job_answers: tuple[JobAnswer, ...] = ()
    """The newest of each."""


IncidentInput.model_rebuild()
