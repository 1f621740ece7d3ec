"""A job's life as segments laid end to end: no gap, no overlap, whatever the clocks of its nodes said."""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import Final

from sickbay.goodput.model import WITHOUT_MACHINES, Bucket, Cause, Segment
from sickbay.goodput.stepping import stretches
from sickbay.training.history import AttemptEnd, AttemptRecord, JobHistory, Pause, PauseKind

_CAUSE_OF: Final = {
    Bucket.CHECKPOINT_STALL: Cause.CHECKPOINTS,
    Bucket.UNKNOWN: Cause.UNKNOWN,
    Bucket.PRODUCTIVE: "",
}
"""Buckets that are put down to the same whatever ended the attempt."""


def timeline(
    history: JobHistory, submitted_at: datetime, until: datetime, *, over: bool, succeeded: bool
) -> tuple[Segment, ...]:
    """The segments from submission to `until`. `over`: the job is closed then, and nothing will do its steps over."""
    line = _Line(submitted_at, max(until, submitted_at), history.pauses)
    kept = _kept(history.attempts, over=over, succeeded=succeeded, durable=history.durable_step)
    led_here: str = Cause.FIRST_START
    for index, (record, (kept_until, lost)) in enumerate(zip(history.attempts, kept, strict=True)):
        newest = index == len(history.attempts) - 1
        began = until if newest else history.attempts[index + 1].created_at or until
        line.without_attempt(record.created_at or record.planned_at, record.attempt, led_here)
        cause = cause_of(record)
        _attempt(line, record, min(began, line.until), kept_until, lost, led_here, cause)
        led_here = cause
    line.without_attempt(line.until, 0, led_here)
    return tuple(line.segments)


def cause_of(record: AttemptRecord) -> str:
    """What an attempt's end, and all that follows from it, is put down to."""
    if record.verdict is not None:
        return str(record.verdict.failure_class)
    if record.end in (AttemptEnd.STOPPED, AttemptEnd.REACHED_TARGET):
        return Cause.PLANNED
    return Cause.UNJUDGED


def _kept(
    attempts: Sequence[AttemptRecord], *, over: bool, succeeded: bool, durable: int | None
) -> list[tuple[int | None, Bucket]]:
    """For each attempt: the last of its steps that was not done over later, and what its other steps are.

    A step counts once, in its last execution. Of an open job, those since the newest checkpoint may yet be lost.
    """
    limit, lost = (None, Bucket.RECOMPUTED) if succeeded else (durable or 0, Bucket.RECOMPUTED)
    if not over and attempts and attempts[-1].end is None:
        lost = Bucket.UNKNOWN
    kept: list[tuple[int | None, Bucket]] = []
    for record in reversed(attempts):
        kept.append((limit, lost))
        resumed = record.resume_step or 0
        limit, lost = (resumed if limit is None else min(limit, resumed)), Bucket.RECOMPUTED
    return kept[::-1]


def _attempt(
    line: "_Line",
    record: AttemptRecord,
    latest: datetime,
    kept_until: int | None,
    lost: Bucket,
    led_here: str,
    cause: str,
) -> None:
    """The segments of one attempt, from its creation until it can write no more, `latest` at last."""
    gpus, attempt = record.gpus, record.attempt
    over = record.gone_at or latest
    noticed = record.noticed_at or over
    if record.placed_at is None and record.running_at is None:
        line.to(noticed, Bucket.QUEUE, attempt, 0, led_here)
    else:
        line.to(record.placed_at or record.created_at or record.planned_at, Bucket.QUEUE, attempt, 0, led_here)
    if record.first_step_at is None:
        line.to(noticed, Bucket.START, attempt, gpus, led_here)
    else:
        line.to(record.first_step_at - record.restore, Bucket.START, attempt, gpus, led_here)
        line.to(record.first_step_at, Bucket.RESTORE, attempt, gpus, led_here)
        began, ended = line.at, line.cut(record.stopped_at or noticed)
        for bucket, length in stretches(record, began, max(began, ended), kept_until, lost):
            line.to(line.at + length, bucket, attempt, gpus, _CAUSE_OF.get(bucket, cause))
        line.to(noticed, Bucket.HANG_DETECTION, attempt, gpus, cause)
    line.to(over, Bucket.TEARDOWN, attempt, gpus, cause)


class _Line:
    """The segments so far. It only goes forward, and never past its end."""

    def __init__(self, began: datetime, until: datetime, pauses: Iterable[Pause]) -> None:
        self.at = began
        self.until = until
        self.segments: list[Segment] = []
        self._held = [pause for pause in pauses if pause.kind is PauseKind.HELD]

    def cut(self, moment: datetime) -> datetime:
        """The moment, if the line reaches so far."""
        return min(moment, self.until)

    def to(self, moment: datetime, bucket: Bucket, attempt: int, gpus: int, cause: str) -> None:
        """Go on until a moment in one bucket. A moment that is already passed adds nothing."""
        moment = self.cut(moment)
        if moment <= self.at:
            return
        held = 0 if bucket in WITHOUT_MACHINES else gpus
        segment = Segment(
            bucket=bucket, began_at=self.at, ended_at=moment, attempt=attempt, gpus=held, cause=str(cause)
        )
        last = self.segments[-1] if self.segments else None
        if last is not None and (last.bucket, last.attempt, last.cause) == (bucket, attempt, segment.cause):
            segment = segment.model_copy(update={"began_at": last.began_at})
            self.segments.pop()
        self.segments.append(segment)
        self.at = moment

    def without_attempt(self, moment: datetime, attempt: int, cause: str) -> None:
        """Go on until a moment with no attempt: held where a person decides, else in the queue."""
        for began, ended in self._held_within(self.at, self.cut(moment)):
            self.to(began, Bucket.QUEUE, attempt, 0, cause)
            self.to(ended, Bucket.HELD, attempt, 0, cause)
        self.to(moment, Bucket.QUEUE, attempt, 0, cause)

    def _held_within(self, began: datetime, ended: datetime) -> Iterator[tuple[datetime, datetime]]:
        for pause in self._held:
            start, end = max(pause.began_at, began), min(pause.ended_at or self.until, ended)
            if start < end:
                yield start, end


def total(segments: Iterable[Segment], *, gpus: bool = False) -> timedelta:
    """The length of segments together, or their GPU time."""
    return sum(((each.gpu_time if gpus else each.length) for each in segments), timedelta(0))
