import asyncio
import logging

import pytest

from simulator.tasks import Background


async def test_closing_ends_every_task_and_waits_for_it() -> None:
    background, ended = Background(), asyncio.Event()

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    background.spawn(work(), "work")
    await asyncio.sleep(0)
    await background.close()
    assert ended.is_set()


async def test_a_task_that_fails_is_told_and_ends_no_other(caplog: pytest.LogCaptureFixture) -> None:
    background, done = Background(), asyncio.Event()

    async def fail() -> None:
        raise ValueError("broken")

    async def work() -> None:
        done.set()

    background.spawn(fail(), "the broken one")
    with caplog.at_level(logging.ERROR):
        await background.spawn(work(), "work")
        await asyncio.sleep(0)
    assert done.is_set()
    assert "the broken one" in caplog.text
    await background.close()
