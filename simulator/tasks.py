"""Background tasks of one owner: started freely, ended together, never silently lost.

The cloud and the cluster run many small waits (a boot, a shut-down, a control loop). A task group would end them all
when one fails; here a failure is logged and the rest of the simulated world goes on, as in a real one.
"""

import asyncio
import logging
from collections.abc import Coroutine

log = logging.getLogger(__name__)


class Background:
    """A set of running tasks."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def spawn(self, work: Coroutine[None, None, None], name: str) -> asyncio.Task[None]:
        """Run `work` until it ends or the owner closes."""
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    async def close(self) -> None:
        """Cancel all tasks and wait until they are gone."""
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("simulator task %s failed", task.get_name(), exc_info=error)
