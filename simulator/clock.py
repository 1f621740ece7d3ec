"""Simulated time: one factor by which every wait of the simulator is shortened.

Every part of the simulator that waits for something of its world (a boot, an instance state, a heartbeat, a grace
period) waits through one shared `Clock`. Stamps that leave the simulator stay wall-clock time: the programs under
test compare them with their own clocks, which nobody speeds up. Limits on real I/O (HTTP timeouts, child processes)
do not go through here, since a faster story does not make sockets faster.
"""

import asyncio
from datetime import UTC, datetime


class Clock:
    """Wall-clock stamps and shortened waits."""

    def __init__(self, speed: float = 1.0) -> None:
        """`speed` is simulated seconds per real second. Raises ValueError unless it is above 0."""
        if not speed > 0:
            raise ValueError(f"clock speed is {speed}: give a number above 0, e.g. 60 for a minute per second")
        self.speed = speed

    def now(self) -> datetime:
        """The wall clock, in UTC."""
        return datetime.now(UTC)

    def real(self, seconds: float) -> float:
        """Real seconds that some simulated seconds take."""
        return seconds / self.speed

    def simulated(self, real_seconds: float) -> float:
        """Simulated seconds that pass in some real seconds."""
        return real_seconds * self.speed

    def since(self, moment: datetime) -> float:
        """Simulated seconds that passed since a wall-clock stamp."""
        return self.simulated((self.now() - moment).total_seconds())

    async def sleep(self, seconds: float) -> None:
        """Wait for some simulated seconds; yields to the loop even for none."""
        await asyncio.sleep(self.real(max(seconds, 0.0)))
