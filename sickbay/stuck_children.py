"""What it means that a process of our own hangs in the kernel after it was killed.

Called by `health.stuck_children`. Inside the driver it is a fault at once, for only a broken driver or GPU explains it
(facts: detection, 0.4 and 3d). Elsewhere it is no fault by itself: the check that started it has had no answer, which
is told as that.
"""

from collections.abc import Iterable

from sickbay.checks import CheckMoment
from sickbay.faults import Fault
from sickbay.file_readings import Process
from sickbay.host_layer.processes import in_driver
from sickbay.host_layer.said import DRIVER, seen
from sickbay.model import Frozen

_UNINTERRUPTIBLE = "D"


class StuckChild(Frozen):
    """A process that was killed and is not gone."""

    process: Process
    owner: str
    """Name of the check that it was started for."""
    asks_driver: bool
    """It does nothing but ask the driver, so that it hangs nowhere else."""


def stuck_faults(children: Iterable[StuckChild], moment: CheckMoment) -> tuple[Fault, ...]:
    """One fault of the driver, if any child hangs inside it; more of them are more evidence."""
    lines = [
        _words_of(child)
        for child in children
        if child.process.state == _UNINTERRUPTIBLE and (child.asks_driver or in_driver(child.process))
    ]
    if not lines:
        return ()
    return (seen("driver-hung", DRIVER, moment, *lines[:3]),)


def _words_of(child: StuckChild) -> str:
    process = child.process
    place = f", in {process.waits_in}" if process.waits_in not in ("", "0") else ""
    return f"process {process.pid} ({process.name}) of check {child.owner} is in state D after a kill{place}"
