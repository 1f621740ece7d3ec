"""Who may touch the GPUs' driver now: any number of checks, or a reset alone.

Used by the agent's schedule and by the reset of `activities.host`, which fails while anybody holds a GPU open.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class DriverGate:
    """Open to checks, unless a reset waits or works. For one event loop."""

    def __init__(self) -> None:
        self._change = asyncio.Condition()
        self._inside = 0
        self._closed = False

    @asynccontextmanager
    async def touching(self) -> AsyncIterator[None]:
        """Wait until the driver may be touched, and keep a reset waiting meanwhile."""
        async with self._change:
            await self._change.wait_for(lambda: not self._closed)
            self._inside += 1
        try:
            yield
        finally:
            async with self._change:
                self._inside -= 1
                self._change.notify_all()

    @asynccontextmanager
    async def untouched(self) -> AsyncIterator[None]:
        """Let nobody new in and wait until all are out, each of whom has a deadline of its own."""
        async with self._change:
            await self._change.wait_for(lambda: not self._closed)
            self._closed = True
        try:
            async with self._change:
                await self._change.wait_for(lambda: not self._inside)
            yield
        finally:
            async with self._change:
                self._closed = False
                self._change.notify_all()
