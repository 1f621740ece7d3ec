"""How much a counter grew of late, told from samples that are kept from run to run of a check.

Used by the network and host layers for counters of the kernel that count since the boot. The first sample is a
baseline; a counter that became smaller was reset with its driver or wrapped, and is a new baseline.
"""

from collections.abc import Mapping
from datetime import timedelta
from typing import NamedTuple

from sickbay.model import Frozen


class Sample(NamedTuple):
    """A counter at one moment. A tuple, since a node keeps hundreds of them on its disk every minute."""

    at: float
    """Seconds since the epoch."""
    value: int


class Track(NamedTuple):
    """One counter over the period of one limit, in three samples however many looks there were."""

    base: Sample
    """The growth since it is judged; at most a period old once the looks are closer than that."""
    middle: Sample
    """Becomes the base when it is half a period old."""
    last: Sample


class CounterMemory(Frozen):
    """What is remembered of some counters in one boot, by a name that their check gives them."""

    tracks: Mapping[str, Track] = {}


def with_sample(track: Track | None, sample: Sample, period: timedelta) -> Track:
    """The track with one more sample."""
    if track is None or sample.value < track.last.value or sample.at <= track.last.at:
        return Track(base=sample, middle=sample, last=sample)
    base, middle = track.base, track.middle
    if sample.at - middle.at >= period.total_seconds() / 2:
        base, middle = middle, sample
    return Track(base=base, middle=middle, last=sample)


def growth(track: Track) -> int:
    """How much it grew since the base."""
    return track.last.value - track.base.value


def elapsed(track: Track) -> timedelta:
    """How long ago the base is, at the last sample."""
    return timedelta(seconds=track.last.at - track.base.at)
