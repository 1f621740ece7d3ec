"""How much an adapter's counters grew: what they say since the boot is no evidence, only their growth is.

Called by the network layer's checks, which keep a `CounterMemory` from run to run. A counter that is absent, or answers
with words, says nothing.
"""

from collections.abc import Iterator, Mapping

from sickbay.checks import CheckMoment
from sickbay.counter_tracks import CounterMemory, Sample, Track, elapsed, growth, with_sample
from sickbay.faults import Fault
from sickbay.network.fabric import nic_fault
from sickbay.network.limits import Limit, by_counter


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
        track = with_sample(tracks.get(place), Sample(at=moment.now.timestamp(), value=counters[key]), limit.period)
        tracks[place] = track
        if limit.exceeded(growth(track), elapsed(track)):
            found.append(_fault(key, limit, track, moment))
    return tuple(found), CounterMemory(tracks=tracks)


def _limited(counters: Mapping[str, int], limits: tuple[Limit, ...]) -> Iterator[tuple[str, Limit]]:
    known = by_counter(limits)
    for key in sorted(counters):
        for limit in known.get(key.rpartition("/")[2], ()):
            yield key, limit


def _fault(key: str, limit: Limit, track: Track, moment: CheckMoment) -> Fault:
    device, port, name = key.split("/")
    where = f"{device}/{port}" if port else device
    grown = f"{name} grew by {growth(track)} in {elapsed(track).total_seconds():.0f} s"
    evidence = f"{where}: {grown}; the limit is {limit.words}"
    return nic_fault("nic-errors-hard" if limit.hard else "nic-errors", device, evidence, moment)
