"""Which checkpoint an attempt resumes from: the newest that is whole, untainted and not by a stale writer.

Called by the training workflow before each attempt, and by `sickbay checkpoints`. Never silently from the beginning,
nor from an older step than was known durable (design, 3.14): then a person decides. What could not be listed is not
absent.
"""

from collections.abc import Iterable
from datetime import timedelta
from typing import Final

from sickbay.checkpoints.model import Checkpoint, CheckpointListing, CheckpointPlace, Level, Lineage, ResumeChoice
from sickbay.checkpoints.taint import tainted
from sickbay.training.history import JobHistory

SETTLING: Final = timedelta(seconds=60)
"""Between a store's clock and ours."""
PASSED_OVER_TOLD: Final = 10


def choose(
    listing: CheckpointListing,
    place: CheckpointPlace,
    history: JobHistory,
    *,
    allow_nothing: bool,
    override: int | None = None,
) -> ResumeChoice:
    """The choice for the next attempt.

    `allow_nothing` is whether the first attempt may begin without any; `override` is the step that a person has named,
    0 for the beginning, which overrules everything but wholeness.
    """
    known = judged(listing.checkpoints, history)
    if override is not None:
        return _by_order(known, override)
    passed: list[str] = []
    for checkpoint in known:
        if why := why_not(checkpoint, place, history):
            passed.append(f"step {checkpoint.step} ({checkpoint.path}): {why}")
            continue
        return _resumed(checkpoint, passed, listing, history)
    return _nothing(listing, history, passed, allow_nothing=allow_nothing)


def judged(checkpoints: Iterable[Checkpoint], history: JobHistory) -> tuple[Checkpoint, ...]:
    """Checkpoints newest first, with what the job's own history says of them: proven, tainted."""
    raised = (
        each.model_copy(update={"level": Level.PROVEN})
        if each.path in history.proven and each.level.may_resume
        else each
        for each in checkpoints
    )
    marked = tainted(raised, history.lineage, history.taints)
    return tuple(sorted(marked, key=lambda each: (each.step, each.attempt or 0), reverse=True))


def why_not(checkpoint: Checkpoint, place: CheckpointPlace, history: JobHistory) -> str:
    """Why this one is not resumed from, in words; empty if it may be."""
    if not checkpoint.level.may_resume:
        return "; ".join(checkpoint.problems[:3]) or f"it is only {checkpoint.level}"
    if checkpoint.tainted:
        return checkpoint.tainted
    if checkpoint.path in history.invalid:
        return "an attempt could not read it"
    if place.per_attempt and (stale := _is_stale(checkpoint, history.lineage)):
        return stale
    return ""


def _is_stale(checkpoint: Checkpoint, lineage: tuple[Lineage, ...]) -> str:
    """Whether a writer of an earlier attempt finished it after that attempt was over (facts: training, 3.2)."""
    own = next((each for each in lineage if each.attempt == checkpoint.attempt), None)
    if checkpoint.attempt is None:
        return ""
    if own is None:
        return f"attempt {checkpoint.attempt} is none of this job's" if lineage else ""
    if own.ended_at is None or checkpoint.written_at is None or checkpoint.written_at <= own.ended_at + SETTLING:
        return ""
    return f"attempt {checkpoint.attempt} was over when it was written"


def _resumed(
    checkpoint: Checkpoint, passed: list[str], listing: CheckpointListing, history: JobHistory
) -> ResumeChoice:
    skipped = tuple(passed[:PASSED_OVER_TOLD])
    durable = history.durable_step
    if durable is not None and checkpoint.step < durable:
        unsure = "" if listing.complete else f" The listing is not complete: {'; '.join(listing.problems)}."
        explained = f" Passed over: {'; '.join(skipped)}." if skipped else ""
        if skipped and listing.complete and _explains(passed, durable):
            words = f"step {checkpoint.step}, since step {durable} cannot be used: {passed[0]}"
            return ResumeChoice(checkpoint=checkpoint, why=words, passed_over=skipped)
        words = f"step {durable} was durable, and the newest that can be used is step {checkpoint.step}"
        return ResumeChoice(
            checkpoint=checkpoint, allowed=False, why=words + "." + unsure + explained, passed_over=skipped
        )
    words = f"step {checkpoint.step}, the newest that is whole ({checkpoint.level})"
    return ResumeChoice(checkpoint=checkpoint, why=words, passed_over=skipped)


def _explains(passed: list[str], durable: int) -> bool:
    """Whether the step that was durable is there and known to be bad: then an older one is no silent step back."""
    return any(words.startswith(f"step {durable} ") for words in passed)


def _nothing(
    listing: CheckpointListing, history: JobHistory, passed: list[str], *, allow_nothing: bool
) -> ResumeChoice:
    skipped = tuple(passed[:PASSED_OVER_TOLD])
    if not listing.complete:
        words = f"the checkpoints could not be listed, and there may be some: {'; '.join(listing.problems)}"
        return ResumeChoice(allowed=False, why=words, passed_over=skipped)
    if history.durable_step is not None:
        words = f"step {history.durable_step} was durable, and no checkpoint can be used any more"
        return ResumeChoice(allowed=False, why=words, passed_over=skipped)
    if passed:
        words = f"there are checkpoints, and none can be used: {passed[0]}"
        return ResumeChoice(allowed=False, why=words, passed_over=skipped)
    if history.attempts or allow_nothing:
        return ResumeChoice(why="from the beginning: there is no checkpoint yet")
    return ResumeChoice(allowed=False, why="there is no checkpoint, and the job must not begin without one")


def _by_order(known: tuple[Checkpoint, ...], step: int) -> ResumeChoice:
    if step == 0:
        return ResumeChoice(why="from the beginning, by a person's order")
    whole = next((each for each in known if each.step == step and each.level.may_resume), None)
    if whole is None:
        return ResumeChoice(allowed=False, why=f"a person named step {step}, and there is no whole checkpoint of it")
    return ResumeChoice(checkpoint=whole, why=f"step {step}, by a person's order")
