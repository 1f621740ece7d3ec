"""Checkpoints of a training job, listed and judged; and whether the job has reached its target.

Called by the training workflow, by the watch of an attempt and by `sickbay checkpoints`. It lists and reads, in threads
of its own, so that a store that hangs holds up nothing else; what files mean is `sickbay.checkpoints`'. A place that
cannot be read makes the listing incomplete, never empty.
"""

import asyncio
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from functools import partial
from typing import Final, TypeVar

from temporalio import activity

from activities.checkpoint_stores import READERS, Store, StoreError, store_of
from activities.errors import PassingError
from activities.waiting import Clock, heartbeats, utc_now
from sickbay.checkpoints import manifest
from sickbay.checkpoints.model import (
    Checkpoint,
    CheckpointFormat,
    CheckpointListing,
    CheckpointPlace,
    CheckpointQuery,
    Level,
)
from sickbay.checkpoints.survey import Read, survey
from sickbay.checkpoints.tree import SMALL, Contents, Entry, Tree, Want
from sickbay.model import Frozen
from sickbay.training.job import Target

FILES_MOST: Final = 500_000
"""Files of one place that are listed, in some 150 MB; beyond it the listing is not complete."""
VERIFIED_MOST: Final = 3
"""Checkpoints whose contents are read for their checksums in one look, the newest."""
LOOK_MOST: Final = timedelta(minutes=4)
"""One look. Below the workflow's limit, so that its reason is told."""
VERIFY_MOST: Final = timedelta(hours=4)
LOOKS: Final = 8
"""Looks at once."""
REMEMBERED: Final = 2_000
PROBLEMS_TOLD: Final = 20

Seen = TypeVar("Seen")


class TargetQuery(Frozen):
    """Is the job done?"""

    target: Target
    place: CheckpointPlace
    attempts: tuple[int, ...] = ()
    newest_step: int | None = None
    """The newest durable step, as the last listing told."""


class TargetLook(Frozen):
    """Whether it is, and what proves it."""

    reached: bool
    proof: str = ""


class CheckpointActivities:
    """The looks at checkpoints."""

    def __init__(
        self, clock: Clock = utc_now, *, files_most: int = FILES_MOST, look_most: timedelta = LOOK_MOST
    ) -> None:
        self._clock = clock
        self._files_most = files_most
        self._look_most = look_most
        self._threads = ThreadPoolExecutor(LOOKS, thread_name_prefix="checkpoints")
        self._remembered: dict[tuple[str, str], Checkpoint] = {}

    @activity.defn
    async def list_checkpoints(self, query: CheckpointQuery) -> CheckpointListing:
        """Every checkpoint of the job, newest first. Raises PassingError if the store does not answer in time."""
        return await self.look(query)

    async def look(self, query: CheckpointQuery) -> CheckpointListing:
        """One listing, for the watch and for people too."""
        async with heartbeats():
            known = (*self._remembered_of(query.place), *query.known)
            limit = VERIFY_MOST if query.verify else self._look_most
            look = _Look(query.model_copy(update={"known": known}), self._files_most)
            try:
                listing = await self._in_time(lambda: look.run(self._clock), query.place.url, limit)
            finally:
                look.stop()
        self._remember(query.place, listing.checkpoints)
        return listing

    @activity.defn
    async def target_reached(self, query: TargetQuery) -> TargetLook:
        """Whether the target is reached. Raises PassingError where nobody can tell now."""
        target = query.target
        if target.step is not None and query.newest_step is not None and query.newest_step >= target.step:
            return TargetLook(reached=True, proof=f"a durable checkpoint of step {query.newest_step}")
        if not target.marker:
            return TargetLook(reached=False)
        urls = [target.marker.replace("{attempt}", str(attempt)) for attempt in query.attempts or (0,)]
        place = query.place.model_copy(update={"url": target.marker})
        async with heartbeats():
            for url in reversed(list(dict.fromkeys(urls))):
                try:
                    there = await self._in_time(partial(_exists, url, place), url, self._look_most)
                except StoreError as error:
                    raise PassingError(str(error)) from error
                if there:
                    return TargetLook(reached=True, proof=f"{url} is there")
        return TargetLook(reached=False)

    async def _in_time(self, work: Callable[[], Seen], url: str, limit: timedelta) -> Seen:
        """The answer of a thread. It cannot be stopped where a file system hangs; then it is left behind."""
        try:
            async with asyncio.timeout(limit.total_seconds()):
                return await asyncio.get_running_loop().run_in_executor(self._threads, work)
        except TimeoutError as error:
            raise PassingError(f"{url} did not answer within {limit}") from error

    def _remembered_of(self, place: CheckpointPlace) -> list[Checkpoint]:
        return [each for (endpoint, _), each in self._remembered.items() if endpoint == place.endpoint]

    def _remember(self, place: CheckpointPlace, found: Iterable[Checkpoint]) -> None:
        """Whole ones are not read again: a large one's metadata takes seconds."""
        for each in found:
            if each.level.may_resume:
                self._remembered.pop((place.endpoint, each.path), None)
                self._remembered[place.endpoint, each.path] = each
        for key in list(self._remembered)[:-REMEMBERED]:
            del self._remembered[key]


