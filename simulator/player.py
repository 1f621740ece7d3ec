"""Plays a scenario's faults on the machines, each at its time.

Started by `simulator.process` once the cluster is whole; it injects and never looks at what comes of it.
"""

import asyncio
import logging
from collections.abc import Sequence

from simulator.clock import Clock
from simulator.host.fleet import Fleet
from simulator.machine import Power
from simulator.scenario import PlannedFault

log = logging.getLogger(__name__)

LOOK_SECONDS = 0.1
"""Real seconds between two looks at whether the first machines run."""


class Player:
    """The faults of one scenario, waiting for their time."""

    def __init__(self, fleet: Fleet, clock: Clock, nodes: int, faults: Sequence[PlannedFault]) -> None:
        """`nodes` is how many machines the scenario begins with; faults count from the moment when all of them run."""
        self._fleet = fleet
        self._clock = clock
        self._nodes = nodes
        self._faults = faults

    async def play(self) -> None:
        """Inject every fault; ends with the last of them."""
        while not self._all_run():  # noqa: ASYNC110 (the cloud makes machines when it likes, and tells nobody)
            await asyncio.sleep(LOOK_SECONDS)
        passed = 0.0
        for fault in sorted(self._faults, key=lambda fault: fault.at):
            await self._clock.sleep(fault.at - passed)
            passed = fault.at
            machine = self._fleet.machines[fault.node]
            log.info("%s on %s", fault.name or "a fault", machine.node_name)
            machine.inject(fault)

    def _all_run(self) -> bool:
        first = self._fleet.machines[: self._nodes]
        return len(first) == self._nodes and all(machine.power is Power.RUNNING for machine in first)
