"""When a running attempt counts as over: by its pods, a hang, a start that never comes, time without progress.

Called by the workflow with each look. All limits are the job's own deadlines; which of them has passed is told in
words, since it is what a person reads first.
"""

from datetime import datetime, timedelta
from typing import Final

from sickbay.model import Frozen
from sickbay.training.attempts import AttemptLook, AttemptState
from sickbay.training.evidence import Ending
from sickbay.training.history import AttemptEnd, AttemptRecord, JobHistory
from sickbay.training.job import TrainingSpec

WAITS_THAT_PASS: Final = frozenset({"ContainerCreating", "PodInitializing"})


class Ended(Frozen):
    """An attempt is over."""

    ending: Ending
    end: AttemptEnd
    why: str


def end_of(spec: TrainingSpec, history: JobHistory, look: AttemptLook, now: datetime) -> Ended | None:
    """Whether this look shows that the newest attempt is over, and how; None while it goes on."""
    record = history.attempts[-1]
    match look.state:
        case AttemptState.ENDED:
            return Ended(ending=Ending.ENDED, end=AttemptEnd.UNKNOWN, why=look.why)
        case AttemptState.FAILED | AttemptState.ABSENT:
            return Ended(ending=Ending.FAILED, end=AttemptEnd.FAILED, why=look.why)
        case AttemptState.EVICTED:
            return Ended(ending=Ending.EVICTED, end=AttemptEnd.EVICTED, why=look.why)
        case AttemptState.PENDING:
            return _never_ran(spec, record, look, now)
        case AttemptState.RUNNING:
            return _stands_still(spec, record, look, now)


def next_deadline(spec: TrainingSpec, history: JobHistory, now: datetime) -> datetime | None:
    """The next moment at which one of the deadlines of the running attempt may have passed."""
    record = history.attempts[-1]
    moments = [progress_due(spec, record)]
    if record.first_step_at is None:
        moments.append((record.running_at or record.created_at or now) + spec.deadlines.start)
    return min((moment for moment in moments if moment is not None and moment > now), default=None)


def progress_due(spec: TrainingSpec, record: AttemptRecord) -> datetime | None:
    """By when the running attempt must have made something newer durable."""
    since = record.progress_at or record.running_at
    return since + spec.deadlines.without_progress if since is not None else None


def _never_ran(spec: TrainingSpec, record: AttemptRecord, look: AttemptLook, now: datetime) -> Ended | None:
    """Pods that wait for anything but room have until the start's deadline: images, volumes, secrets."""
    stuck = [wait for wait in look.waits if not wait.capacity]
    if not stuck or any(wait.capacity for wait in look.waits):
        return None
    since = record.created_at or record.planned_at
    if now < since + spec.deadlines.start:
        return None
    why = f"its pods did not start within {spec.deadlines.start}: {stuck[0].reason}: {stuck[0].message}".rstrip(": ")
    return Ended(ending=Ending.FAILED, end=AttemptEnd.FAILED, why=why)


def _stands_still(spec: TrainingSpec, record: AttemptRecord, look: AttemptLook, now: datetime) -> Ended | None:
    ranks = look.ranks
    if ranks is not None and ranks.hang is not None:
        hang = ranks.hang
        words = f"no step after step {hang.last_step} for more than {_words(hang.limit)}"
        return Ended(ending=Ending.HANG, end=AttemptEnd.HANG, why=words)
    # Only ranks that report at all can be late with their first step.
    reporting = ranks is not None and ranks.reporting > 0
    since = record.running_at if reporting and record.first_step_at is None else None
    if since is not None and now >= since + spec.deadlines.start:
        words = f"no first step within {_words(spec.deadlines.start)} of its start"
        return Ended(ending=Ending.HANG, end=AttemptEnd.HANG, why=words)
    due = progress_due(spec, record)
    if due is not None and now >= due:
        words = f"no newer durable checkpoint for {_words(spec.deadlines.without_progress)}"
        return Ended(ending=Ending.DEADLINE, end=AttemptEnd.HANG, why=words)
    return None


def _words(duration: timedelta) -> str:
    seconds = int(duration.total_seconds())
    return f"{seconds // 60} min {seconds % 60} s" if seconds >= 60 else f"{seconds} s"
