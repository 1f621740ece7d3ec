from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sickbay.ranks.hangs import limit
from sickbay.ranks.model import NodeRanks, Pace
from tests.sickbay.ranks.jobs import Job, Rank

FLOOR = timedelta(minutes=5)


def stalled(minutes: float, **job: object) -> tuple[Job, tuple[NodeRanks, ...]]:
    """A job of four ranks that trained for half an hour and has not finished a step for some minutes."""
    training = Job([Rank()] * 4, **job)  # type: ignore[arg-type]
    training.run(20)
    pages = training.pages(last_at=training.now() - timedelta(minutes=minutes))
    return training, pages


def test_a_job_without_a_step_for_longer_than_its_limit_hangs_since_its_last_step() -> None:
    training, pages = stalled(6)
    hang = training.look(pages).hang
    assert hang is not None
    assert hang.since == training.now() - timedelta(minutes=6)
    assert hang.limit == FLOOR
    assert hang.behind == ()
    assert "no rank finished a step for 360 s, where one usually takes 0.97 s" in hang.evidence[0]


def test_a_pause_within_the_limit_is_no_hang() -> None:
    training, pages = stalled(4)
    assert training.look(pages).hang is None


def test_one_rank_that_still_steps_is_no_hang() -> None:
    training, pages = stalled(6)
    assert training.look([*pages[:3], training.pages()[3]]).hang is None


def test_a_job_that_has_finished_no_step_yet_does_not_hang() -> None:
    assert Job([Rank()] * 4).look([]).hang is None


def test_ranks_that_miss_a_step_which_others_finished_are_named_as_behind() -> None:
    training, _ = stalled(6)
    pages = training.pages(last_at=training.now() - timedelta(minutes=6), steps=[900, 900, 899, 900])
    hang = training.look(pages).hang
    assert hang is not None
    assert (hang.last_step, hang.behind) == (900, (2,))


def test_a_few_ranks_alone_prove_no_hang_since_the_others_are_unknown() -> None:
    training, pages = stalled(6)
    assert training.look(pages[:1]).hang is None
    assert training.look(pages[:2]).hang is not None


@pytest.mark.parametrize("ahead", [timedelta(hours=3), timedelta(hours=-3), timedelta(days=700)])
def test_clocks_make_no_hang_and_hide_none(ahead: timedelta) -> None:
    clocks = {"node-001": ahead, "node-003": -ahead}
    training, pages = stalled(6, clocks=clocks)
    hang = training.look(pages).hang
    assert hang is not None
    assert hang.since == training.now() - timedelta(minutes=6)
    assert training.look(training.pages()).hang is None


def test_a_job_that_pauses_long_now_and_then_gets_the_time() -> None:
    training, _ = stalled(0)
    pages = [_paused(page, timedelta(minutes=8)) for page in training.pages()]
    training.look(pages)
    later = training.pages(last_at=training.now() - timedelta(minutes=11))
    assert training.look(later).hang is None
    later = training.pages(last_at=training.now() - timedelta(minutes=13))
    hang = training.look(later).hang
    assert hang is not None
    assert hang.limit == timedelta(minutes=12)


def _paused(page: NodeRanks, gap: timedelta) -> NodeRanks:
    told = gap / timedelta(milliseconds=1)
    windows = tuple(each.model_copy(update={"longest_gap_ms": told}) for each in page.windows)
    return page.model_copy(update={"windows": windows})


def test_an_attempt_of_another_size_learns_its_steps_anew_and_keeps_the_usual_pauses() -> None:
    training = Job([Rank()] * 4)
    training.run(20)
    training.pace = training.pace.model_copy(update={"longest": timedelta(minutes=8)})
    again = Job([Rank(compute_ms=1800)] * 2, pace=training.pace, minute=3)
    pace = again.look().pace
    assert pace.step == timedelta(milliseconds=1870)
    assert pace.longest == timedelta(minutes=8)


@given(
    step=st.none() | st.timedeltas(timedelta(0), timedelta(hours=1)),
    longest=st.timedeltas(timedelta(0), timedelta(hours=1)),
    floor=st.timedeltas(timedelta(0), timedelta(hours=1)),
)
def test_the_limit_is_never_below_the_floor_three_steps_or_the_longest_pause(
    step: timedelta | None, longest: timedelta, floor: timedelta
) -> None:
    most = limit(Pace(step=step, longest=longest), floor)
    assert most >= floor
    assert most >= longest
    assert step is None or most >= 3 * step
