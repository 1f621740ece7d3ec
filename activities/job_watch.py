"""The long watch of a running attempt: looks again and again, and returns when there is something to decide.

Called by the training workflow, which waits for it (facts: training, 9.6). One watch lasts minutes and costs the
workflow's history three events, however often it looks. It decides nothing: what a look means is `attempt_reading`'s
rule, who is slow or hangs `sickbay.ranks`', which checkpoint counts `sickbay.checkpoints`'. An API server or a store
that is away is not the job's failure: what was seen last holds until the watch is over.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from datetime import datetime, timedelta
from typing import Final, Protocol

from temporalio import activity

from activities.errors import FinalError, PassingError
from activities.jobs import AttemptQuery, JobActivities
from activities.waiting import Clock, heartbeats, utc_now
from sickbay.checkpoints.model import Checkpoint, CheckpointListing, CheckpointQuery
from sickbay.model import Frozen
from sickbay.ranks.judgement import judge
from sickbay.ranks.model import NodeRanks
from sickbay.training import attempt_reading
from sickbay.training.attempts import AttemptLook, AttemptRef, AttemptState, WatchRequest
from sickbay.training.job import TrainingSpec

_log = logging.getLogger(__name__)

LOOK_EVERY: Final = timedelta(seconds=5)
RANKS_EVERY: Final = timedelta(seconds=15)
CHECKPOINTS_EVERY: Final = timedelta(seconds=30)
LIST_TIMEOUT: Final = timedelta(minutes=2)
"""For one listing of the checkpoints; a store that takes longer is asked again at the next round."""

ListCheckpoints = Callable[[CheckpointQuery], Awaitable[CheckpointListing]]


class Pages(Protocol):
    """Where the ranks' pages come from: `activities.job_ranks.RankPages`."""

    async def fetch(self, ref: AttemptRef, nodes: Iterable[str]) -> tuple[NodeRanks, ...]:
        """The pages of these nodes with the ranks of this attempt."""
        ...


class WatchAttempt(Frozen):
    """Watch an attempt of this job."""

    spec: TrainingSpec
    request: WatchRequest


class Rhythm(Frozen):
    """How often what is looked at."""

    look: timedelta = LOOK_EVERY
    ranks: timedelta = RANKS_EVERY
    checkpoints: timedelta = CHECKPOINTS_EVERY


class JobWatchActivities:
    """The watch, over the looks that it repeats."""

    def __init__(
        self,
        jobs: JobActivities,
        pages: Pages,
        list_checkpoints: ListCheckpoints,
        *,
        rhythm: Rhythm | None = None,
        slow_at_least: timedelta | None = None,
        clock: Clock = utc_now,
    ) -> None:
        """`slow_at_least` is how long a rank must be slow before it is told; None takes the rule's own."""
        self._jobs = jobs
        self._pages = pages
        self._list = list_checkpoints
        self._rhythm = rhythm or Rhythm()
        self._slow_at_least = slow_at_least
        self._clock = clock

    @activity.defn
    async def watch_attempt(self, request: WatchAttempt) -> AttemptLook:
        """Return at a change of state, a newer durable checkpoint, the wanted step, a hang or a new slow rank; else
        at `until`. Raises PassingError if not one look succeeded by then, FinalError if we may not look."""
        async with heartbeats():
            return await _Watch(self, request).run()

    async def look(self, request: WatchAttempt) -> AttemptLook:
        """How the attempt's objects stand."""
        return await self._jobs.look(AttemptQuery(ref=request.request.ref, spec=request.spec))

    async def ranks(self, request: WatchRequest, look: AttemptLook) -> AttemptLook:
        """The look with what the ranks tell. Their node's silence is no news."""
        pages = await self._pages.fetch(request.ref, (placement.node for placement in look.placements))
        floor = timedelta(seconds=request.hang_floor_seconds)
        options = {} if self._slow_at_least is None else {"at_least": self._slow_at_least}
        told = judge(pages, look.placements, request.pace, floor, request.ranks_expected, self._clock(), **options)
        return look.model_copy(update={"ranks": told})

    async def checkpoints(self, query: CheckpointQuery) -> CheckpointListing | None:
        """The job's checkpoints; None if the store does not tell now."""
        try:
            async with asyncio.timeout(LIST_TIMEOUT.total_seconds()):
                return await self._list(query)
        except (PassingError, FinalError, TimeoutError, OSError) as error:
            _log.info("the checkpoints could not be listed: %s", str(error) or type(error).__name__)
            return None

    @property
    def rhythm(self) -> Rhythm:
        """How often what is looked at."""
        return self._rhythm

    def now(self) -> datetime:
        """The clock."""
        return self._clock()


