"""Waiting for something that a simulated world brings about by itself."""

import asyncio
from collections.abc import Callable

SOON = 20.0
"""Real seconds after which a wait has failed; a passing test never waits as long."""


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(SOON):
        while not condition():  # noqa: ASYNC110 - what is waited for sets no event; it may be any state of any part
            await asyncio.sleep(0.01)
