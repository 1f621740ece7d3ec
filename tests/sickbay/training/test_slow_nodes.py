"""When a job leaves a slow node: only if the rest of it gains more than that costs, and there is another node."""

from datetime import timedelta

import pytest

from sickbay.ranks.model import Pace, RanksLook, SlowCause, SlowRank
from sickbay.ranks.outcome import SlowOutcome
from sickbay.training import slow_nodes
from sickbay.training.history import AttemptRecord, JobHistory
from sickbay.training.job import Target
from tests.sickbay.training.records import BEGIN, history, spec

MINUTE = timedelta(minutes=1)


def slow(slowdown: float = 1.5) -> SlowRank:
    return SlowRank(rank=3, node="b", cause=SlowCause.COMPUTE, slowdown=slowdown, since=BEGIN, evidence=())


def ranks(step: int | None = 0, pace: timedelta | None = MINUTE) -> RanksLook:
    return RanksLook(observed_at=BEGIN, reporting=2, step=step, pace=Pace(step=pace))


def attempt(number: int, **values: object) -> AttemptRecord:
    told = {"attempt": number, "nodes": 1, "gpus": 8, "planned_at": BEGIN, "running_at": BEGIN, "progress_at": BEGIN}
    return AttemptRecord.model_validate({**told, **values})


def decided(known: JobHistory | None = None, *, spares: int = 1, look: RanksLook | None = None) -> SlowOutcome:
    known = known or history(attempt(1))
    return slow_nodes.outcome_of(spec(), known, slow(), look or ranks(), spares, BEGIN)


def test_a_long_job_leaves_a_node_that_takes_a_third_of_its_pace() -> None:
    assert decided() is SlowOutcome.LEAVE_AT_CHECKPOINT


def test_a_job_that_is_nearly_done_bears_it() -> None:
    assert decided(look=ranks(step=960)) is SlowOutcome.CHECK


def test_without_another_node_it_is_borne() -> None:
    assert decided(spares=0) is SlowOutcome.CHECK


def test_work_since_the_newest_checkpoint_counts_against_leaving() -> None:
    stale = history(attempt(1, progress_at=BEGIN - 400 * MINUTE))
    assert decided(stale) is SlowOutcome.CHECK


@pytest.mark.parametrize("look", [ranks(step=None), ranks(pace=None)])
def test_what_cannot_be_estimated_is_not_worth_it(look: RanksLook) -> None:
    assert decided(look=look) is SlowOutcome.CHECK


def test_a_job_that_ends_by_a_marker_tells_no_rest() -> None:
    assert slow_nodes.remaining(spec(target=Target(marker="s3://b/done")), ranks()) is None


def test_a_restart_costs_what_the_jobs_own_restarts_took() -> None:
    assert slow_nodes.restart_cost(history(attempt(1))) == slow_nodes.RESTART
    known = history(attempt(1, stopped_at=BEGIN), attempt(2, first_step_at=BEGIN + 7 * MINUTE))
    assert slow_nodes.restart_cost(known) == 7 * MINUTE


def test_the_node_is_kept_off_for_a_while_and_gives_way_where_there_is_no_other() -> None:
    off = slow_nodes.kept_off(slow(), BEGIN)
    assert (off.node, off.soft, off.until > BEGIN) == ("b", True, True)
