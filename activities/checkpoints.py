"""Checkpoints of a training job, listed and judged; and whether the job has reached its target.

Called by the training workflow, by the watch of an attempt and by `sickbay checkpoints`. It lists and reads, in a
thread; what files mean is `sickbay.checkpoints`'. A place that cannot be read makes the listing incomplete, never
empty.
"""

import asyncio
from collections.abc import Iterable
from typing import Final

from temporalio import activity

from activities.checkpoint_stores import FILES_MOST, Store, StoreError, store_of
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
from sickbay.checkpoints.tree import Contents, Entry, Tree, Want
from sickbay.model import Frozen
from sickbay.training.job import Target

VERIFIED_MOST: Final = 3
"""Checkpoints whose contents are read for their checksums in one look, the newest."""


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

    def __init__(self, clock: Clock = utc_now) -> None:
        self._clock = clock

    @activity.defn
    async def list_checkpoints(self, query: CheckpointQuery) -> CheckpointListing:
        """Every checkpoint of the job, newest first."""
        return await self.look(query)

    async def look(self, query: CheckpointQuery) -> CheckpointListing:
        """One listing, for the watch and for people too."""
        async with heartbeats():
            return await asyncio.to_thread(self._list, query)

    @activity.defn
    async def target_reached(self, query: TargetQuery) -> TargetLook:
        """Whether the target is reached. Raises PassingError where nobody can tell now."""
        target = query.target
        if target.step is not None and query.newest_step is not None and query.newest_step >= target.step:
            return TargetLook(reached=True, proof=f"a durable checkpoint of step {query.newest_step}")
        if not target.marker:
            return TargetLook(reached=False)
        urls = [target.marker.replace("{attempt}", str(attempt)) for attempt in query.attempts or (0,)]
        for url in reversed(list(dict.fromkeys(urls))):
            try:
                if await asyncio.to_thread(store_of(url, query.place).exists):
                    return TargetLook(reached=True, proof=f"{url} is there")
            except StoreError as error:
                raise PassingError(str(error)) from error
        return TargetLook(reached=False)

    def _list(self, query: CheckpointQuery) -> CheckpointListing:
        found: list[Checkpoint] = []
        problems: list[str] = []
        complete = True
        for attempt in query.attempts or (None,):
            url = query.place.url if attempt is None else query.place.for_attempt(attempt)
            try:
                store = store_of(url, query.place)
                tree, whole = _tree(store, url)
            except StoreError as error:
                complete = False
                problems.append(str(error))
                continue
            complete = complete and whole
            if not whole:
                problems.append(f"{url}: more than {FILES_MOST} files")
            judged, odd = survey(
                tree,
                query.place.format,
                url,
                _reader(store),
                newest=query.newest,
                known=query.known,
                attempt=attempt,
            )
            found += _verified(store, judged, url) if query.verify else judged
            problems += [f"{url}: {words}" for words in odd]
        newest_first = sorted(found, key=lambda each: (each.step, each.attempt or 0), reverse=True)
        return CheckpointListing(
            observed_at=self._clock(), complete=complete, checkpoints=tuple(newest_first), problems=tuple(problems)
        )


def _tree(store: Store, url: str) -> tuple[Tree, bool]:
    """The files of a place, and whether they are all of them."""
    entries: list[Entry] = []
    for entry in store.entries():
        entries.append(entry)
        if len(entries) >= FILES_MOST:
            return Tree(entries, url.rstrip("/").rpartition("/")[2]), False
    return Tree(entries, url.rstrip("/").rpartition("/")[2]), True


def _reader(store: Store) -> Read:
    """Reads what formats want, each file once."""
    known: dict[Want, bytes | None] = {}

    def read(wants: tuple[Want, ...]) -> Contents:
        for want in wants:
            if want not in known:
                known[want] = store.read(want)
        return {want.path: data for want in wants if (data := known[want]) is not None}

    return read


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
    data = store.read(Want(path=f"{folder}/{manifest.MANIFEST}"))
    content = manifest.listed(data) if data is not None else None
    if content is None:
        return checkpoint
    wrong = []
    try:
        for name, (_, digest) in sorted(content[1].items()):
            if digest and store.sha256(f"{folder}/{name}") != digest:
                wrong.append(f"{name} has another checksum than {manifest.MANIFEST} lists")
    except StoreError as error:
        return checkpoint.model_copy(update={"level": Level.UNKNOWN, "problems": (str(error),)})
    if wrong:
        return checkpoint.model_copy(update={"level": Level.LISTED, "problems": tuple(wrong)})
    return checkpoint.model_copy(update={"level": Level.VERIFIED})
