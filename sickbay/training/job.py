"""What a training job is: what a person submits, the stages of its workflow, orders, and what people see.

Called by `workflows.training_job`, which only orders things, by `console.train`, and by the rules beside this module.
"""

from datetime import datetime, timedelta
from enum import StrEnum
from typing import Self

from pydantic import Field, JsonValue, model_validator

from sickbay.checkpoints.model import CheckpointPlace, ResumeChoice
from sickbay.model import Frozen
from sickbay.ranks.model import Pace, SlowRank
from sickbay.training.attempts import AttemptLook, AttemptPlan, Placement
from sickbay.training.handshake import NodeTrouble
from sickbay.training.history import JobHistory
from sickbay.training.verdicts import FailureVerdict


class JobKind(StrEnum):
    """Which Kubernetes API runs an attempt; each has its adapter in `sickbay.training.manifests`."""

    INDEXED_JOB = "indexed_job"
    JOB_SET = "job_set"
    PYTORCH_JOB = "pytorch_job"
    TRAIN_JOB = "train_job"


class Target(Frozen):
    """When the job is done. An exit code proves nothing (facts: training, 9.3): one of the two must be there."""

    step: int | None = Field(default=None, gt=0)
    """A durable checkpoint of at least this step."""
    marker: str = ""
    """URL of a file whose existence says that the job is done; `{attempt}` as in the place of checkpoints."""

    @model_validator(mode="after")
    def _one_of_two(self) -> Self:
        if self.step is None and not self.marker:
            raise ValueError("say when the job is done: `step` or `marker`")
        return self


class Elasticity(Frozen):
    """How many nodes (pods) the job may run on. Without it, exactly as many as the template says."""

    min_nodes: int = Field(ge=1)
    max_nodes: int = Field(ge=1)
    model_nodes: int = Field(default=1, ge=1)
    """Nodes of one model replica (tensor, pipeline and expert parallelism): sizes are whole multiples."""
    global_batch: int | None = Field(default=None, ge=1)
    """Samples in a step over all ranks. Kept by accumulation where the size changes; None leaves it to the script."""
    micro_batch: int = Field(default=1, ge=1)
    """Samples that one data-parallel rank computes at once."""
    ranks_per_node: int = Field(default=1, ge=1)
    """Data-parallel ranks of one node."""
    grow_after: timedelta = timedelta(minutes=30)
    """How long a size stays at least before the job grows back."""

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.min_nodes > self.max_nodes:
            raise ValueError(f"min_nodes {self.min_nodes} is above max_nodes {self.max_nodes}")
        return self


class RestartBudgets(Frozen):
    """How often the job may be restarted, by what ended it (facts: training, 2.7 and 2.9). All counts are restarts."""

    attempts: int = Field(default=200, ge=1, le=1000)
    """Attempts over the job's whole life, whatever ended them."""
    per_hour: int = Field(default=6, ge=1)
    """Restarts within any hour; above it the next one waits. A crash loop hurts other jobs (facts: training, 1.3)."""
    disruptions_per_hour: int = Field(default=12, ge=1)
    """As above, for ends that nobody is to blame for."""
    platform: int = Field(default=50, ge=0)
    """For failures of nodes, network and storage, over the whole life."""
    confirmations: int = Field(default=1, ge=0)
    """How often a failure that looks like the job's own is tried again before it stops, per fingerprint."""
    unexplained: int = Field(default=3, ge=0)
    """Restarts without progress after failures of unknown cause, per fingerprint and over all."""
    exclusions_per_day: float = Field(default=0.05, ge=0, le=1)
    """Share of the job's nodes that it may exclude in a day, at least one: beyond it the cause is common."""


class JobDeadlines(Frozen):
    """How long each wait of a job may last before its next step is due."""

    capacity_alert: timedelta = timedelta(minutes=30)
    """Waiting for capacity is not failing; after this a person is told."""
    start: timedelta = timedelta(minutes=30)
    """From all pods running to the first step; 60 minutes are peers' default, most failures come in the first ten."""
    hang_floor: timedelta = timedelta(minutes=5)
    """No pause between steps shorter than this is a hang, however quick the steps are."""
    without_progress: timedelta = timedelta(hours=12)
    """Running without a newer durable checkpoint; then a person is asked."""
    checkpoint: timedelta = timedelta(minutes=10)
    """For a checkpoint that was asked for to become durable."""
    evidence: timedelta = timedelta(minutes=2)
    """For collecting what a failed attempt left: it must not hold the restart."""
    teardown: timedelta = timedelta(minutes=15)
    """For the pods of an ended attempt to be gone; then the nodes that hold one must be fenced, or a person decides."""
    total: timedelta | None = None
    """Wall-clock time of the whole job."""
    person: timedelta = timedelta(days=7)
    """How long a held or stopped-for-decision job waits for a person before it ends as failed."""


class CheckpointHook(Frozen):
    """How ranks are asked to checkpoint now. The file always works where the reporter's folder is mounted."""

    http_port: int | None = Field(default=None, ge=1, le=65535)
    """A pod's port that takes `POST` on `http_path`; None uses the file alone (docs: health/rank_reporter.py)."""
    http_path: str = "/checkpoint"


