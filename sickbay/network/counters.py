"""How much an adapter's counters grew: what they say since the boot is no evidence, only their growth is.

Called by the network layer's checks, which keep a `CounterMemory` from run to run. The first sample is a baseline; a
counter that became smaller was reset with its driver or wrapped, and is a new baseline; one that is absent says
nothing.
"""

from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta

from sickbay.checks import CheckMoment
from sickbay.faults import Fault
from sickbay.model import Frozen
from sickbay.network.fabric import nic_fault
from sickbay.network.limits import Limit, by_counter


class Sample(Frozen):
    """A counter at one moment."""

    at: datetime
    value: int


class Track(Frozen):
    """One counter over the period of one limit, in three samples however many looks there were."""

    base: Sample
    """The growth since it is judged; at most a period old once the looks are closer than that."""
    middle: Sample
    """Becomes the base when it is half a period old."""
    last: Sample


class CounterMemory(Frozen):
    """What is remembered of the counters of one layer in one boot, by `device/port/counter period`."""

    tracks: Mapping[str, Track] = {}


def with_sample(track: Track | None, sample: Sample, period: timedelta) -> Track:
    """The track with one more sample."""
    if track is None or sample.value < track.last.value or sample.at <= track.last.at:
        return Track(base=sample, middle=sample, last=sample)
    base, middle = track.base, track.middle
    if sample.at - middle.at >= period / 2:
        base, middle = middle, sample
    return Track(base=base, middle=middle, last=sample)


def judge_counters(
    counters: Mapping[str, int], limits: tuple[Limit, ...], memory: CounterMemory, moment: CheckMoment
) -> tuple[tuple[Fault, ...], CounterMemory]:
    """The faults of counters that grew too fast, and what to remember.

    `counters` are by `device/port/name`. A counter that is absent now keeps its memory: its device may be back soon.
    """
    tracks = dict(memory.tracks)
    found = []
    for key, limit in _limited(counters, limits):
        place = f"{key} {limit.words}"
        track = with_sample(tracks.get(place), Sample(at=moment.now, value=counters[key]), limit.period)
        tracks[place] = track
        growth, elapsed = track.last.value - track.base.value, track.last.at - track.base.at
        if limit.exceeded(growth, elapsed):
            found.append(_fault(key, limit, growth, elapsed, moment))
    return tuple(found), CounterMemory(tracks=tracks)


def _limited(counters: Mapping[str, int], limits: tuple[Limit, ...]) -> Iterator[tuple[str, Limit]]:
    known = by_counter(limits)
    for key in sorted(counters):
        for limit in known.get(key.rpartition("/")[2], ()):
            yield key, limit


def _fault(key: str, limit: Limit, growth: int, elapsed: timedelta, moment: CheckMoment) -> Fault:
    device, port, name = key.split("/")
    where = f"{device}/{port}" if port else device
    evidence = f"{where}: {name} grew by {growth} in {elapsed.total_seconds():.0f} s; the limit is {limit.words}"
    return nic_fault("nic-errors-hard" if limit.hard else "nic-errors", device, evidence, moment)
