"""The time in which an attempt stepped, split into what lasted, what was lost and what waited for checkpoints.

A history knows where an attempt stood at some moments only. Between two of them steps count as equally long.
"""

from collections.abc import Iterator
from datetime import datetime, timedelta
from itertools import pairwise
from typing import NamedTuple

from sickbay.goodput.model import Bucket
from sickbay.training.history import AttemptEnd, AttemptRecord


class Stretch(NamedTuple):
    """So much time in one bucket, following on the one before."""

    bucket: Bucket
    length: timedelta


class _Point(NamedTuple):
    at: datetime
    step: int
    stall: timedelta


NOTHING = timedelta(0)


def stretches(
    record: AttemptRecord, began: datetime, ended: datetime, kept_until: int | None, lost: Bucket
) -> Iterator[Stretch]:
    """What became of the time from an attempt's first step until its last. The lengths add up to it exactly.

    Steps after `kept_until` are in the bucket `lost`; None keeps all.
    """
    points = _points(record, began, ended)
    for before, after in pairwise(points):
        yield from _between(before, after, kept_until, lost)
    # After the last thing known of it, an attempt may have stepped on or stood still.
    yield Stretch(Bucket.UNKNOWN, ended - points[-1].at)


def _points(record: AttemptRecord, began: datetime, ended: datetime) -> list[_Point]:
    """Where it stood when, in order: a report that is late, early or repeated has no place in it."""
    points = [_Point(began, record.resume_step or 0, NOTHING)]
    told = [_Point(sample.at, sample.step, sample.checkpoint_stall) for sample in record.samples]
    if not told and record.progress_at is not None and record.durable_step is not None:
        # Its ranks tell nothing; what it saved was done by the time that it was seen.
        told = [_Point(record.progress_at, record.durable_step, NOTHING)]
    if record.end in (AttemptEnd.REACHED_TARGET, AttemptEnd.STOPPED) and record.durable_step is not None:
        told.append(_Point(ended, record.durable_step, told[-1].stall if told else NOTHING))
    for point in told:
        last = points[-1]
        if point.step > last.step and last.at < point.at <= ended:
            points.append(point._replace(stall=max(point.stall, last.stall)))
    return points


def _between(before: _Point, after: _Point, kept_until: int | None, lost: Bucket) -> Iterator[Stretch]:
    length = after.at - before.at
    stall = min(after.stall - before.stall, length)
    stepping = length - stall
    steps = after.step - before.step
    kept = steps if kept_until is None else min(max(kept_until - before.step, 0), steps)
    productive = stepping * kept // steps
    yield Stretch(Bucket.PRODUCTIVE, productive)
    yield Stretch(Bucket.CHECKPOINT_STALL, stall)
    yield Stretch(lost, stepping - productive)
