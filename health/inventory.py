"""What the machine has: which checks apply follows from it, and the controller compares it with what EC2 attached.

Kept by the agent. Whether the parts are well is the checks' business.
"""

import asyncio
from collections.abc import Callable
from typing import NamedTuple

from health.files import read_files
from health.settings import NodeSettings
from sickbay.checks import HostFacts
from sickbay.conditions import Inventory
from sickbay.gpu_readings import NvmlAnswer
from sickbay.network.efa import efa_devices
from sickbay.network.sysfs import RDMA_WANTED
from sickbay.pci import FACTS_WANTED, facts_from


class Machine(NamedTuple):
    """What one look at the machine tells, without its GPUs' driver."""

    host: HostFacts
    efa_devices: int | None
    """EFA devices that the driver shows; None where that cannot be told."""


def look_at_machine(settings: NodeSettings) -> Machine:
    """One look, by a child with a deadline of a few seconds. Blocking; raises nothing."""
    readings = read_files(settings.host_root, FACTS_WANTED + RDMA_WANTED)
    devices = efa_devices(readings)
    return Machine(host=facts_from(readings), efa_devices=None if devices is None else len(devices))


class MachineWatch:
    """What is known of one machine. For one event loop."""

    def __init__(self, settings: NodeSettings, look: Callable[[NodeSettings], Machine] = look_at_machine) -> None:
        """`look` is given by tests."""
        self._settings = settings
        self._look = look
        self._looking = asyncio.Lock()
        self._looked = False
        self._efa_devices: int | None = None
        self._gpus: int | None = None
        self.host = HostFacts()
        """What kind of machine this is, as far as it is known."""

    async def look(self, *, again: bool = False) -> None:
        """Look, unless that was done; it takes a few seconds at most."""
        async with self._looking:
            if self._looked and not again:
                return
            machine = await asyncio.to_thread(self._look, self._settings)
            self._looked = True
            self._efa_devices = machine.efa_devices
            # A look that failed takes nothing back of what an earlier one saw.
            if machine.host.pci_known or not self.host.pci_known:
                said = {"gpu_product": self.host.gpu_product, "driver_version": self.host.driver_version}
                self.host = machine.host.model_copy(update=said)

    def hear(self, answer: NvmlAnswer | None) -> None:
        """Take what the GPUs' driver tells; None if it did not answer."""
        self._gpus = None if answer is None else answer.count
        if answer is not None and answer.gpus:
            said = {"gpu_product": answer.gpus[0].name, "driver_version": answer.driver_version}
            self.host = self.host.model_copy(update=said)

    def inventory(self) -> Inventory:
        """What the machine shows, for publishing."""
        return Inventory(instance_type=self.host.instance_type, gpus=self._gpus, efa_devices=self._efa_devices)
