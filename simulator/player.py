"""Plays a scenario's faults on the machines, each at its time.

Started by `simulator.process` once the cluster is whole; it injects and never looks at what comes of it.
"""

import logging
from collections.abc import Sequence

from simulator.clock import Clock
from simulator.host.fleet import Fleet
from simulator.scenario import PlannedFault

log = logging.getLogger(__name__)


async def play(faults: Sequence[PlannedFault], fleet: Fleet, clock: Clock) -> None:
    """Inject every fault, counting its time from now; ends with the last of them."""
    passed = 0.0
    for fault in sorted(faults, key=lambda fault: fault.at):
        await clock.sleep(fault.at - passed)
        passed = fault.at
        machine = fleet.machines[fault.node]
        log.info("%s on %s", fault.name or "a fault", machine.node_name)
        try:
            machine.inject(fault)
        except ValueError as error:  # the machine was replaced before its fault came
            log.warning("%s does not come: %s", fault.name or "a fault", error)
