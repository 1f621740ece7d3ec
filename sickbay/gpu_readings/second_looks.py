"""Faults that one look does not prove: a driver loaded anew, a fabric in training and a moment of heat look the same.

Called by the NVML check, whose memory keeps what is doubtful from run to run. Each asks for some looks in a row; what a
fabric manager sets up anew after its driver was loaded also for some time, since it takes minutes and nobody's work is
in its way. All else that NVML tells stays until somebody cures it, and counts at once.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from sickbay.faults import Fault
from sickbay.model import Frozen

_AT_ONCE: Final = timedelta()
FABRIC_SETTLES: Final = timedelta(minutes=5)
"""After a driver was loaded anew in the midst of a boot. Eight GPUs register within two minutes; with room for a
container that has to be pulled."""

_MISSING: Final = "gpu-missing"
_DOUBTFUL: Final[Mapping[str, timedelta]] = {
    _MISSING: _AT_ONCE,
    "driver-not-loaded": _AT_ONCE,
    "gpu-hot": _AT_ONCE,
    "nvlink-down": _AT_ONCE,
    "nvlink-all-down": FABRIC_SETTLES,
    "fabric-not-ready": FABRIC_SETTLES,
    "fabric-not-started": FABRIC_SETTLES,
}
"""How long each must last, beside the looks in a row."""


class Doubt(Frozen):
    """A doubtful fault that was there at the last look."""

    since: datetime
    """When the first look of those in a row was."""
    looks: int


class Certainty(NamedTuple):
    """The faults of one look, by whether they are proven."""

    faults: tuple[Fault, ...]
    unsure: tuple[str, ...]
    """What only further looks decide, in words."""
    doubts: Mapping[str, Doubt]
    """To be kept for the next look."""


def certain(
    found: Iterable[Fault], doubts: Mapping[str, Doubt], now: datetime, looks: int, *, only: bool = False
) -> Certainty:
    """Tell what `looks` looks in a row have proven from what they have not.

    `only` is of a look that no other will follow: then all counts but a missing GPU, which may come a moment later.
    """
    found = tuple(found)
    kept = {key: _once_more(doubts.get(key), now) for key in map(_key, found) if key}
    faults, unsure = [], []
    for fault in found:
        doubt = kept.get(_key(fault))
        if doubt is None or _proven(fault, doubt, now, looks) or (only and fault.code != _MISSING):
            faults.append(fault)
        else:
            unsure += [f"{line}; further looks decide" for line in fault.evidence]
    return Certainty(tuple(faults), tuple(dict.fromkeys(unsure)), kept)


def _once_more(before: Doubt | None, now: datetime) -> Doubt:
    return Doubt(since=now, looks=1) if before is None else Doubt(since=before.since, looks=before.looks + 1)


def _proven(fault: Fault, doubt: Doubt, now: datetime, looks: int) -> bool:
    return doubt.looks >= looks and now - doubt.since >= _DOUBTFUL[fault.code]


def _key(fault: Fault) -> str:
    """By the part, but for missing GPUs, of which it may change who can be named; empty for what is not doubtful."""
    if fault.code not in _DOUBTFUL:
        return ""
    return fault.code if fault.code == _MISSING else f"{fault.code} {fault.component.id}"
