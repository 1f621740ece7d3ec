"""A job's own pace: how long its steps take and how long it pauses, learned from look to look.

Called by `judgement`. A job is compared with itself alone: what is slow or still for one is usual for another.
"""

from collections.abc import Sequence
from datetime import timedelta
from statistics import median
from typing import Final

from sickbay.ranks.model import Pace, RankWindow
from sickbay.ranks.slow import settled

MEMORY: Final = timedelta(hours=2)
"""Training that weighs against new steps: a job that has changed for good is its own measure after some hours."""
ENOUGH_STEPS: Final = 50
"""Until so many steps were seen, nothing is said of the job as a whole."""
ALL_SLOW: Final = 1.2
"""Step time over the job's own that is told (facts: training, 5, impact scale: critical)."""


def learned(pace: Pace, windows: Sequence[RankWindow]) -> Pace:
    """The pace with what these windows of one attempt add. Fewer steps than before are another attempt's, whose size
    may differ: its steps are learned anew, while the usual pauses stay known."""
    if not windows:
        return pace
    seen = max(window.last_step for window in windows) - min(window.first_step for window in windows) + 1
    if seen < pace.steps_seen:
        pace = pace.model_copy(update={"step": None, "steps_seen": 0})
    pauses = median(window.longest_gap_ms for window in windows)
    update: dict[str, object] = {
        "steps_seen": seen,
        "longest": max(pace.longest, timedelta(milliseconds=pauses)),
        "step": _step(pace, seen, windows),
    }
    return pace.model_copy(update=update)


def all_slow(pace: Pace, windows: Sequence[RankWindow]) -> str:
    """What to say if the steps of all take longer than this job's own pace; empty if they do not."""
    now = step_now(windows)
    if now is None or not pace.step or pace.steps_seen < ENOUGH_STEPS or now < ALL_SLOW * pace.step:
        return ""
    more, usual = (now / pace.step - 1) * 100, pace.step.total_seconds()
    return (
        f"a step takes {now.total_seconds():.3g} s, {more:.0f} % more than this job's own {usual:.3g} s, "
        "and no rank stands out: a switch, storage, power or heat, or the job itself"
    )


def step_now(windows: Sequence[RankWindow]) -> timedelta | None:
    """Median of the ranks' steps, the first ones of an attempt left out."""
    steps = [window.step_ms for window in windows if settled(window) and window.step_ms > 0]
    return timedelta(milliseconds=median(steps)) if steps else None


def _step(pace: Pace, seen: int, windows: Sequence[RankWindow]) -> timedelta | None:
    now = step_now(windows)
    if now is None or pace.step is None:
        return now if pace.step is None else pace.step
    # In seconds as numbers: a time of any size times a number of any size is no `timedelta`.
    fresh = now.total_seconds() * (seen - pace.steps_seen)
    known = min(pace.step.total_seconds() * pace.steps_seen, MEMORY.total_seconds())
    return pace.step + (now - pace.step) * (fresh / (known + fresh) if fresh > 0 else 0.0)