class _Watch:
    """One watch under way."""

    def __init__(self, activities: JobWatchActivities, watched: WatchAttempt) -> None:
        self._activities = activities
        self._watched = watched
        self._request = watched.request
        self._seen: AttemptLook | None = None
        self._placements = watched.request.placements
        self._ranks_due = activities.now()
        self._checkpoints_due = activities.now()
        self._checkpoints = self._request.checkpoints
        self._listing: asyncio.Task[CheckpointListing | None] | None = None

    async def run(self) -> AttemptLook:
        try:
            return await self._run()
        finally:
            if self._listing is not None:
                self._listing.cancel()
                await asyncio.gather(self._listing, return_exceptions=True)

    async def _run(self) -> AttemptLook:
        while True:
            trouble: PassingError | None = None
            try:
                look = await self._activities.look(self._watched)
            except PassingError as error:
                trouble = error
            else:
                self._seen = await self._with_the_rest(attempt_reading.compared(look, self._placements))
                self._placements = self._seen.placements
                if self._is_news(self._seen):
                    return self._seen
            if self._activities.now() >= self._request.until:
                return self._last(trouble)
            await self._pause()

    def _last(self, trouble: PassingError | None) -> AttemptLook:
        """What was seen last, and whether it is old. Raises PassingError if nothing was."""
        if self._seen is None:
            raise trouble or PassingError("the attempt was not seen in time")
        if trouble is None:
            return self._seen
        why = f"not seen since {self._seen.observed_at:%H:%M:%S}: {trouble}"
        return self._seen.model_copy(update={"why": why[:400]})

    async def _pause(self) -> None:
        """Until the next look is due; a listing that comes in is looked at when it comes."""
        left = max(min(self._activities.rhythm.look, self._request.until - self._activities.now()), timedelta())
        if self._listing is None:
            await asyncio.sleep(left.total_seconds())
        else:
            await asyncio.wait((self._listing,), timeout=left.total_seconds())

    async def _with_the_rest(self, look: AttemptLook) -> AttemptLook:
        """The look with ranks and checkpoints: fresh where they are due, else as seen last."""
        now, rhythm = self._activities.now(), self._activities.rhythm
        before = self._seen
        look = look.model_copy(
            update={"ranks": before.ranks if before else None, "newest": before.newest if before else None}
        )
        if look.state is AttemptState.RUNNING and now >= self._ranks_due:
            self._ranks_due = now + rhythm.ranks
            look = await self._activities.ranks(self._request, look)
            if look.ranks is not None:
                self._request = self._request.model_copy(update={"pace": look.ranks.pace})
        return look.model_copy(update={"newest": self._newest(now) or look.newest})

    def _newest(self, now: datetime) -> Checkpoint | None:
        """What a listing has just found. It goes on beside the looks: a large store answers slower than pods die."""
        newest = None
        if self._listing is not None and self._listing.done():
            listing, self._listing = self._listing.result(), None
            if listing is not None and self._checkpoints is not None:
                known = listing.checkpoints[: self._checkpoints.newest]
                self._checkpoints = self._checkpoints.model_copy(update={"known": known})
                newest = next((each for each in listing.checkpoints if each.may_resume), None)
        if self._listing is None and self._checkpoints is not None and now >= self._checkpoints_due:
            self._checkpoints_due = now + self._activities.rhythm.checkpoints
            self._listing = asyncio.create_task(self._activities.checkpoints(self._checkpoints))
        return newest

    def _is_news(self, look: AttemptLook) -> bool:
        request = self._request
        if look.state is not request.state:
            return True
        if look.newest is not None and look.newest.step > (-1 if request.newest_step is None else request.newest_step):
            return True
        ranks = look.ranks
        if ranks is None:
            return False
        if ranks.hang is not None or any(each.rank not in request.slow_known for each in ranks.slow):
            return True
        if ranks.first_step_at is not None and request.step is None:
            return True
        wanted = request.step_wanted
        return wanted is not None and ranks.step is not None and ranks.step >= wanted
