"""Collects what the ranks on this node tell of their steps, and makes the page that the controller fetches.

Run by `workers.node` beside the agent, which serves the page as `/ranks`. Reporters (`health.rank_reporter`) write into
`<folder>/<namespace>_<job>/<attempt>/rank-<n>.jsonl`; anybody's pod may write there, so everything is bounded: jobs,
attempts, files, bytes of a look, lines, samples. It judges no rank, and asks nothing of anybody.
"""

import asyncio
import logging
import os
import re
import shutil
import stat
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import Final

from pydantic import ValidationError

from health.rank_files import TailedFile
from sickbay.ranks.model import NodeRanks, RankWindow, StepReport
from sickbay.ranks.windows import RankTrack

_log = logging.getLogger(__name__)

LOOK_SECONDS: Final = 5.0
"""Between two looks of its own; one that is asked for the page looks again if the last is older than a second."""
FRESH_SECONDS: Final = 1.0
STALE_SECONDS: Final = 30.0
"""Without a whole look for so long there is no page: an old one would look like a hang."""
FILES_MOST: Final = 256
"""On one node; a node has 8 or 16 ranks, and jobs may overlap while one ends."""
FILES_USUAL: Final = 32
READ_MOST: Final = 1 << 23
"""Bytes in one look, shared evenly by the files."""
JOBS_MOST: Final = 64
ATTEMPTS_MOST: Final = 4
"""The newest of each job."""
ENTRIES_MOST: Final = 1024
"""Read of any folder."""
TOLD_FOR: Final = timedelta(hours=1)
"""A file that did not change for so long is not told of any more."""
KEPT_FOR: Final = timedelta(days=1)
"""Until the folder of an ended attempt is removed."""
SWEEP_EVERY: Final = timedelta(minutes=10)
UNREADABLE_MOST: Final = 16
FOLDER_MODE: Final = 0o1777
"""As /tmp: pods of any user write here, and none removes another's folder."""

_JOB_FOLDER: Final = re.compile(r"[a-z0-9][-a-z0-9.]{0,252}_[a-z0-9][-a-z0-9.]{0,252}")
_ATTEMPT_FOLDER: Final = re.compile(r"[1-9][0-9]{0,8}")
_RANK_FILE: Final = re.compile(r"rank-(0|[1-9][0-9]{0,6})\.jsonl")


class NoPageError(LookupError):
    """There is no page that tells how the ranks stand now."""


class _RankFile:
    """One rank's file, and what its lines told."""

    def __init__(self, path: Path, window: timedelta) -> None:
        self.tail = TailedFile(path)
        self.track = RankTrack(window)
        folder = path.parent
        self._job = folder.parent.name.replace("_", "/", 1)
        self._attempt = int(folder.name)
        self._rank = int(path.stem.removeprefix("rank-"))

    def look(self, now: float, most: int) -> None:
        """Read on, at most so many bytes. Raises OSError. A line that is no report of this very rank is passed over."""
        for line in self.tail.lines(most):
            try:
                report = StepReport.model_validate_json(line)
            except ValidationError:
                continue
            if (report.job, report.attempt, report.place.rank) == (self._job, self._attempt, self._rank):
                self.track.take(report, now)


