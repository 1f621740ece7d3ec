"""Whether something keeps the host's clock right. Called by `health.host`.

A clock that runs away breaks certificates and the order of logs; no GPU is ill for it, so people are told. A virtual
machine whose hypervisor keeps its clock looks to the kernel as if nobody did; so it is a fault only where something
has kept the clock in this boot and does so no longer.
"""

from typing import Final

from sickbay.checks import CheckMoment, CheckOutcome, healthy, judged, unknown
from sickbay.host_layer.said import HOST, remembered, seen
from sickbay.model import Frozen

STA_UNSYNC: Final = 0x0040
"""The kernel's flag: nobody has adjusted the clock for 16 seconds of possible error (adjtimex(2))."""


class ClockReading(Frozen):
    """The kernel's clock, as adjtimex tells it."""

    status: int | None = None
    """Its flags; None if the kernel did not tell."""
    max_error: int = 0
    """Microseconds that it may be wrong."""
    refused: str = ""
    """Why it was not told."""


class ClockMemory(Frozen):
    """What the check remembers in one boot."""

    kept: bool = False
    """Something has kept the clock right."""


def judge_clock(reading: ClockReading, moment: CheckMoment) -> CheckOutcome:
    """Told where what has kept the clock right no longer does."""
    if reading.status is None:
        return unknown(f"the kernel does not tell of its clock: {reading.refused}", moment.memory)
    seconds = reading.max_error / 1e6
    if not reading.status & STA_UNSYNC:
        return healthy(f"at most {seconds:.3f} s wrong", ClockMemory(kept=True).model_dump_json())
    if not remembered(ClockMemory, moment).kept:
        return healthy("the kernel knows of nobody who keeps its clock", moment.memory)
    words = f"the kernel's clock is no longer synchronised, and may be {seconds:.0f} s wrong or more"
    return judged((seen("clock-unsynchronised", HOST, moment, words),), memory=moment.memory)
