"""The simulated etcd: objects, one revision counter for all of them, and a window of history.

Called by the operations alone. Every write gets the next revision, which becomes the object's resourceVersion; the
window of past events lets a watch resume and a paged list stay consistent. What lies before the window is compacted:
it raises `ApiError` 410, as the real server does. Nothing here awaits, so each call is atomic in the event loop.
"""

import asyncio
import json
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

from simulator.kube import errors
from simulator.kube.resources import Object, Resource

HISTORY = 5_000
"""Events kept for watches and continued lists."""
QUEUE = 10_000
"""Events that may wait for one watcher. A slower one is cut off, as the real server does with it."""


@dataclass(frozen=True)
class Key:
    """Where an object is stored. `namespace` is empty for cluster-scoped kinds."""

    resource: Resource
    namespace: str
    name: str

    @property
    def order(self) -> tuple[str, str]:
        """The order of lists: by namespace, then by name."""
        return (self.namespace, self.name)


class Change(StrEnum):
    """What happened to an object."""

    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"


@dataclass(frozen=True)
class Event:
    """One write."""

    revision: int
    change: Change
    key: Key
    after: Object
    """The object as written; for a deletion its last state, with the revision of the deletion."""
    before: Object | None

    @cached_property
    def encoded(self) -> bytes:
        """`after` as JSON, made once for all watchers."""
        return json.dumps(self.after, separators=(",", ":")).encode()


class Subscription:
    """The events of one resource, from the moment of subscribing on."""

    def __init__(self, resource: Resource) -> None:
        self.resource = resource
        self._queue: asyncio.Queue[Event | None] = asyncio.Queue(QUEUE)
        self.closed = False

    def offer(self, event: Event) -> None:
        """Hand over one event; a subscriber that is too slow is closed instead."""
        if self._queue.full():
            self.close()
        elif not self.closed:
            self._queue.put_nowait(event)

    async def next(self, timeout: float) -> Event | None:  # noqa: ASYNC109 - waiting a little is what it is for
        """The next event, or None once closed. Raises TimeoutError after `timeout` seconds."""
        if self.closed and self._queue.empty():
            return None
        async with asyncio.timeout(timeout):
            return await self._queue.get()

    def close(self) -> None:
        """End it: the reader gets None instead of further events."""
        if not self.closed:
            self.closed = True
            while not self._queue.empty():
                self._queue.get_nowait()
            self._queue.put_nowait(None)


class Store:
    """All objects of one cluster."""

    def __init__(self, history: int = HISTORY) -> None:
        self.revision = 1
        self._compacted = 1
        self._objects: dict[Resource, dict[tuple[str, str], Object]] = {}
        self._history: deque[Event] = deque()
        self._history_size = history
        self._subscriptions: set[Subscription] = set()

    @property
    def subscriptions(self) -> int:
        """How many are following now."""
        return len(self._subscriptions)

    def get(self, key: Key) -> Object | None:
        """The object as it is now, not to be changed in place."""
        return self._objects.get(key.resource, {}).get(key.order)

    def put(self, key: Key, item: Object) -> Object:
        """Write an object under the next revision, which is set in its metadata. Returns the object."""
        before = self.get(key)
        self._stamp(item)
        self._objects.setdefault(key.resource, {})[key.order] = item
        self._record(Event(self.revision, Change.MODIFIED if before else Change.ADDED, key, item, before))
        return item

    def remove(self, key: Key, last: Object) -> Object:
        """Remove an object whose last state was `last`."""
        before = self._objects[key.resource].pop(key.order)
        self._stamp(last)
        self._record(Event(self.revision, Change.DELETED, key, last, before))
        return last

    def snapshot(self, resource: Resource, revision: int | None = None) -> list[Object]:
        """All objects of a resource in list order, as they were at a revision (now, if None).

        Raises `ApiError` 410 if that revision is compacted.
        """
        objects = dict(self._objects.get(resource, {}))
        if revision is not None:
            self._require(revision)
            for event in reversed(self._history):
                if event.revision <= revision:
                    break
                if event.key.resource != resource:
                    continue
                if event.before is None:
                    objects.pop(event.key.order, None)
                else:
                    objects[event.key.order] = event.before
        return [objects[place] for place in sorted(objects)]

    def since(self, resource: Resource, revision: int) -> Iterator[Event]:
        """Events of a resource after a revision. Raises `ApiError` 410 if that revision is compacted."""
        self._require(revision)
        return (event for event in self._history if event.revision > revision and event.key.resource == resource)

    def subscribe(self, resource: Resource) -> Subscription:
        """Follow the events of a resource; give it back with `unsubscribe`."""
        subscription = Subscription(resource)
        self._subscriptions.add(subscription)
        return subscription

    def unsubscribe(self, subscription: Subscription) -> None:
        """Stop following."""
        self._subscriptions.discard(subscription)

    def close_subscriptions(self) -> None:
        """End all watches that are open now."""
        for subscription in tuple(self._subscriptions):
            subscription.close()

    def compact(self) -> None:
        """Forget all history. The revision moves on, so that every resourceVersion given out before is too old."""
        self.revision += 1
        self._compacted = self.revision
        self._history.clear()

    def _require(self, revision: int) -> None:
        if revision < self._compacted:
            raise errors.expired(f"too old resource version: {revision} ({self._compacted})")

    def _stamp(self, item: Object) -> None:
        self.revision += 1
        item["metadata"]["resourceVersion"] = str(self.revision)

    def _record(self, event: Event) -> None:
        self._history.append(event)
        while len(self._history) > self._history_size:
            self._compacted = self._history.popleft().revision
        for subscription in tuple(self._subscriptions):
            if subscription.resource == event.key.resource:
                subscription.offer(event)
