"""Waiting for something that another task or process brings about."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable

DEADLINE_SECONDS = 15.0
"""Far above what anything here takes: it is met only when the test fails."""


async def eventually(holds: Callable[[], bool | Awaitable[bool]]) -> None:
    """Return once `holds` does; fail the test if it never does."""
    async with asyncio.timeout(DEADLINE_SECONDS):
        while True:
            answer = holds()
            if await answer if inspect.isawaitable(answer) else answer:
                return
            await asyncio.sleep(0.01)
