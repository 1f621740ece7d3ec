"""Runs one check in a thread of its own and gives up on it in time, whatever it does.

Used by the agent's schedule and by `health.one_pass`. A check bounds itself by its children's deadlines; this is the
bound around that, for a check whose own thread hangs or raises. A thread cannot be killed, so one that does not come
back is left behind, and its check is not started again until it has come back: one hanging source costs one thread.
What an outcome means for the node is in `sickbay.check_record`.
"""

import asyncio
import contextlib
import logging
import threading
import time
from collections import Counter
from datetime import timedelta
from typing import Final

from health.check import Check
from health.children import started_for
from sickbay.check_record import CheckRun
from sickbay.checks import ActiveDepth, CheckCost, CheckMoment, CheckOutcome, CheckResult, unknown

_log = logging.getLogger(__name__)

GRACE: Final = timedelta(seconds=1)
"""What a check may take beyond its deadline to end its children."""

_BURN_IN_SLACK: Final = timedelta(minutes=1)
"""Beyond a burn-in itself, for filling and emptying the GPUs; the incident waits as much longer."""


class CheckRunner:
    """One check and its runs, of which there is never more than one at a time. For one event loop."""

    def __init__(self, check: Check, grace: timedelta = GRACE) -> None:
        """`grace` is given by tests."""
        self.check = check
        self._limit = (check.about.deadline + grace).total_seconds()
        self._turn = asyncio.Lock()
        self._working = False
        self.abandoned = 0
        """Runs that were given up with their threads."""
        self.runs: Counter[CheckResult] = Counter()
        """Runs so far, by what they said."""

    @property
    def name(self) -> str:
        """The check's name."""
        return self.check.about.name

    async def run(self, moment: CheckMoment) -> CheckRun:
        """One run, at most for the deadline and the grace. Raises nothing that the check does."""
        async with self._turn:
            begun = time.monotonic()
            outcome, answered = await self._outcome(moment)
            self.runs[outcome.result] += 1
            return CheckRun(at=moment.now, outcome=outcome, answered=answered, seconds=time.monotonic() - begun)

    async def _outcome(self, moment: CheckMoment) -> tuple[CheckOutcome, bool]:
        if self._working:
            return unknown("its run before this one has not come back"), False
        limit = self._limit_of(moment)
        answer = self._start(moment)
        try:
            async with asyncio.timeout(limit):
                said = await answer
        except TimeoutError:
            self.abandoned += 1
            return unknown(f"no answer within {limit:g} s"), False
        if isinstance(said, CheckOutcome):
            return said, True
        _log.warning("check %s failed: %r", self.name, said)
        return unknown(f"the check failed: {type(said).__name__}: {said}"), False

    def _limit_of(self, moment: CheckMoment) -> float:
        """Seconds. The deadline of an exclusive check is that of its quick form."""
        loaded = self.check.about.cost is CheckCost.EXCLUSIVE and moment.depth is ActiveDepth.BURN_IN
        return self._limit + ((moment.burn_in + _BURN_IN_SLACK).total_seconds() if loaded else 0.0)

    def _start(self, moment: CheckMoment) -> "asyncio.Future[CheckOutcome | Exception]":
        answer: asyncio.Future[CheckOutcome | Exception] = asyncio.get_running_loop().create_future()
        self._working = True
        threading.Thread(target=self._work, args=(moment, answer), name=f"check {self.name}", daemon=True).start()
        return answer

    def _work(self, moment: CheckMoment, answer: "asyncio.Future[CheckOutcome | Exception]") -> None:
        said: CheckOutcome | Exception
        try:
            with started_for(self.name):
                said = self.check.run(moment)
        except Exception as error:  # noqa: BLE001 - whatever a check breaks, the others go on
            said = error
        self._working = False

        def deliver() -> None:
            if not answer.done():
                answer.set_result(said)

        # The loop may have ended while the thread hung.
        with contextlib.suppress(RuntimeError):
            answer.get_loop().call_soon_threadsafe(deliver)
