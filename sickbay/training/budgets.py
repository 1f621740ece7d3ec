"""What a job's restarts have cost so far, in ledgers that run side by side.

Read by `decisions`. Everything is counted from the job's own history, which lives in its workflow alone: deleting an
object resets nothing (facts: training, 2.9). The ledgers do not know of each other, so that alternating failures cannot
reset one another's.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final

from sickbay.training.history import AttemptRecord, JobHistory
from sickbay.training.verdicts import BudgetKind

HOUR: Final = timedelta(hours=1)


def paying(history: JobHistory) -> tuple[AttemptRecord, ...]:
    """Ended attempts that a verdict made somebody pay for, oldest first."""
    ended = (record for record in history.attempts if record.verdict is not None)
    return tuple(record for record in ended if record.verdict and record.verdict.budget is not BudgetKind.NONE)


def spent(history: JobHistory, kind: BudgetKind) -> int:
    """Restarts that one budget has paid over the job's life."""
    return sum(record.verdict is not None and record.verdict.budget is kind for record in history.attempts)


def without_progress(history: JobHistory, kind: BudgetKind, fingerprint: str | None = None) -> int:
    """Failures of one budget, of one fingerprint or of all, since the job last made durable progress.

    Progress is a newer durable checkpoint than at the failure before (facts: training, 2.9). Where nobody can tell what
    is durable, the failure neither counts nor resets.
    """
    count, newest = 0, None
    for record in history.attempts:
        if record.durable_step is not None and (newest is None or record.durable_step > newest):
            # What the attempt made durable came before its end: only this end counts from here.
            newest, count = record.durable_step, 0
        verdict = record.verdict
        if verdict is None or verdict.budget is not kind:
            continue
        if fingerprint is None or verdict.fingerprint == fingerprint:
            count += 1
    return count


def starts(history: JobHistory) -> list[datetime]:
    """When each attempt really began, however long it waited for its turn."""
    return [record.created_at or record.planned_at for record in history.attempts]


def next_free(starts: Sequence[datetime], limit: int, now: datetime) -> datetime:
    """When one start more is within `limit` starts of any hour; `now` if it is already."""
    recent = sorted(start for start in starts if start > now - HOUR)
    return now if len(recent) < limit else recent[-limit] + HOUR


def forgiven(history: JobHistory) -> JobHistory:
    """The history after a person said to try again: what the newest failure's budget has paid counts no more."""
    newest = history.attempts[-1].verdict if history.attempts else None
    if newest is None:
        return history
    attempts = (
        record.model_copy(update={"verdict": record.verdict.model_copy(update={"budget": BudgetKind.NONE})})
        if record.verdict is not None and record.verdict.budget is newest.budget
        else record
        for record in history.attempts
    )
    return history.model_copy(update={"attempts": tuple(attempts)})
