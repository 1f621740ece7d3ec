"""How a job's history grows, and that it stays small however long the job lives."""

from datetime import datetime, timedelta

import pytest

from sickbay.checkpoints.model import Checkpoint, CheckpointFormat, Level
from sickbay.ranks.model import RanksLook
from sickbay.training import bookkeeping
from sickbay.training.attempts import AttemptLook, AttemptPlan, AttemptRef, AttemptState, Placement
from sickbay.training.history import AttemptEnd, JobHistory, PauseKind
from tests.sickbay.training.records import BEGIN

SECOND = timedelta(seconds=1)


def plan(number: int, resume: Checkpoint | None = None) -> AttemptPlan:
    ref = AttemptRef(cluster="c", namespace="ml", job="run", attempt=number, fence="f")
    return AttemptPlan(ref=ref, nodes=2, resume=resume, checkpoint_url="s3://b/run/1")


def saved(step: int, path: str = "") -> Checkpoint:
    return Checkpoint(step=step, path=path or f"run/{step}", format=CheckpointFormat.DCP, level=Level.COMMITTED)


def looked(history: JobHistory, after: float, step: int | None = None, **values: object) -> JobHistory:
    now = BEGIN + after * SECOND
    ranks = RanksLook(observed_at=now, reporting=1, step=step, step_at=now, first_step_at=now) if step else None
    look = AttemptLook.model_validate(
        {"observed_at": now, "state": AttemptState.RUNNING, "ranks": ranks, "running_since": BEGIN, **values}
    )
    return bookkeeping.looked(history, look, now)


def begun(history: JobHistory | None = None, resume: Checkpoint | None = None, number: int = 1) -> JobHistory:
    return bookkeeping.begun(history or JobHistory(), plan(number, resume), 16, BEGIN, BEGIN)


def test_a_first_step_and_what_came_with_it_are_kept_once() -> None:
    history = looked(looked(begun(), 10, 1), 20, 5)
    record = history.attempts[0]
    assert (record.first_step_at, record.running_at) == (BEGIN + 10 * SECOND, BEGIN)
    assert [sample.step for sample in record.samples] == [1, 5]


def test_a_report_that_goes_back_or_repeats_adds_nothing() -> None:
    history = looked(looked(looked(begun(), 10, 5), 20, 5), 30, 3)
    assert [sample.step for sample in history.attempts[0].samples] == [5]


def test_ranks_that_tell_nothing_prove_their_steps_by_a_checkpoint() -> None:
    history = looked(begun(), 30, newest=saved(40))
    assert history.attempts[0].first_step_at == BEGIN + 30 * SECOND
    assert (history.attempts[0].progress_at, history.durable_step) == (BEGIN + 30 * SECOND, 40)


def test_an_older_checkpoint_is_no_progress() -> None:
    history = looked(looked(begun(), 30, newest=saved(40)), 60, newest=saved(20))
    assert (history.attempts[0].progress_at, history.durable_step) == (BEGIN + 30 * SECOND, 40)


def test_what_was_resumed_from_is_proven_by_a_newer_checkpoint_alone() -> None:
    history = begun(resume=saved(40))
    assert bookkeeping.proven(looked(history, 10, 41)).proven == ()
    assert bookkeeping.proven(looked(history, 10, newest=saved(40))).proven == ()
    assert bookkeeping.proven(looked(history, 10, newest=saved(60))).proven == ("run/40",)


def test_a_failed_attempt_stopped_at_its_last_known_step_and_one_that_we_end_stops_now() -> None:
    history = looked(begun(), 10, 5)
    now = BEGIN + 60 * SECOND
    failed = bookkeeping.stopped(history, AttemptEnd.FAILED, "", now).attempts[0]
    assert (failed.stopped_at, failed.noticed_at) == (BEGIN + 10 * SECOND, now)
    assert bookkeeping.stopped(history, AttemptEnd.STOPPED, "", now).attempts[0].stopped_at == now


def test_a_pause_of_another_kind_ends_the_one_before() -> None:
    history = bookkeeping.paused(JobHistory(), PauseKind.QUEUE, "", BEGIN)
    history = bookkeeping.paused(history, PauseKind.QUEUE, "", BEGIN + SECOND)
    history = bookkeeping.paused(history, PauseKind.HELD, "why", BEGIN + 2 * SECOND)
    history = bookkeeping.resumed(history, BEGIN + 3 * SECOND)
    assert [(each.kind, each.began_at, each.ended_at) for each in history.pauses] == [
        (PauseKind.QUEUE, BEGIN, BEGIN + 2 * SECOND),
        (PauseKind.HELD, BEGIN + 2 * SECOND, BEGIN + 3 * SECOND),
    ]


def test_who_took_part_is_kept_for_the_lineage_unless_there_are_too_many_to_keep() -> None:
    def of(count: int) -> JobHistory:
        places = tuple(Placement(rank=rank, pod=f"p{rank}", node=f"n{rank}") for rank in range(count))
        return bookkeeping.gone(looked(begun(), 10, 1, placements=places), BEGIN)

    assert of(2).lineage[-1].nodes == ("n0", "n1")
    assert of(bookkeeping.NODES_KEPT + 1).lineage[-1].nodes == ()


@pytest.mark.parametrize("looks", [64, 1_000])
def test_the_history_of_hundreds_of_attempts_fits_into_a_workflow(looks: int) -> None:
    """Temporal refuses payloads of more than 2 MB."""
    history = JobHistory()
    for number in range(1, 201):
        history = begun(history, saved(number), number)
        for step in range(looks if number > 180 else 8):
            history = looked(
                history, step + 1, step + 1, newest=saved(number * 1_000 + step, f"s3://bucket/run/{step}")
            )
        history = bookkeeping.gone(bookkeeping.stopped(history, AttemptEnd.FAILED, "x" * 200, _later()), _later())
    assert len(history.model_dump_json()) < 1_000_000
    assert history.attempts[-1].samples[0].step == 1
    assert history.attempts[-1].samples[-1].step == looks


def _later() -> datetime:
    return BEGIN + timedelta(hours=1)