class RankCollector:
    """What is known of the ranks on one node."""

    def __init__(
        self,
        folder: Path,
        window: timedelta,
        node: str,
        boot_id: str,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """`folder` is made if it is not there; `now` is given by tests."""
        self._folder = folder
        self._window = window
        self._node = node
        self._boot_id = boot_id
        self._now = now
        self._files: dict[Path, _RankFile] = {}
        self._page = b""
        self._looked: float | None = None
        self._swept: datetime | None = None
        self._looking: asyncio.Task[NodeRanks] | None = None

    async def run(self) -> None:
        """Look until cancelled; trouble with the folder ends nothing."""
        while True:
            await self._look_once()
            await asyncio.sleep(min(LOOK_SECONDS, self._window.total_seconds() / 4))

    async def page(self) -> bytes:
        """The page as JSON (`sickbay.ranks.model.NodeRanks`). Raises NoPageError if the disk hangs."""
        if self._age() > FRESH_SECONDS:
            await self._look_once()
        if self._age() > STALE_SECONDS:
            raise NoPageError(f"{self._folder} does not answer")
        return self._page

    def _age(self) -> float:
        return float("inf") if self._looked is None else time.monotonic() - self._looked

    async def _look_once(self) -> None:
        """One look at a time, in a thread: a disk that hangs holds up one thread, and nothing else."""
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(asyncio.to_thread(self.look))
            self._looking.add_done_callback(_tell_failure)
        await asyncio.wait((self._looking,), timeout=FRESH_SECONDS)

    def look(self) -> NodeRanks:
        """Read what is new and make the page. Blocking, for a thread; raises nothing of a file system's trouble."""
        began, now = time.monotonic(), self._now()
        unreadable: list[str] = []
        try:
            self._prepare()
            paths = list(islice(self._paths(), FILES_MOST))
        except OSError as error:
            unreadable.append(f"{self._folder}: {error.strerror or error}")
            paths = []
        self._files = {path: self._files.get(path) or _RankFile(path, self._window) for path in paths}
        most = READ_MOST // max(len(paths), FILES_USUAL)
        for path, file in self._files.items():
            try:
                file.look(now.timestamp(), most)
            except OSError as error:
                unreadable.append(f"{path.relative_to(self._folder)}: {error.strerror or error}")
        page = NodeRanks(
            node=self._node,
            boot_id=self._boot_id,
            at=now,
            window=self._window,
            windows=tuple(self._windows(now)),
            unreadable=tuple(unreadable[:UNREADABLE_MOST]),
        )
        self._page, self._looked = page.model_dump_json().encode(), began
        self._sweep(now)
        return page

    def _windows(self, now: datetime) -> Iterator[RankWindow]:
        for file in self._files.values():
            if now.timestamp() - file.tail.changed_at <= TOLD_FOR.total_seconds():
                window = file.track.window(self._node)
                if window is not None:
                    yield window

    def _prepare(self) -> None:
        """Make the folder, or open one to all that the kubelet has made for a pod."""
        self._folder.mkdir(parents=True, exist_ok=True)
        found = self._folder.stat()
        if stat.S_IMODE(found.st_mode) != FOLDER_MODE and found.st_uid == os.geteuid():
            self._folder.chmod(FOLDER_MODE)

    def _paths(self) -> Iterator[Path]:
        """The ranks' files, newest attempts first. Raises OSError if the folder itself cannot be read."""
        for job in islice(_folders(self._folder, _JOB_FOLDER), JOBS_MOST):
            try:
                attempts = sorted(_folders(job, _ATTEMPT_FOLDER), key=lambda each: int(each.name), reverse=True)
            except OSError:
                continue
            for attempt in attempts[:ATTEMPTS_MOST]:
                try:
                    names = sorted(name for name in _names(attempt) if _RANK_FILE.fullmatch(name))
                except OSError:
                    continue
                yield from (attempt / name for name in names)

    def _sweep(self, now: datetime) -> None:
        """Remove the folders of attempts that are long over, and of jobs that have none left."""
        if self._swept is not None and now - self._swept < SWEEP_EVERY:
            return
        self._swept = now
        oldest = now.timestamp() - KEPT_FOR.total_seconds()
        try:
            for job in _folders(self._folder, _JOB_FOLDER):
                for attempt in _folders(job, _ATTEMPT_FOLDER):
                    if _changed_at(attempt) < oldest:
                        # It follows no links, and so removes nothing elsewhere.
                        shutil.rmtree(attempt, ignore_errors=True)
                if job.stat(follow_symlinks=False).st_mtime < oldest and not any(job.iterdir()):
                    job.rmdir()
        except (OSError, RecursionError) as error:
            _log.warning("cannot tidy up %s: %s", self._folder, error)


def _tell_failure(look: "asyncio.Task[NodeRanks]") -> None:
    if not look.cancelled() and look.exception() is not None:
        _log.error("cannot collect ranks: %r", look.exception())


def _names(folder: Path) -> list[str]:
    with os.scandir(folder) as entries:
        return [entry.name for entry in islice(entries, ENTRIES_MOST)]


def _folders(parent: Path, name: re.Pattern[str]) -> Iterator[Path]:
    """Real folders of such names, sorted; at most of the first entries that the file system tells."""
    with os.scandir(parent) as entries:
        found = [
            entry.name
            for entry in islice(entries, ENTRIES_MOST)
            if name.fullmatch(entry.name) and entry.is_dir(follow_symlinks=False)
        ]
    yield from (parent / each for each in sorted(found))


def _changed_at(folder: Path) -> float:
    """The newest change of the folder or of a file in it."""
    times = [folder.stat(follow_symlinks=False).st_mtime]
    for name in _names(folder):
        try:
            times.append((folder / name).stat(follow_symlinks=False).st_mtime)
        except FileNotFoundError:
            continue
    return max(times)