class TrainingSpec(Frozen):
    """What a person asks for: the file that `sickbay train submit` reads."""

    name: str = Field(pattern=r"^[a-z0-9]([-a-z0-9]{0,38}[a-z0-9])?$")
    """At most 40 characters, since attempts and pods put theirs behind it."""
    namespace: str = Field(default="default", pattern=r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$")
    manifest: dict[str, JsonValue]
    """The object to run, as one would give it to kubectl. Name, exclusions and our variables are put in per attempt."""
    checkpoints: CheckpointPlace
    target: Target
    elasticity: Elasticity | None = None
    budgets: RestartBudgets = RestartBudgets()
    deadlines: JobDeadlines = JobDeadlines()
    hook: CheckpointHook = CheckpointHook()
    start_from_nothing: bool = True
    """Whether the first attempt may start without any checkpoint. Later ones never do so silently."""


class JobStage(StrEnum):
    """Where a job stands, as its search attribute says."""

    SUBMITTED = "submitted"
    QUEUED = "queued"
    """Waits for capacity or for its turn after a restart."""
    STARTING = "starting"
    """Its pods are created; no step yet."""
    TRAINING = "training"
    CHECKPOINTING = "checkpointing"
    """Was asked to checkpoint now, and will leave or go on after it."""
    COLLECTING = "collecting"
    """An attempt ended; evidence is collected before anything is removed."""
    TEARING_DOWN = "tearing_down"
    DECIDING = "deciding"
    PAUSED = "paused"
    HELD = "held"
    """A person must decide: no trusted checkpoint, no progress, budget spent."""
    CLOSED = "closed"


class JobOutcome(StrEnum):
    """How a job ended."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    """Stopped: a restart cannot help, or nobody decided in time."""
    CANCELLED = "cancelled"
    TIMED_OUT = "timed_out"


class JobCommandKind(StrEnum):
    """What a person may tell a job."""

    CANCEL = "cancel"
    PAUSE = "pause"
    RESUME = "resume"
    RESTART = "restart"
    """End this attempt after a checkpoint, and begin the next."""
    EXCLUDE_NODE = "exclude_node"
    INCLUDE_NODE = "include_node"
    RETRY = "retry"
    """For a held job: try again, with the budgets of its fingerprint anew."""
    FROM_STEP = "from_step"
    """For a held job: resume from this step's checkpoint, although older or tainted; 0 means from the beginning."""


class JobCommand(Frozen):
    """One order of one person, as update `command`. Refused with `CommandRefused`."""

    kind: JobCommandKind
    by: str = Field(max_length=200)
    reason: str = Field(default="", max_length=2000)
    node: str = ""
    step: int | None = None
    request_id: str = ""


class JobReply(Frozen):
    """What an accepted order led to, in words."""

    stage: JobStage
    message: str


class JobTimelineEntry(Frozen):
    """One line of the job's account for people."""

    at: datetime
    text: str


class JobInput(Frozen):
    """What starts a job's workflow."""

    cluster: str
    spec: TrainingSpec
    submitted_by: str
    submitted_at: datetime
    attributes_missing: tuple[str, ...] = ()
    """Search attributes that the namespace lacks."""
    carried: "CarriedJob | None" = None
    """State carried over a continue-as-new; never given by a starter."""


class CarriedJob(Frozen):
    """Everything that a continued job must still know."""

    stage: JobStage
    stage_since: datetime
    history: JobHistory
    seen_requests: tuple[str, ...] = ()
    cancelled_by: str = ""
    restart_by: str = ""
    timeline: tuple[JobTimelineEntry, ...] = ()
    held_for: str = ""
    held_since: datetime | None = None
    paused_by: str = ""
    resume_override: int | None = None
    """The step a person chose to resume from."""
    troubles: tuple[NodeTrouble, ...] = ()
    """Of nodes that are about to be disrupted, the newest word of each incident."""
    steps_at_trouble: dict[str, int] = Field(default_factory=dict)
    """By incident, the newest durable step when its trouble was heard: a newer one is the next planned checkpoint."""
    answered: tuple[str, ...] = ()
    """Incidents that were told that the job has left their node."""
    plan: AttemptPlan | None = None
    """Of the attempt that may still run; None between attempts."""
    look: AttemptLook | None = None
    """The last one at it."""
    pace: Pace = Pace()
    slow: tuple[SlowRank, ...] = ()
    sized_at: datetime | None = None
    """When the attempt's size was chosen: it stays for a while."""
    not_before: datetime | None = None
    """The next attempt waits for this."""
    planned_at: datetime | None = None
    """When the next attempt was decided on."""
    resume: ResumeChoice | None = None
    checkpoint_steps: tuple[int, ...] = ()
    """Steps of whole checkpoints at the last listing, newest first."""
    capacity_told: bool = False
    """People were told that it waits for capacity."""


class JobView(Frozen):
    """Query `view`: the job as people see it."""

    job_id: str
    cluster: str
    namespace: str
    name: str
    stage: JobStage
    outcome: JobOutcome | None = None
    attempt: int = 0
    nodes: int = 0
    placements: tuple[Placement, ...] = ()
    step: int | None = None
    target_step: int | None = None
    resume: ResumeChoice | None = None
    """What the running attempt resumed from."""
    verdict: FailureVerdict | None = None
    """Of the newest failed attempt."""
    slow: tuple[str, ...] = ()
    """Slow ranks, each in words."""
    waiting_for: str = ""
    waiting_until: datetime | None = None
    history: JobHistory
    submitted_at: datetime
    closed_at: datetime | None = None
    timeline: tuple[JobTimelineEntry, ...] = ()


class JobResult(Frozen):
    """How it ended; the workflow's result."""

    outcome: JobOutcome
    reason: str
    proof: str = ""
    view: JobView


JobInput.model_rebuild()
