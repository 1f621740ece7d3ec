"""What a job remembers of its attempts: the ground of budgets, exclusions, goodput and reports.

Kept in the workflow alone, never in an object that somebody can delete (facts: training, 2.9). Bounded: old attempts
keep fewer samples.
"""

from datetime import timedelta
from enum import StrEnum

from pydantic import AwareDatetime

from sickbay.checkpoints.model import Lineage, TaintWindow
from sickbay.model import Frozen
from sickbay.training.attempts import Exclusion
from sickbay.training.verdicts import FailureVerdict


class StepSample(Frozen):
    """Where an attempt stood at one moment."""

    at: AwareDatetime
    step: int
    checkpoint_stall: timedelta = timedelta(0)
    """Since the attempt's first step, at its slowest rank."""


class AttemptEnd(StrEnum):
    """How an attempt ended, before anybody asked why."""

    REACHED_TARGET = "reached_target"
    FAILED = "failed"
    HANG = "hang"
    EVICTED = "evicted"
    STOPPED = "stopped"
    """By us: a drain, a resize, a pause, a person's order."""
    UNKNOWN = "unknown"


class AttemptRecord(Frozen):
    """One attempt. Times are the workflow's unless told otherwise; None where that never came."""

    attempt: int
    nodes: int
    gpus: int
    planned_at: AwareDatetime
    """When it was decided on: its queue time begins."""
    created_at: AwareDatetime | None = None
    placed_at: AwareDatetime | None = None
    """All pods have a node: until then they wait for room."""
    running_at: AwareDatetime | None = None
    """All pods run."""
    first_step_at: AwareDatetime | None = None
    restore: timedelta = timedelta(0)
    """What loading the checkpoint took, of the time before the first step."""
    resume_step: int | None = None
    """The step it resumed after; None from the beginning."""
    samples: tuple[StepSample, ...] = ()
    durable_step: int | None = None
    """Newest checkpoint that may be resumed from at its end."""
    progress_at: AwareDatetime | None = None
    """When something newer than ever before last became durable."""
    stopped_at: AwareDatetime | None = None
    """When its last step ended or it was stopped: from then to `noticed_at` is detection."""
    noticed_at: AwareDatetime | None = None
    gone_at: AwareDatetime | None = None
    """Its last pod is gone or fenced."""
    end: AttemptEnd | None = None
    why: str = ""
    verdict: FailureVerdict | None = None
    node_names: tuple[str, ...] = ()
    culprit_node: str = ""
    culprit_gpu: str = ""


class PauseKind(StrEnum):
    """Why a job has no attempt."""

    QUEUE = "queue"
    """It waits for its turn or for capacity."""
    HELD = "held"
    """A person paused it, or must decide."""


class Pause(Frozen):
    """A time between attempts."""

    kind: PauseKind
    began_at: AwareDatetime
    ended_at: AwareDatetime | None = None
    why: str = ""


class JobHistory(Frozen):
    """All of it."""

    attempts: tuple[AttemptRecord, ...] = ()
    pauses: tuple[Pause, ...] = ()
    exclusions: tuple[Exclusion, ...] = ()
    """Live and past ones; which hold at a moment is by their times."""
    lineage: tuple[Lineage, ...] = ()
    taints: tuple[TaintWindow, ...] = ()
    proven: tuple[str, ...] = ()
    """Paths of checkpoints from which an attempt resumed and went on."""
    invalid: tuple[str, ...] = ()
    """Paths of checkpoints that an attempt could not read."""
    durable_step: int | None = None
    """The newest step that was ever seen durable: a later resume below it is never silent."""
