"""What a job does after a failed attempt: restart, wait, stop, or ask a person.

Called by `workflows.training_job` once an attempt's end is in the history. The verdict says what would help; the
ledgers (`budgets`) say what may still be spent; a job is restarted only when a restart can help (design, 3.13), and
never so often that it hurts others (facts: training, 1.3: 35 requeues of one job cost 548 preemptions).
"""

from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

from sickbay.model import Frozen
from sickbay.training import budgets, exclusions
from sickbay.training.attempts import Exclusion
from sickbay.training.history import AttemptRecord, JobHistory
from sickbay.training.job import RestartBudgets, TrainingSpec
from sickbay.training.verdicts import BudgetKind, FailureAction, FailureClass, FailureVerdict

FIRST_PAUSE: Final = timedelta(seconds=15)
"""After the first quick failure; each further one in a row doubles it."""
LONGEST_PAUSE: Final = timedelta(minutes=10)
STEPS_ALIKE: Final = 1
"""Two failures of one fingerprint this many steps apart at most are at the same step (facts: training, 2.9)."""


class Next(StrEnum):
    """What follows."""

    RESTART = "restart"
    ASK_PERSON = "ask_person"
    STOP = "stop"


class Decision(Frozen):
    """What follows a failed attempt, and why."""

    kind: Next
    why: str
    not_before: datetime
    exclude: tuple[Exclusion, ...] = ()
    budget: BudgetKind = BudgetKind.NONE
    left: str = ""
    """What is left of the budget that paid, in words."""
    common_cause: str = ""
    """Why a blamed node is not kept off."""


def after_failure(spec: TrainingSpec, history: JobHistory, now: datetime) -> Decision:
    """What follows the newest attempt, which has ended and bears its verdict. Raises ValueError if it has none."""
    record = history.attempts[-1] if history.attempts else None
    if record is None or record.verdict is None:
        raise ValueError("the newest attempt has no verdict")
    verdict, limits = record.verdict, spec.budgets
    if len(history.attempts) >= limits.attempts:
        return _end(Next.ASK_PERSON, f"all {limits.attempts} attempts are spent", now, verdict)
    if (stopped := _stopped(history, record, verdict, limits)) is not None:
        return _end(stopped[0], stopped[1], now, verdict)
    kept_off = exclusions.of_blame(spec, history.exclusions, verdict.blamed, record.nodes, now)
    not_before = max(_free(history, verdict, limits, now), now + _pause(history))
    return Decision(
        kind=Next.RESTART,
        why=f"{verdict.failure_class}: {verdict.reason}",
        not_before=not_before,
        exclude=kept_off.added,
        budget=verdict.budget,
        left=_left(history, verdict, limits),
        common_cause=kept_off.common_cause,
    )


def _stopped(
    history: JobHistory, record: AttemptRecord, verdict: FailureVerdict, limits: RestartBudgets
) -> tuple[Next, str] | None:
    """What ends the restarts, and in which words; None while a restart may help."""
    if verdict.action is FailureAction.STOP:
        return Next.STOP, f"a restart cannot help: {verdict.reason}"
    if (other := _same_elsewhere(history, record)) is not None:
        return Next.STOP, (
            f"the same failure at the same step as in attempt {other.attempt}, on other nodes: it is the job's own "
            f"({verdict.reason})"
        )
    match verdict.budget:
        case BudgetKind.PLATFORM if budgets.spent(history, BudgetKind.PLATFORM) > limits.platform:
            return Next.ASK_PERSON, f"the {limits.platform} restarts for failures of the platform are spent"
        case BudgetKind.CONFIRMATION:
            tried = budgets.without_progress(history, BudgetKind.CONFIRMATION, verdict.fingerprint)
            if tried > limits.confirmations:
                return Next.STOP, f"it failed in the same way {tried} times: {verdict.reason}"
            # Different bugs one after the other are no hardware: together they have no more than twice the patience.
            over_all = budgets.without_progress(history, BudgetKind.CONFIRMATION)
            if over_all > 2 * (limits.confirmations + 1):
                return Next.STOP, f"{over_all} failures of its own without progress, the last: {verdict.reason}"
        case BudgetKind.UNEXPLAINED:
            alike = budgets.without_progress(history, BudgetKind.UNEXPLAINED, verdict.fingerprint)
            over_all = budgets.without_progress(history, BudgetKind.UNEXPLAINED)
            if max(alike, over_all) > limits.unexplained:
                return Next.ASK_PERSON, f"{over_all} failures of unknown cause without progress: {verdict.reason}"
    return None


def _same_elsewhere(history: JobHistory, record: AttemptRecord) -> AttemptRecord | None:
    """An earlier attempt that failed in the same way at the same step, its culprit on another node.

    Hardware does not follow a step over nodes. Only for failures that may be the job's own, and only where step and
    culprit are known.
    """
    verdict = record.verdict
    if verdict is None or verdict.step is None or not record.culprit_node or not verdict.fingerprint:
        return None
    if verdict.failure_class in (FailureClass.PLATFORM, FailureClass.DISRUPTION, FailureClass.POLICY):
        return None
    for other in history.attempts[:-1]:
        earlier = other.verdict
        if (
            earlier is not None
            and earlier.fingerprint == verdict.fingerprint
            and earlier.step is not None
            and abs(earlier.step - verdict.step) <= STEPS_ALIKE
            and other.culprit_node not in ("", record.culprit_node)
        ):
            return other
    return None


def _free(history: JobHistory, verdict: FailureVerdict, limits: RestartBudgets, now: datetime) -> datetime:
    """When the hour allows one start more. Every start counts against both limits: a crash loop has many faces."""
    starts = budgets.starts(history)
    limit = limits.per_hour
    if verdict.budget in (BudgetKind.DISRUPTION, BudgetKind.NONE):
        limit = max(limits.per_hour, limits.disruptions_per_hour)
    return budgets.next_free(starts, limit, now)


def _pause(history: JobHistory) -> timedelta:
    """A pause that doubles with each attempt in a row that ended before its first step."""
    quick = 0
    for record in reversed(history.attempts):
        if record.verdict is None or record.first_step_at is not None:
            break
        quick += 1
    if quick == 0:
        return timedelta(0)
    return min(LONGEST_PAUSE, FIRST_PAUSE * (1 << min(quick - 1, 10)))


def _left(history: JobHistory, verdict: FailureVerdict, limits: RestartBudgets) -> str:
    match verdict.budget:
        case BudgetKind.PLATFORM:
            return f"{limits.platform - budgets.spent(history, BudgetKind.PLATFORM)} restarts for the platform"
        case BudgetKind.CONFIRMATION:
            tried = budgets.without_progress(history, BudgetKind.CONFIRMATION, verdict.fingerprint)
            return f"{limits.confirmations - tried} tries of this failure"
        case BudgetKind.UNEXPLAINED:
            tried = budgets.without_progress(history, BudgetKind.UNEXPLAINED)
            return f"{limits.unexplained - tried} restarts without a known cause"
        case _:
            return "nobody's budget: it is only limited per hour"


def _end(kind: Next, why: str, now: datetime, verdict: FailureVerdict) -> Decision:
    return Decision(kind=kind, why=why, not_before=now, budget=verdict.budget)
