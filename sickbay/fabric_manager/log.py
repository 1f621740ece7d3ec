"""Reads the fabric manager's log and the sentences it ends with.

Errors of NVSwitches are found by the scanner of kernel logs, which knows this log's form. Here is what the service says
of itself: that it started, became ready, or could not. Its own lines have a level, and only that tells an error: a
setting named after a failure is none, and neither is its payload, which has no date.
"""

import re
from collections.abc import Iterator
from typing import Final

from sickbay.catalogue import fault_of
from sickbay.faults import Component, ComponentKind, Fault, FaultClass
from sickbay.kernel_log import scan
from sickbay.model import Frozen

_LINE: Final = re.compile(r"^\[\w{3} +\d+ \d{4} [\d:]{8}\] \[(?P<level>[A-Z]+)\] \[tid \d+\] (?P<words>.*)$")
_STARTED: Final = re.compile(r"Fabric Manager Log initializing at|Fabric Manager version \S+ is running with", re.I)
_BEGUN: Final = "Log initializing"
_READY: Final = re.compile(r"Successfully configured all the available", re.IGNORECASE)
_MISMATCH: Final = re.compile(
    r"(?:interface )?version (?P<manager>[\d.]+) doesn'?t match with (?:the )?driver version (?P<driver>[\d.]+)", re.I
)
_WRONG_NUMBER: Final = re.compile(
    r"number of (?:detected )?(?:GPUs?|NVSwitch(?:es)?)\b.*(?:don'?t|doesn'?t|not) match|topology mismatch",
    re.IGNORECASE,
)
_NOTHING_TO_DO: Final = re.compile(r"NV_WARN_NOTHING_TO_DO", re.IGNORECASE)
_FAILED_START: Final = re.compile(
    r"fabricmanager\.service: (?:Control process exited|Main process exited|Failed with result|Start request repeated)|"
    r"Failed to start .*(?:fabric ?manager)",
    re.IGNORECASE,
)
_LEVELS_OF_ERRORS: Final = ("ERROR", "CRITICAL", "FATAL")
_SWITCH: Final = Component(kind=ComponentKind.NVSWITCH, id="unknown")
_DRIVER: Final = Component(kind=ComponentKind.DRIVER, id="nvidia")


class LogSays(Frozen):
    """What a log, or a part of it, tells."""

    lines: int = 0
    """Of the log's own form."""
    faults: tuple[Fault, ...] = ()
    starts: int = 0
    ready: bool = False
    """It has set up the fabric since its last start in the log."""
    nothing_to_do: bool = False
    """It ended since it sees no NVSwitch."""
    failed_start: str = ""
    errors: tuple[str, ...] = ()
    """Errors that are not known here."""


def read_log(text: str) -> LogSays:
    """What the text tells of the service. Raises nothing."""
    lines = text.splitlines()
    starts, ready, failed = 0, False, ""
    own = [found for line in lines if (found := _LINE.match(line))]
    for line in lines:
        if _STARTED.search(line):
            # Two lines announce one start; the file may begin between them.
            starts += _BEGUN in line or starts == 0
            ready = False
        elif _READY.search(line):
            ready, failed = True, ""
        elif _FAILED_START.search(line):
            failed = line.strip()
    begun = max((number for number, line in enumerate(lines) if _STARTED.search(line)), default=0)
    switch_errors = tuple(_of_switches(lines))
    return LogSays(
        lines=len(own),
        # What ended an earlier start is over once a later one has set up the fabric.
        faults=(*switch_errors, *_own_faults(lines[begun:] if ready else lines)),
        starts=starts,
        ready=ready,
        nothing_to_do=bool(_NOTHING_TO_DO.search(text)),
        failed_start=failed,
        errors=tuple(_unknown_errors(own)),
    )


def _of_switches(lines: list[str]) -> Iterator[Fault]:
    """Errors of NVSwitches, and whatever of the kernel's own stands between; what is an application's is no matter."""
    for fault in scan(line.encode() for line in lines):
        if fault.fault_class is not FaultClass.APPLICATION:
            yield fault


def _own_faults(lines: list[str]) -> Iterator[Fault]:
    mismatch = next((line for line in lines if _MISMATCH.search(line)), None)
    if mismatch is not None:
        yield fault_of("fabric-manager-mismatch", _DRIVER, evidence=(mismatch.strip(),))
    wrong = next((line for line in lines if _WRONG_NUMBER.search(line)), None)
    if wrong is not None:
        yield fault_of("fabric-topology-mismatch", _SWITCH, evidence=(wrong.strip(),))


def _unknown_errors(own: list[re.Match[str]]) -> Iterator[str]:
    known = (_MISMATCH, _WRONG_NUMBER, _NOTHING_TO_DO)
    for line in own:
        words = line["words"]
        switch = "detected NVSwitch" in words
        if line["level"] in _LEVELS_OF_ERRORS and not switch and not any(pattern.search(words) for pattern in known):
            yield words
