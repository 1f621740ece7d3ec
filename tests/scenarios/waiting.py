"""Waiting for what other processes bring about, with words for what never came."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import pytest

T = TypeVar("T")

PATIENCE_SECONDS = 120.0
"""Far above what any one step of a story takes on a busy machine: it is met only when the story fails."""
LOOK_SECONDS = 0.05


async def seen(what: str, look: Callable[[], Awaitable[T]], seconds: float = PATIENCE_SECONDS) -> T:
    """The first answer of `look` that holds; fails the test if none ever does, telling the last one."""
    answer: T | None = None
    try:
        async with asyncio.timeout(seconds):
            while not (answer := await look()):  # noqa: ASYNC110 - another process brings it about, and tells nobody
                await asyncio.sleep(LOOK_SECONDS)
            return answer
    except TimeoutError:
        pytest.fail(f"{what}: not within {seconds:g} s, at last {answer!r}")


async def never(what: str, look: Callable[[], Awaitable[object]], seconds: float) -> None:
    """Fails the test as soon as `look` holds within these seconds."""
    loop = asyncio.get_running_loop()
    until = loop.time() + seconds
    while loop.time() < until:
        if answer := await look():
            pytest.fail(f"{what}: {answer!r}")
        await asyncio.sleep(LOOK_SECONDS)
