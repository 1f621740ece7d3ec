"""NVML's events beside the kernel log: what they tell that the log has not told.

Used by the agent. The events' source counts on for ever; here is what was already taken, so that a fault that a reset
has cured does not come back for having been heard before it.
"""

import asyncio
from datetime import timedelta
from typing import Protocol

from sickbay.faults import Fault


class EventSource(Protocol):
    """What `health.nvml_events.NvmlEvents` offers."""

    def start(self) -> None:
        """Begin to listen."""
        ...

    def stop(self, patience: timedelta = ...) -> bool:
        """Let go of the GPUs; blocking."""
        ...

    def take(self) -> tuple[Fault, ...]:
        """Everything heard in this boot, with running counts."""
        ...


class HeardEvents:
    """The events since the last look."""

    def __init__(self, source: EventSource) -> None:
        self._source = source
        self._counts: dict[tuple[str, str, str, str], int] = {}
        self._listens = False
        self._turning = asyncio.Lock()

    async def listen(self, wanted: bool) -> None:
        """Listen from now on, or let go of the GPUs; nothing happens if it is so already."""
        async with self._turning:
            if wanted is not self._listens:
                await asyncio.to_thread(self._source.start if wanted else self._source.stop)
                self._listens = wanted

    def take(self) -> tuple[Fault, ...]:
        """Faults that are new or were heard again. Never waits."""
        heard = tuple(fault for fault in self._source.take() if fault.count > self._counts.get(fault.identity, 0))
        self._counts |= {fault.identity: fault.count for fault in heard}
        return heard
