"""Reads files of the host (sysfs, proc) through a child that can be killed, and judges them by pure rules.

Called by the network and host layers, whose checks share one `HostFiles`: they run in the same minute, and one child
reads for all of them. A file whose reading hangs takes that child with it; the next one leaves the file out, so that
one wedged device costs its own readings and no others. What the files mean is in `sickbay.network` and
`sickbay.host_layer`.
"""

import json
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Final

from pydantic import ValidationError

from health import files_child
from health.children import ChildResult, leaked_children, run_child
from sickbay.checks import CheckAbout, CheckMoment, CheckOutcome, CheckResult, HostFacts, judged
from sickbay.file_readings import HANGS, FileReadings, Process, ProcessCount, Space, Wanted
from sickbay.model import Frozen

LOOK_DEADLINE: Final = timedelta(seconds=8)
"""For one child; a whole look takes a tenth of a second on a well machine."""

_MAX_CHILDREN: Final = 3
"""Children of one look: each but the last may lose itself in another file that hangs."""

_MAX_HUNG: Final = 16
"""Files that hang after which we stop reading: each may have cost a child that dies of no signal."""

_SHARED_FOR: Final = 15.0
"""Seconds for which checks share one look."""

_SKIPPED_FOR: Final = 600.0
"""Seconds after which a file that hung is tried again, unless children still hang: the try may cost one more."""


class _Line(Frozen):
    asking: str | None = None
    at: str | None = None
    text: str | None = None
    names: tuple[str, ...] | None = None
    link: str | None = None
    space: Space | None = None
    failed: str | None = None
    process: Process | None = None
    counted: ProcessCount | None = None
    walked: str | None = None
    end: bool = False


class HostFiles:
    """The host's files as several checks want them."""

    def __init__(self, root: Path, wanted: Wanted, deadline: timedelta = LOOK_DEADLINE) -> None:
        """`root` is where the host's own `/` is seen."""
        self._root = root
        self._wanted = wanted
        self._deadline = deadline
        self._lock = threading.Lock()
        self._hung: dict[str, float] = {}
        self._last: tuple[float, FileReadings] | None = None

    def look(self) -> FileReadings:
        """What is there now, or a few seconds ago. Blocking, at most for the deadlines of its children."""
        with self._lock:
            if self._last is None or time.monotonic() - self._last[0] > _SHARED_FOR:
                readings = self._look()
                self._last = (time.monotonic(), readings)
            return self._last[1]

    def _look(self) -> FileReadings:
        now = time.monotonic()
        if not leaked_children():
            self._hung = {path: since for path, since in self._hung.items() if now - since < _SKIPPED_FOR}
        readings = FileReadings(silent=f"{len(self._hung)} files of the host hang")
        for _ in range(_MAX_CHILDREN):
            if len(self._hung) >= _MAX_HUNG:
                break
            readings, hung = _ask(self._root, self._wanted, tuple(self._hung), self._deadline)
            if not hung:
                break
            self._hung[hung] = now
        return readings.model_copy(update={"failed": {**readings.failed, **dict.fromkeys(self._hung, HANGS)}})


def read_files(root: Path, wanted: Wanted, deadline: timedelta = LOOK_DEADLINE) -> FileReadings:
    """One look by itself. Blocking, at most for the deadline and a second; raises nothing."""
    return _ask(root, wanted, (), deadline)[0]


def _ask(root: Path, wanted: Wanted, skip: tuple[str, ...], deadline: timedelta) -> tuple[FileReadings, str]:
    """The readings of one child, and the path that it hung at, if it did."""
    order = json.dumps({**wanted.model_dump(), "root": str(root), "skip": skip})
    # Without site-packages, which the child does not need and which cost more than all of its reading.
    command = [sys.executable, "-I", "-S", str(Path(files_child.__file__)), order]
    result = run_child(command, deadline)
    readings, asking = read_answer(result)
    return readings, asking if result.timed_out else ""


def read_answer(result: ChildResult) -> tuple[FileReadings, str]:
    """What a child said, as far as it came, and what it was about to touch last."""
    texts, names, links, spaces, failed = {}, {}, {}, {}, {}
    processes, walked = [], set()
    count: ProcessCount | None = None
    at = asking = ""
    ended = False
    for line in _lines(result.stdout):
        at, asking = line.at or at, line.asking or asking
        ended = ended or line.end
        count = line.counted or count
        if line.text is not None:
            texts[at] = line.text
        if line.names is not None:
            names[at] = line.names
        if line.link is not None:
            links[at] = line.link
        if line.space is not None:
            spaces[at] = line.space
        if line.failed is not None:
            failed[at] = line.failed
        if line.process is not None:
            processes.append(line.process)
        if line.walked is not None:
            walked.add(line.walked)
    readings = FileReadings(
        texts=texts,
        names=names,
        links=links,
        spaces=spaces,
        failed=failed,
        processes=tuple(processes),
        process_count=count,
        walked=frozenset(walked),
        silent="" if ended else result.words,
    )
    return readings, asking


def _lines(output: str) -> Iterator[_Line]:
    """The lines that can be read; one cut by the kill is left out."""
    # Not splitlines(): a file's text may hold any of the other line ends of Unicode.
    for text in output.split("\n"):
        try:
            yield _Line.model_validate_json(text)
        except ValidationError:
            continue


@dataclass(frozen=True)
class FileCheck:
    """A check that looks at files only: its rule is a pure function, and what it wants of the files is known."""

    about: CheckAbout
    wanted: Wanted
    files: HostFiles
    applicable: Callable[[HostFacts], str]
    """Empty if the machine has what the check looks at, else why not."""
    rule: Callable[[FileReadings, CheckMoment], CheckOutcome]

    def applies(self, host: HostFacts) -> str:
        """Empty if the machine has what the check looks at, else why not."""
        return self.applicable(host)

    def run(self, moment: CheckMoment) -> CheckOutcome:
        """Look, and judge; what was not seen to its end is never called well, nor absent."""
        readings = self.files.look()
        outcome = self.rule(readings, moment)
        trouble = readings.trouble(self.wanted)
        if trouble and outcome.result in (CheckResult.HEALTHY, CheckResult.NOT_APPLICABLE):
            return judged((), trouble, outcome.memory)
        return outcome
