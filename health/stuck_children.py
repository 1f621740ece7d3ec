"""Children of our own that hang inside the GPU driver and take no signal: only a broken driver or GPU explains them.

Run by the agent, whose other checks start these children; a single look at a machine has none. Reads nothing but the
kernel's word on our own processes, which cannot hang.
"""

import time
from collections.abc import Iterable
from datetime import timedelta
from pathlib import Path
from typing import Final

from health.children import LeakedChild, leaked
from sickbay.checks import CheckAbout, CheckCost, CheckLayer, CheckMoment, CheckOutcome, HostFacts, judged
from sickbay.faults import ComponentKind
from sickbay.file_readings import Process
from sickbay.stuck_children import StuckChild, stuck_faults

_OLD_SECONDS: Final = 5.0
"""Age of a leaked child from which it counts: a busy driver may hold a killed process for a moment."""

_STACK_BYTES: Final = 4096

_STARTED: Final = 19
"""Place of the starting time after the name in /proc/PID/stat (proc(5), field 22)."""


class StuckChildren:
    """The check `stuck-children`."""

    about = CheckAbout(
        name="stuck-children",
        layer=CheckLayer.HOST,
        judges=(ComponentKind.DRIVER,),
        cost=CheckCost.FREE,
        looks_at="Processes that the agent's own checks started and could not end: their state and where they wait.",
        source="gpud#117, NVSentinel#1748: a process in state D inside the driver dies of no signal",
        thresholds=(f"killed, and still in state D after {_OLD_SECONDS:g} s",),
        every=timedelta(seconds=10),
        deadline=timedelta(seconds=5),
        fresh_for=timedelta(minutes=2),
    )

    def __init__(self, driver_checks: Iterable[str]) -> None:
        """`driver_checks` are the names of checks whose children do nothing but ask the driver."""
        self._driver_checks = frozenset(driver_checks)

    def applies(self, host: HostFacts) -> str:
        """Wherever the agent runs."""
        del host
        return ""

    def run(self, moment: CheckMoment) -> CheckOutcome:
        """Look at each child that has been leaked for a while."""
        old = (child for child in leaked() if time.monotonic() - child.since >= _OLD_SECONDS)
        stuck = tuple(_look(child, asks_driver=child.owner in self._driver_checks) for child in old)
        return judged(stuck_faults(stuck, moment))


def _look(child: LeakedChild, *, asks_driver: bool) -> StuckChild:
    folder = Path("/proc") / str(child.process.pid)
    words = _read(folder / "stat").rpartition(")")[2].split()
    process = Process(
        pid=child.process.pid,
        name=_read(folder / "comm").strip(),
        state=words[0] if words else "",
        started=int(words[_STARTED]) if len(words) > _STARTED else 0,
        waits_in=_read(folder / "wchan").strip(),
        stack=_read(folder / "stack"),
    )
    return StuckChild(process=process, owner=child.owner, asks_driver=asks_driver)


def _read(path: Path) -> str:
    """A file of /proc; empty if it is not for us, or the process is gone."""
    try:
        with path.open("rb") as file:
            return file.read(_STACK_BYTES).decode(errors="replace")
    except OSError:
        return ""
