"""A queue of keys in which each key is at most once, and is never in two hands.

Used by `workers.triage`. A watch tells of a node many times while one handling of it runs; all that matters is to look
once more afterwards. A failed key comes back later, each time later than the last.
"""

import asyncio
from datetime import timedelta
from typing import Final

FIRST_RETRY: Final = timedelta(seconds=1)
LAST_RETRY: Final = timedelta(minutes=1)
MOST_DOUBLINGS: Final = 6


class WorkQueue:
    """Keys that await handling. Belongs to one event loop."""

    def __init__(self) -> None:
        self._ready: asyncio.Queue[str] = asyncio.Queue()
        self._waiting: set[str] = set()
        self._in_hand: set[str] = set()
        self._again: set[str] = set()
        self._failures: dict[str, int] = {}
        self._timers: dict[str, asyncio.TimerHandle] = {}

    def add(self, key: str) -> None:
        """Have a key handled as soon as possible; once more, if it is in hand now."""
        self._cancel_timer(key)
        if key in self._in_hand:
            self._again.add(key)
        elif key not in self._waiting:
            self._waiting.add(key)
            self._ready.put_nowait(key)

    def add_later(self, key: str, delay: timedelta) -> None:
        """Have a key handled after a delay, unless it is due before that anyway."""
        loop = asyncio.get_running_loop()
        due = loop.time() + delay.total_seconds()
        timer = self._timers.get(key)
        if key in self._waiting or (timer is not None and timer.when() <= due):
            return
        self._cancel_timer(key)
        self._timers[key] = loop.call_at(due, self.add, key)

    async def take(self) -> str:
        """The next key; it is in the caller's hand until `done` or `failed`."""
        key = await self._ready.get()
        self._waiting.discard(key)
        self._in_hand.add(key)
        return key

    def done(self, key: str) -> None:
        """A key was handled."""
        self._failures.pop(key, None)
        self._put_back(key)

    def failed(self, key: str) -> timedelta:
        """A key could not be handled: it comes back after the delay that is returned."""
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        delay = min(FIRST_RETRY * (1 << min(failures, MOST_DOUBLINGS)), LAST_RETRY)
        self._put_back(key)
        self.add_later(key, delay)
        return delay

    def close(self) -> None:
        """Forget every timer, so that nothing fires into a loop that ends."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    def _put_back(self, key: str) -> None:
        self._in_hand.discard(key)
        if key in self._again:
            self._again.discard(key)
            self.add(key)

    def _cancel_timer(self, key: str) -> None:
        timer = self._timers.pop(key, None)
        if timer is not None:
            timer.cancel()
