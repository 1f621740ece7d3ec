"""How a training job waits: for something it shows, until a deadline, and with an eye on orders and on its nodes.

Called by the training workflow and its parts. Between two watches the workflow continues as new where its history has
grown; the end of an attempt never does, since it is short.
"""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import Final, TypeVar

from temporalio import workflow

from sickbay.training.job import JobOutcome
from workflows.outside import OutsideError
from workflows.training_record import TrainingRecord

T = TypeVar("T")

AGAIN: Final = timedelta(seconds=30)
"""Between two tries of what nothing can go on without, after the activity's own retries are spent."""
AGAIN_FINAL: Final = timedelta(minutes=10)
"""The same after a refusal, which a person must cure."""


class JobOver(Exception):  # noqa: N818 - an end, not an error
    """The job is over; raised from wherever that becomes clear, caught once by the workflow."""

    def __init__(self, outcome: JobOutcome, reason: str, *, proof: str = "") -> None:
        super().__init__(reason)
        self.outcome = outcome
        self.reason = reason
        self.proof = proof


class TrainingWaits:
    """The waits of one job."""

    def __init__(self, record: TrainingRecord) -> None:
        self._record = record

    async def until_answered(self, call: Callable[[], Awaitable[T]]) -> T | None:
        """The answer to a call that nothing can go on without; None if an order came instead."""
        record = self._record
        while True:
            try:
                return await call()
            except OutsideError as failed:
                pause = AGAIN_FINAL if failed.final else AGAIN
                record.note(f"tries again: {failed}")
                record.waits(f"an answer: {failed}", workflow.now() + pause)
                if await self.wait(lambda: record.ordered, pause, "try again"):
                    self.heed_cancellation()
                    return None

    def heed_cancellation(self) -> None:
        """Raises asyncio.CancelledError where the workflow itself is cancelled, which an activity may hide."""
        if workflow.cancellation_reason() is not None:
            raise asyncio.CancelledError

    async def until(self, deadline: datetime, what: str, done: Callable[[], bool]) -> bool:
        """Wait for something until a deadline, and show it; whether it came."""
        self._record.waits(what, deadline)
        while not done():
            self.continue_if_long()
            left = deadline - workflow.now()
            if left <= timedelta(0):
                return False
            if await self.wait(lambda: done() or _long(), left, what) and not _long():
                return True
        return True

    async def wait(self, done: Callable[[], bool], duration: timedelta, what: str) -> bool:
        """Whether it came within the duration."""
        try:
            await workflow.wait_condition(done, timeout=duration, timeout_summary=what[:200])
        except TimeoutError:
            return False
        return True

    def continue_if_long(self) -> None:
        """Go on as a new run where the history has grown; only where nothing is under way."""
        if _long():
            workflow.continue_as_new(self._record.continued())


def _long() -> bool:
    return workflow.info().is_continue_as_new_suggested()
