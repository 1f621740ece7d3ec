"""Whether something keeps the host's clock right. Called by `health.host`.

A clock that runs away breaks certificates and the order of logs; no GPU is ill for it, so people are told.
"""

from typing import Final

from sickbay.checks import CheckMoment, CheckOutcome, healthy, judged, unknown
from sickbay.host_layer.said import HOST, seen
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


def judge_clock(reading: ClockReading, moment: CheckMoment) -> CheckOutcome:
    """Told where nothing has kept the clock right for long."""
    if reading.status is None:
        return unknown(f"the kernel does not tell of its clock: {reading.refused}")
    seconds = reading.max_error / 1e6
    if reading.status & STA_UNSYNC:
        words = f"the kernel's clock is not synchronised, and may be {seconds:.0f} s wrong or more"
        return judged((seen("clock-unsynchronised", HOST, moment, words),))
    return healthy(f"at most {seconds:.3f} s wrong")
