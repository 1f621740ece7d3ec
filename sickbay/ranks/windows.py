"""One rank's newest window of steps, out of the lines that its reporter writes.

Used by `health.rank_collector`. It keeps a bounded sample of the last minute or so and medians of it, since a pause of
one step (a checkpoint, an evaluation, a collection of garbage) says nothing of a rank's pace. It compares no ranks.
"""

from collections import deque
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from statistics import median
from typing import Final, NamedTuple

from sickbay.ranks.model import RankPlace, RankWindow, SoFar, StepReport

SAMPLES: Final = 240
"""Steps kept of a window at most: of quicker steps, as many as stand evenly in it."""
FEWEST: Final = 4
"""Steps kept although they are older than the window, where a step takes long."""
_MOST: Final = 1e12
"""What `model.Milliseconds` can hold."""
LONGEST_GAP: Final = timedelta(hours=1)
"""A longer pause says nothing of the job's pace (as in `health.rank_reporter`)."""


class _Sample(NamedTuple):
    step: int
    at: float
    compute_ms: float
    collective_ms: float
    data_ms: float
    checkpoint_ms: float
    tokens: float


class RankTrack:
    """What is known of one rank of one attempt."""

    def __init__(self, length: timedelta) -> None:
        """`length` is that of a window."""
        self._length = length.total_seconds()
        self._samples: deque[_Sample] = deque(maxlen=SAMPLES)
        self._newest: StepReport | None = None
        self._so_far: SoFar | None = None

    def take(self, report: StepReport, now: float) -> None:
        """One more line, read at this Unix time of the same host. A step that is not newer begins the window anew:
        the script was started again within its attempt, or went back to a checkpoint."""
        at = min(report.at, now)
        before = self._newest
        self._count(report, at)
        self._newest = report.model_copy(update={"at": at})
        if before is not None and (report.step <= before.step or at < before.at):
            self._samples.clear()
        if self._samples and at - self._samples[-1].at < self._length / SAMPLES:
            return
        times = (report.compute_ms, report.collective_ms, report.data_ms, report.checkpoint_ms, report.tokens)
        self._samples.append(_Sample(report.step, at, *times))
        while len(self._samples) > FEWEST and self._samples[0].at < at - self._length:
            self._samples.popleft()

    def window(self, node: str) -> RankWindow | None:
        """The newest window; None before the first line."""
        newest, so_far = self._newest, self._so_far
        if newest is None or so_far is None or not self._samples:
            return None
        samples = self._samples
        return RankWindow(
            job=newest.job,
            attempt=newest.attempt,
            place=newest.place,
            node=node,
            number=int(newest.at // self._length),
            first_step=so_far.first_step,
            last_step=newest.step,
            first_at=_moment(so_far.first_at),
            last_at=_moment(newest.at),
            steps=newest.step - samples[0].step + 1,
            step_ms=min(round(self._step_ms(newest), 3), _MOST),
            compute_ms=median(sample.compute_ms for sample in samples),
            collective_ms=median(sample.collective_ms for sample in samples),
            data_ms=median(sample.data_ms for sample in samples),
            checkpoint_ms=median(sample.checkpoint_ms for sample in samples),
            longest_gap_ms=so_far.longest_gap_ms,
            checkpoint_ms_total=so_far.checkpoint_ms,
            restore_ms_total=so_far.restore_ms,
            tokens=median(sample.tokens for sample in samples),
        )

    @property
    def place(self) -> RankPlace | None:
        """Where the rank stands, as it last told."""
        return None if self._newest is None else self._newest.place

    def _step_ms(self, newest: StepReport) -> float:
        """Median of the time from step to step; the sum of the parts while there is one step alone."""
        rates = [
            (later.at - earlier.at) * 1000 / (later.step - earlier.step)
            for earlier, later in pairwise(self._samples)
            if later.at > earlier.at
        ]
        if rates:
            return median(rates)
        return newest.compute_ms + newest.collective_ms + newest.data_ms + newest.checkpoint_ms

    def _count(self, report: StepReport, at: float) -> None:
        """Sums over the attempt: the rank's own where it tells them, and never less than before."""
        told, known, before = report.so_far, self._so_far, self._newest
        if told is None:
            gap = 0.0 if before is None else (at - before.at) * 1000
            told = SoFar(
                first_step=report.step if known is None else known.first_step,
                first_at=at if known is None else known.first_at,
                longest_gap_ms=gap if 0 < gap <= LONGEST_GAP / timedelta(milliseconds=1) else 0,
                checkpoint_ms=min(report.checkpoint_ms + (0 if known is None else known.checkpoint_ms), _MOST),
                restore_ms=min(report.restore_ms + (0 if known is None else known.restore_ms), _MOST),
            )
        if known is None:
            self._so_far = told
            return
        self._so_far = SoFar(
            first_step=min(told.first_step, known.first_step),
            first_at=min(told.first_at, known.first_at),
            longest_gap_ms=max(told.longest_gap_ms, known.longest_gap_ms),
            checkpoint_ms=max(told.checkpoint_ms, known.checkpoint_ms),
            restore_ms=max(told.restore_ms, known.restore_ms),
        )


def _moment(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)
