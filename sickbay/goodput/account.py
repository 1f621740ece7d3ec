"""A job's time added up: by bucket, by cause, and as the ratios that the field compares."""

from collections.abc import Sequence
from datetime import datetime, timedelta

from sickbay.goodput.model import WITHOUT_MACHINES, Bucket, BucketSum, CauseSum, GoodputReport, Segment
from sickbay.goodput.timeline import timeline, total
from sickbay.training.history import JobHistory


def account_for(
    history: JobHistory, submitted_at: datetime, now: datetime, closed_at: datetime | None, *, succeeded: bool
) -> GoodputReport:
    """The report of a job, as it stands at its end or, while it is open, `now`."""
    until = max(closed_at or now, submitted_at)
    segments = timeline(history, submitted_at, until, over=closed_at is not None, succeeded=succeeded)
    wall, gpu_time = total(segments), total(segments, gpus=True)
    buckets = tuple(_sum(bucket, segments) for bucket in Bucket)
    by_bucket = {each.bucket: each for each in buckets}
    productive = by_bucket[Bucket.PRODUCTIVE]
    with_machines = wall - sum((by_bucket[each].time for each in WITHOUT_MACHINES), timedelta(0))
    return GoodputReport(
        submitted_at=submitted_at,
        until=until,
        open=closed_at is None,
        attempts=len(history.attempts),
        wall=wall,
        gpu_time=gpu_time,
        buckets=buckets,
        lost=_lost(segments),
        ettr=_share(productive.time, wall),
        ettr_running=_share(productive.time, wall - by_bucket[Bucket.QUEUE].time),
        scheduling_goodput=_share(with_machines, wall),
        runtime_goodput=_share(productive.gpu_time, gpu_time),
        unknown_share=_share(by_bucket[Bucket.UNKNOWN].time, wall),
        segments=segments,
    )


def _sum(bucket: Bucket, segments: Sequence[Segment]) -> BucketSum:
    here = [each for each in segments if each.bucket is bucket]
    return BucketSum(bucket=bucket, time=total(here), gpu_time=total(here, gpus=True))


def _lost(segments: Sequence[Segment]) -> tuple[CauseSum, ...]:
    unproductive = [each for each in segments if each.bucket is not Bucket.PRODUCTIVE]
    sums = []
    for cause in {each.cause for each in unproductive}:
        here = [each for each in unproductive if each.cause == cause]
        sums.append(CauseSum(cause=cause, time=total(here), gpu_time=total(here, gpus=True)))
    return tuple(sorted(sums, key=lambda each: (-each.gpu_time, -each.time, each.cause)))


def _share(part: timedelta, whole: timedelta) -> float | None:
    return part / whole if whole else None
