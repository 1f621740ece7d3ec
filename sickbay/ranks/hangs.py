"""Whether a job stands still, by its own pace.

Called by `judgement`. No rank may have finished a step for longer than the job ever takes; before a first step there is
no hang, only the start's deadline (facts: training, 5 and 1.5). Each rank's silence is measured by its own host's clock
alone, so that clocks which differ make no hang and hide none.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final

from sickbay.ranks.model import Hang, NodeRanks, Pace

STEPS: Final = 3
"""Usual steps without a step that make a hang (facts: training, 5: Unicron)."""
PAUSE: Final = 1.5
"""The longest pause that was none, times this: the next checkpoint may take a little longer than the last."""
LONGEST: Final = timedelta(days=366)
"""Silence that is told; a longer one is a clock's."""
BEHIND_MOST: Final = 64
"""Ranks named at most."""


def limit(pace: Pace, floor: timedelta) -> timedelta:
    """How long this job may be without a step."""
    return max(floor, pace.longest * PAUSE, timedelta(0) if pace.step is None else pace.step * STEPS)


def quiet(pages: Sequence[NodeRanks]) -> timedelta | None:
    """How long ago the last step was that anybody finished; None before the first."""
    ages = [max(page.at - window.last_at, timedelta(0)) for page in pages for window in page.windows]
    return min(ages, default=None)


def hang(pages: Sequence[NodeRanks], pace: Pace, floor: timedelta, ranks_expected: int, now: datetime) -> Hang | None:
    """The hang that these pages show, if they do. Fewer than half of the ranks show none: the others are unknown."""
    windows = [window for page in pages for window in page.windows]
    silence, most = quiet(pages), limit(pace, floor)
    if silence is None or silence <= most or 2 * len(windows) < ranks_expected:
        return None
    last = max(window.last_step for window in windows)
    behind = sorted({window.place.rank for window in windows if window.last_step < last})
    usual = "" if pace.step is None else f", where one usually takes {pace.step.total_seconds():.3g} s"
    return Hang(
        since=now - min(silence, LONGEST),
        last_step=last,
        limit=most,
        behind=tuple(behind[:BEHIND_MOST]),
        evidence=(
            f"no rank finished a step for {silence.total_seconds():.0f} s{usual}",
            f"the limit is {most.total_seconds():.0f} s, by the job's own pauses and the floor that was set",
        ),
    )
