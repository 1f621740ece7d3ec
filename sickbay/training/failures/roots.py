"""Which of several failed ranks failed first, by what each of them shows (facts: training, 2.2).

Used by `culprits`. The smallest time in the error files is not the answer: they know whole seconds, a process that a
signal ended has no file and gets the time at which its agent noticed, and clocks of nodes differ. So what a rank shows
comes first, its time second, and ranks that neither tells apart are named together.
"""

from collections.abc import Iterable
from datetime import datetime, timedelta
from enum import IntEnum
from typing import Final

from sickbay.training.evidence import RankEvidence, Sign
from sickbay.training.failures.case import CARRIERS
from sickbay.training.failures.patterns import Kind, found_in, kind_of

TOLERANCE: Final = timedelta(seconds=2)
"""Two times closer than this are the same, whatever the clocks' skew: the files know whole seconds."""


class Shows(IntEnum):
    """What a rank shows of its end, what explains most first."""

    HARDWARE = 0
    EXCEPTION = 1
    """One of its own: not one that carries any failure's words."""
    MEMORY = 2
    SIGNAL = 3
    """It was ended by a signal, and left no record."""
    COLLECTIVE = 4
    """It waited for others, or lost them."""
    TERMINATED = 5
    """It was asked to end."""
    NOTHING = 6


_OF_KIND: Final = {
    Kind.HARDWARE: Shows.HARDWARE,
    Kind.PLATFORM: Shows.HARDWARE,
    Kind.APPLICATION: Shows.EXCEPTION,
    Kind.CONFIG: Shows.EXCEPTION,
    Kind.CHECKPOINT: Shows.EXCEPTION,
    Kind.NUMERICS: Shows.EXCEPTION,
    Kind.AMBIGUOUS: Shows.SIGNAL,
    Kind.MEMORY: Shows.MEMORY,
    Kind.NETWORK: Shows.COLLECTIVE,
    Kind.HANG: Shows.COLLECTIVE,
    Kind.CASCADE: Shows.COLLECTIVE,
}
_ASKED: Final = 143


def roots(ranks: Iterable[RankEvidence], skew_seconds: float) -> tuple[RankEvidence, ...]:
    """The rank that failed first; several where nothing tells them apart; none where none failed."""
    shown = [(shows(rank), rank) for rank in ranks]
    best = min((what for what, _ in shown), default=Shows.NOTHING)
    if best is Shows.NOTHING:
        return ()
    alike = [rank for what, rank in shown if what is best]
    times = {id(rank): at for rank in alike if (at := ended_at(rank)) is not None}
    if len(times) < len(alike):
        # One without a time may have been the first.
        return tuple(alike)
    limit = min(times.values()) + max(TOLERANCE, timedelta(seconds=skew_seconds))
    return tuple(rank for rank in alike if times[id(rank)] <= limit)


def shows(rank: RankEvidence) -> Shows:
    """What one rank shows, by the most telling of its signs, its error record and its exit code."""
    found = [_of_sign(sign) for sign in rank.signs]
    if rank.error is not None:
        line = rank.error.message.partition("\n")[0]
        found += [_of_sign(Sign(code=code, details=details)) for code, details in found_in(line)]
    code = rank.exit_code or 0
    if code == _ASKED:
        found.append(Shows.TERMINATED)
    elif code > 128:
        found.append(Shows.SIGNAL)
    elif code:
        found.append(Shows.COLLECTIVE if found else Shows.EXCEPTION)
    return min(found, default=Shows.NOTHING)


def ended_at(rank: RankEvidence) -> datetime | None:
    """When it failed, by its own record, else by the first time that its log or its agent tells."""
    if rank.error is not None and rank.error.at is not None:
        return rank.error.at
    told = [sign.at for sign in rank.signs if sign.at is not None and _of_sign(sign) is not Shows.NOTHING]
    return min(told, default=rank.exited_at)


def _of_sign(sign: Sign) -> Shows:
    if sign.code == "cuda-oom":
        return Shows.MEMORY
    if sign.code == "sigterm":
        return Shows.TERMINATED
    if sign.code == "python-exception" and sign.details.get("exception", "").rpartition(".")[2] in CARRIERS:
        return Shows.NOTHING
    return _OF_KIND.get(kind_of(sign.code), Shows.NOTHING)