class _Look:
    """One look at one job's places, within a thread."""

    def __init__(self, query: CheckpointQuery, files_most: int) -> None:
        self._query = query
        self._files_most = files_most
        self._stopped = threading.Event()
        self._problems: list[str] = []
        self._complete = True

    def stop(self) -> None:
        """Nobody waits for it any more."""
        self._stopped.set()

    def run(self, clock: Clock) -> CheckpointListing:
        found: list[Checkpoint] = []
        for attempt in self._query.attempts or (None,):
            url = self._query.place.url if attempt is None else self._query.place.for_attempt(attempt)
            try:
                found += self._of_one_place(url, attempt)
            except StoreError as error:
                self._complete = False
                self._problems.append(str(error))
        newest_first = sorted(found, key=lambda each: (each.step, each.attempt or 0), reverse=True)
        return CheckpointListing(
            observed_at=clock(),
            complete=self._complete,
            checkpoints=tuple(newest_first),
            problems=tuple(dict.fromkeys(self._problems))[:PROBLEMS_TOLD],
        )

    def _of_one_place(self, url: str, attempt: int | None) -> list[Checkpoint]:
        store = store_of(url, self._query.place)
        tree = self._tree(store, url)
        judged, odd = survey(
            tree,
            self._query.place.format,
            url,
            self._reader(store, tree),
            newest=self._query.newest,
            known=self._query.known,
            attempt=attempt,
        )
        self._problems += [f"{url}: {words}" for words in odd]
        return _verified(store, judged, url) if self._query.verify else list(judged)

    def _tree(self, store: Store, url: str) -> Tree:
        entries: list[Entry] = []
        for entry in store.entries():
            self._go_on()
            if len(entries) >= self._files_most:
                self._complete = False
                self._problems.append(f"{url}: more than {self._files_most} files; the rest was not listed")
                break
            entries.append(entry)
        return Tree(entries, url.rstrip("/").rpartition("/")[2])

    def _reader(self, store: Store, tree: Tree) -> Read:
        def read_one(want: Want) -> tuple[str, bytes | None]:
            self._go_on()
            try:
                return want.path, store.read(want, tree.files[want.path].size)
            except StoreError as error:
                self._problems.append(str(error))
                return want.path, None

        def read(wants: tuple[Want, ...]) -> Contents:
            if len(wants) < 2:
                pairs = [read_one(want) for want in wants]
            else:
                with ThreadPoolExecutor(min(READERS, len(wants))) as readers:
                    pairs = list(readers.map(read_one, wants))
            return {path: data for path, data in pairs if data is not None}

        return read

    def _go_on(self) -> None:
        if self._stopped.is_set():
            raise StoreError("nobody waits for this look any more")


def _verified(store: Store, checkpoints: Iterable[Checkpoint], url: str) -> list[Checkpoint]:
    """The newest with their contents read for checksums, where the format has them."""
    found, read = [], 0
    for each in checkpoints:
        if each.format is CheckpointFormat.MANIFEST and each.level is Level.COMMITTED and read < VERIFIED_MOST:
            read += 1
            found.append(_with_checksums(store, each, url))
        else:
            found.append(each)
    return found


def _with_checksums(store: Store, checkpoint: Checkpoint, url: str) -> Checkpoint:
    folder = checkpoint.path.removeprefix(url.rstrip("/")).strip("/")
    prefix = f"{folder}/" if folder else ""
    try:
        data = store.read(Want(path=f"{prefix}{manifest.MANIFEST}"), SMALL)
        content = manifest.listed(data) if data is not None else None
        if content is None:
            return checkpoint
        wrong = [
            f"{file.path} has another checksum than {manifest.MANIFEST} lists"
            for file in content.files
            if file.sha256 and store.sha256(f"{prefix}{file.path}") != file.sha256.lower()
        ]
    except StoreError as error:
        return checkpoint.model_copy(update={"level": Level.UNKNOWN, "problems": (str(error),)})
    if wrong:
        return checkpoint.model_copy(update={"level": Level.LISTED, "problems": tuple(wrong[:PROBLEMS_TOLD])})
    if not all(file.sha256 for file in content.files):
        return checkpoint
    return checkpoint.model_copy(update={"level": Level.VERIFIED})


def _exists(url: str, place: CheckpointPlace) -> bool:
    return store_of(url, place).exists()
