"""Whether a job leaves a slow node at a checkpoint now, by what that costs it and what it gains.

Called by the training workflow for each rank that is newly slow. What cannot be estimated is not worth it: then the
rank is borne and told, and its node is checked when the job leaves it for another reason.
"""

from datetime import datetime, timedelta
from itertools import pairwise
from typing import Final

from sickbay.ranks.cost import worth_removing
from sickbay.ranks.model import RanksLook, SlowRank
from sickbay.ranks.outcome import SlowOutcome, outcome
from sickbay.training.attempts import Exclusion
from sickbay.training.exclusions import SOFT_FOR
from sickbay.training.history import JobHistory
from sickbay.training.job import TrainingSpec

RESTART: Final = timedelta(minutes=20)
"""From one attempt to the next one's first step, until the job's own are known: the longest that Meta assumes (facts:
training, 1.3)."""


def outcome_of(
    spec: TrainingSpec, history: JobHistory, slow: SlowRank, ranks: RanksLook, spares: int, now: datetime
) -> SlowOutcome:
    """What to do about a slow rank. `spares` are well nodes that the job could take and does not use."""
    left = remaining(spec, ranks)
    record = history.attempts[-1]
    since = record.progress_at or record.first_step_at or record.running_at or now
    worth = (
        left is not None
        and spares > 0
        # The ranks may not write a checkpoint when they are asked: then all since the newest one is lost.
        and worth_removing(slow.slowdown, left, restart_cost(history), max(now - since, timedelta(0)), timedelta(0))
    )
    return outcome(slow, worth=worth)


def remaining(spec: TrainingSpec, ranks: RanksLook) -> timedelta | None:
    """How long the job still takes at its pace; None where nobody can tell."""
    target, step, pace = spec.target.step, ranks.step, ranks.pace.step
    if target is None or step is None or pace is None:
        return None
    return pace * max(target - step, 0)


def restart_cost(history: JobHistory) -> timedelta:
    """From the end of an attempt to the first step of the next, as this job has known it."""
    known = sorted(
        later.first_step_at - earlier.stopped_at
        for earlier, later in pairwise(history.attempts)
        if earlier.stopped_at is not None and later.first_step_at is not None
    )
    return max(known[len(known) // 2], timedelta(0)) if known else RESTART


def kept_off(slow: SlowRank, now: datetime) -> Exclusion:
    """The node that is left, until the active checks have decided or its time is over. No blame: it gives way where
    there is no other room."""
    reason = f"rank {slow.rank} was slow on it"
    return Exclusion(node=slow.node, reason=reason, since=now, until=now + SOFT_FOR, soft=True)
