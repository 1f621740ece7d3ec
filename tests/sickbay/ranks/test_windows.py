from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sickbay.ranks.model import RankPlace, RankWindow, SoFar, StepReport
from sickbay.ranks.windows import SAMPLES, RankTrack

BEGIN = 1_800_000_000.0
LATER = BEGIN + 1e6
MINUTE = timedelta(minutes=1)


def report(step: int, at: float, compute_ms: float = 100, so_far: SoFar | None = None, **more: float) -> StepReport:
    place = RankPlace(rank=1)
    times = {"compute_ms": compute_ms, **more}
    return StepReport.model_validate(
        {"job": "ml/a", "attempt": 1, "place": place, "step": step, "at": at, "so_far": so_far, **times}
    )


def window_of(*reports: StepReport, now: float = LATER) -> RankWindow:
    track = RankTrack(MINUTE)
    for each in reports:
        track.take(each, now)
    window = track.window("node-a")
    assert window is not None
    return window


def test_a_window_is_the_median_of_the_last_minute() -> None:
    window = window_of(*(report(step, BEGIN + step, 500 if step < 100 else 100) for step in range(200)))
    assert (window.step_ms, window.compute_ms) == (1000, 100)
    assert (window.first_step, window.last_step) == (0, 199)
    assert window.steps == 61
    assert window.last_at == datetime.fromtimestamp(BEGIN + 199, UTC)


def test_the_pause_of_one_step_does_not_move_the_median_but_is_the_longest_gap() -> None:
    times = [BEGIN + step + (12 if step > 30 else 0) for step in range(60)]
    window = window_of(*(report(step, at) for step, at in enumerate(times)))
    assert window.step_ms == 1000
    assert window.longest_gap_ms == 13_000


def test_quick_steps_are_sampled_evenly_over_the_window_and_counted_all() -> None:
    window = window_of(*(report(step, BEGIN + step * 0.01, 100 if step < 8000 else 300) for step in range(10_000)))
    assert window.step_ms == pytest.approx(10)
    assert window.compute_ms == 100
    assert window.steps == pytest.approx(6000, rel=0.02)


def test_steps_that_take_longer_than_the_window_still_make_one() -> None:
    window = window_of(*(report(step, BEGIN + step * 90) for step in range(10)))
    assert (window.step_ms, window.steps) == (90_000, 4)


def test_a_script_that_reports_every_tenth_step_has_the_time_of_one_step() -> None:
    assert window_of(*(report(step * 10, BEGIN + step * 5) for step in range(20))).step_ms == 500


def test_a_step_back_begins_the_window_anew_and_keeps_the_sums() -> None:
    forth = [report(step, BEGIN + step, checkpoint_ms=5) for step in range(50)]
    back = [report(20 + step, BEGIN + 50 + step * 2, 200) for step in range(3)]
    window = window_of(*forth, *back)
    assert (window.last_step, window.compute_ms, window.step_ms) == (22, 200, 2000)
    assert window.first_step == 0
    assert window.checkpoint_ms_total == 250


def test_what_a_rank_counts_itself_is_believed_from_the_first_line_that_is_seen() -> None:
    so_far = SoFar(first_step=3, first_at=BEGIN, longest_gap_ms=9000, checkpoint_ms=700, restore_ms=50)
    window = window_of(report(5000, BEGIN + 5000, so_far=so_far))
    assert (window.first_step, window.longest_gap_ms) == (3, 9000)
    assert (window.checkpoint_ms_total, window.restore_ms_total) == (700, 50)
    assert window.step_ms == 100


def test_a_time_to_come_is_the_time_of_reading() -> None:
    assert window_of(report(1, BEGIN + 5000), now=BEGIN).last_at == datetime.fromtimestamp(BEGIN, UTC)


def test_windows_of_one_minute_have_one_number() -> None:
    start = BEGIN - BEGIN % 60
    numbers = [window_of(report(1, start + second)).number for second in (0, 59.9, 60)]
    assert numbers[0] == numbers[1] == numbers[2] - 1


@given(
    st.lists(
        st.builds(
            report,
            st.integers(0, 2**53),
            st.floats(0, 4e9),
            st.floats(0, 1e12),
            checkpoint_ms=st.floats(0, 1e12),
            collective_ms=st.floats(0, 1e12),
        ),
        min_size=1,
        max_size=2 * SAMPLES,
    )
)
def test_whatever_is_reported_makes_a_window(reports: list[StepReport]) -> None:
    window = window_of(*reports)
    assert window.last_step == reports[-1].step
    assert window.step_ms >= 0
