"""The words of goodput: buckets, the stretches of time in them, and the report (facts: training, 8)."""

from datetime import timedelta
from enum import StrEnum

from pydantic import AwareDatetime

from sickbay.model import Frozen


class Bucket(StrEnum):
    """What a stretch of a job's time was. Each moment is in exactly one."""

    QUEUE = "queue"
    """It waits for its turn or for room."""
    START = "start"
    """Its pods are placed: images, containers, start of the program until its first step."""
    RESTORE = "restore"
    """A checkpoint is loaded."""
    PRODUCTIVE = "productive"
    """Steps that were not done over later."""
    CHECKPOINT_STALL = "checkpoint_stall"
    """Steps wait for a checkpoint to be saved."""
    RECOMPUTED = "recomputed"
    """Steps whose result was lost: a later attempt did them over, or the job ended without them."""
    HANG_DETECTION = "hang_detection"
    """No step is done any more, and nobody has noticed yet."""
    TEARDOWN = "teardown"
    """Evidence is collected and the pods are removed."""
    HELD = "held"
    """A person paused it, or must decide."""
    UNKNOWN = "unknown"
    """Nothing tells what it was. Never counted as productive."""


WITHOUT_MACHINES = frozenset({Bucket.QUEUE, Bucket.HELD})
"""Buckets in which the job holds no GPU."""


class Segment(Frozen):
    """A stretch of time in one bucket."""

    bucket: Bucket
    began_at: AwareDatetime
    ended_at: AwareDatetime
    attempt: int = 0
    """The attempt it belongs to, or the one that it leads to; 0 after the last."""
    gpus: int = 0
    """Held meanwhile."""
    cause: str = ""
    """What it is put down to where it was not productive: the class of the failure that led here, or a `Cause`."""

    @property
    def length(self) -> timedelta:
        """How long it was; whole microseconds, like every time here."""
        return self.ended_at - self.began_at

    @property
    def gpu_time(self) -> timedelta:
        """Time of all GPUs held."""
        return self.length * self.gpus


class Cause(StrEnum):
    """What time is put down to beside the classes of failures."""

    FIRST_START = "first_start"
    """It had to begin once."""
    CHECKPOINTS = "checkpoints"
    PLANNED = "planned"
    """An attempt was ended by us: a drain, a resize, a person's order."""
    UNJUDGED = "unjudged"
    """An attempt failed, and why is not known yet."""
    UNKNOWN = "unknown"


class BucketSum(Frozen):
    """All of one bucket."""

    bucket: Bucket
    time: timedelta
    gpu_time: timedelta


class CauseSum(Frozen):
    """All that one cause cost."""

    cause: str
    time: timedelta
    gpu_time: timedelta


class GoodputReport(Frozen):
    """A job's time, added up. Shares are between 0 and 1; None where nothing is there to take a share of."""

    submitted_at: AwareDatetime
    until: AwareDatetime
    """Its end, or the moment of the report."""
    open: bool
    """It still goes on: steps since its newest durable checkpoint are unknown until then."""
    attempts: int
    wall: timedelta
    gpu_time: timedelta
    buckets: tuple[BucketSum, ...]
    """Every bucket, in the order of a job's life. They add up to `wall` and `gpu_time` exactly."""
    lost: tuple[CauseSum, ...]
    """By cause, dearest first. With the productive time they add up to `wall` and `gpu_time` exactly."""
    ettr: float | None
    """Effective training time ratio, strict: productive time by all time since submission, queue included
    (arXiv 2410.21680)."""
    ettr_running: float | None
    """The same without the time in queue."""
    scheduling_goodput: float | None
    """Share of the time in which the job had its machines (Google's ML productivity goodput, first factor)."""
    runtime_goodput: float | None
    """Share of the machines' time that was productive, by GPU time (second factor)."""
    unknown_share: float | None
    """Share of all time that nobody can put anywhere: how much the ratios may be too low."""
    segments: tuple[Segment, ...]
