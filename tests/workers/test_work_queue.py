import asyncio
from collections.abc import Iterator
from datetime import timedelta

import pytest

from workers.work_queue import FIRST_RETRY, LAST_RETRY, WorkQueue


@pytest.fixture
def queue() -> Iterator[WorkQueue]:
    made = WorkQueue()
    yield made
    made.close()


async def is_empty(queue: WorkQueue) -> bool:
    taking = asyncio.ensure_future(queue.take())
    await asyncio.sleep(0)
    done = taking.done()
    taking.cancel()
    await asyncio.gather(taking, return_exceptions=True)
    return not done


async def test_a_key_told_many_times_is_handled_once(queue: WorkQueue) -> None:
    for _ in range(3):
        queue.add("n1")
    assert await queue.take() == "n1"
    assert await is_empty(queue)


async def test_a_key_in_hand_is_in_no_other_hand_and_comes_once_more(queue: WorkQueue) -> None:
    queue.add("n1")
    assert await queue.take() == "n1"
    queue.add("n1")
    assert await is_empty(queue)
    queue.done("n1")
    assert await queue.take() == "n1"


async def test_a_failed_key_comes_back_each_time_later_up_to_a_limit(queue: WorkQueue) -> None:
    delays = []
    for _ in range(100):
        queue.add("n1")
        await queue.take()
        delays.append(queue.failed("n1"))
    assert delays[:3] == [FIRST_RETRY, FIRST_RETRY * 2, FIRST_RETRY * 4]
    assert delays == sorted(delays)
    assert delays[-1] == LAST_RETRY


async def test_success_forgets_past_failures(queue: WorkQueue) -> None:
    for _ in range(2):
        queue.add("n1")
        await queue.take()
        queue.failed("n1")
    queue.add("n1")
    await queue.take()
    queue.done("n1")
    queue.add("n1")
    await queue.take()
    assert queue.failed("n1") == FIRST_RETRY


async def test_a_key_due_later_comes_by_itself_and_the_earliest_time_holds(queue: WorkQueue) -> None:
    queue.add_later("n1", timedelta(hours=1))
    queue.add_later("n1", timedelta(0))
    queue.add_later("n1", timedelta(hours=1))
    assert await asyncio.wait_for(queue.take(), 5) == "n1"


async def test_news_of_a_key_outruns_its_delay(queue: WorkQueue) -> None:
    queue.add_later("n1", timedelta(hours=1))
    queue.add("n1")
    assert await queue.take() == "n1"
    assert await is_empty(queue)
