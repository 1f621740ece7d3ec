"""Watches: the stream of events of one collection, resumable by resourceVersion.

Called by the server for GET with watch=true, which writes each line to the client. A watch without a version starts
with what exists; one from a version gets all that happened since, or one ERROR event of code 410 if that is compacted.
An object that enters or leaves a selector's set shows as added or deleted.
"""

import asyncio
import json
import math
from collections.abc import AsyncGenerator
from dataclasses import dataclass

from simulator.kube import errors
from simulator.kube.requests import ListOptions, Target
from simulator.kube.resources import Object
from simulator.kube.selectors import Matcher
from simulator.kube.storage import Change, Event, Store, Subscription

BOOKMARK_EVERY = 60.0
"""Seconds between bookmarks, as in the real watch cache."""
BOOKMARK_BEFORE_END = 2.0
"""Seconds before its timeout at which a watch sends a last bookmark, as in the real watch cache."""
DEFAULT_TIMEOUT = 1_800.0
"""Seconds that a watch without timeoutSeconds lasts: the real server's min-request-timeout."""


@dataclass(frozen=True)
class Watch:
    """One watch, from its request on."""

    store: Store
    target: Target
    options: ListOptions
    matches: Matcher
    """Which objects it is about."""
    bookmark_every: float

    async def lines(self) -> AsyncGenerator[bytes, None]:
        """Lines of JSON until the timeout, the client's leaving, or the server's `close_subscriptions`."""
        subscription = self.store.subscribe(self.target.resource)
        try:
            first = self._first()
        except errors.ApiError as refusal:
            self.store.unsubscribe(subscription)
            yield _line("ERROR", refusal.status())
            return
        try:
            for line in first:
                yield line
            async for line in self._following(subscription):
                yield line
        finally:
            self.store.unsubscribe(subscription)

    def _first(self) -> list[bytes]:
        """What is sent before anything new happens."""
        version = self.options.resource_version
        if version in ("", "0"):
            existing = self.store.snapshot(self.target.resource)
            return [_line(Change.ADDED, item) for item in existing if self.matches(item)]
        past = self.store.since(self.target.resource, int(version))
        return [line for event in past if (line := _shown(event, self.matches))]

    async def _following(self, subscription: Subscription) -> AsyncGenerator[bytes, None]:
        now = asyncio.get_running_loop().time
        end = now() + (self.options.timeout_seconds or DEFAULT_TIMEOUT)
        bookmark = self._next_bookmark(now(), end)
        while (moment := now()) < end:
            if moment >= bookmark:
                yield self._bookmark()
                bookmark = self._next_bookmark(moment, end)
                continue
            try:
                event = await subscription.next(min(end, bookmark) - moment)
            except TimeoutError:
                continue
            if event is None:
                return
            if line := _shown(event, self.matches):
                yield line

    def _next_bookmark(self, moment: float, end: float) -> float:
        if not self.options.allow_watch_bookmarks:
            return math.inf
        last = end - BOOKMARK_BEFORE_END
        regular = moment + self.bookmark_every
        return min(regular, last) if moment < last else regular

    def _bookmark(self) -> bytes:
        resource = self.target.resource
        metadata = {"resourceVersion": str(self.store.revision), "creationTimestamp": None}
        return _line("BOOKMARK", {"kind": resource.kind, "apiVersion": resource.api_version, "metadata": metadata})


def _shown(event: Event, matches: Matcher) -> bytes | None:
    """The event as this watch shows it; None if it is not about its set."""
    inside = matches(event.after)
    was_inside = event.before is not None and matches(event.before)
    if event.change is Change.DELETED:
        change = Change.DELETED if inside or was_inside else None
    elif inside:
        change = Change.MODIFIED if was_inside else Change.ADDED
    else:
        change = Change.DELETED if was_inside else None
    return b'{"type":"%s","object":%s}\n' % (change.encode(), event.encoded) if change else None


def _line(kind: str, item: Object) -> bytes:
    return json.dumps({"type": kind, "object": item}, separators=(",", ":")).encode() + b"\n"
