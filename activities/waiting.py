"""Waiting inside an activity: heartbeats, a deadline that outlives a retry, and looks repeated until something stands.

Used by the activities that last. Works without Temporal too, where there is nobody to send heartbeats to.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from typing import Final, TypeVar

from temporalio import activity

from activities.errors import PassingError

HEARTBEAT_EVERY: Final = timedelta(seconds=4)
"""Several to each heartbeat timeout that a workflow may sensibly set; the SDK thins them out."""

Clock = Callable[[], datetime]
Seen = TypeVar("Seen")


def utc_now() -> datetime:
    """The wall clock."""
    return datetime.now(UTC)


def started_at(clock: Clock) -> datetime:
    """When the first attempt of this activity was scheduled, so that a retry does not wait its whole time again."""
    return activity.info().scheduled_time if activity.in_activity() else clock()


@asynccontextmanager
async def heartbeats(progress: Callable[[], Sequence[str]] = tuple) -> AsyncIterator[None]:
    """Heartbeats while the body runs, each with what `progress` returns, for the next attempt.

    The body must not wait for anything without a deadline: these heartbeats would hide it.
    """
    if not activity.in_activity():
        yield
        return
    beating = asyncio.create_task(_beat(progress))
    try:
        yield
    finally:
        beating.cancel()
        with suppress(asyncio.CancelledError):
            await beating


def told_before() -> tuple[str, ...]:
    """The names that an earlier attempt of this activity told with its last heartbeat."""
    details = activity.info().heartbeat_details if activity.in_activity() else ()
    names = details[0] if details else ()
    return tuple(str(name) for name in names) if isinstance(names, list | tuple) else ()


async def _beat(progress: Callable[[], Sequence[str]]) -> None:
    while True:
        activity.heartbeat(list(progress()))
        await asyncio.sleep(HEARTBEAT_EVERY.total_seconds())


async def look_until(
    look: Callable[[], Awaitable[Seen]],
    done: Callable[[Seen], bool],
    *,
    until: datetime,
    every: timedelta,
    clock: Clock,
) -> Seen:
    """The first look that is done, or the last one before the deadline; at least one is taken.

    Passing errors are waited out: an API server restarts too. Raises the last one if no look succeeded, and any final
    error.
    """
    seen: list[Seen] = []
    while True:
        pause = every
        try:
            seen = [await look()]
        except PassingError as error:
            pause = max(every, error.retry_after or every)
            if not seen and clock() >= until:
                raise
        if seen and (done(seen[0]) or clock() >= until):
            return seen[0]
        await asyncio.sleep(max(min(pause, until - clock()), timedelta()).total_seconds())
