"""What the simulated cloud and cluster need of a simulated machine; `simulator.host` builds it.

The cloud (EC2 calls, Karpenter, Auto Scaling) turns machines on and off; the cluster (kubelet, scheduler) reads how
they stand. Neither knows how a GPU breaks: that is the machine's own affair, by its scenario.
"""

from collections.abc import Callable
from enum import StrEnum
from typing import Protocol


class Power(StrEnum):
    """Whether the machine runs."""

    OFF = "off"
    BOOTING = "booting"
    RUNNING = "running"


class Machine(Protocol):
    """One simulated host."""

    instance_id: str
    node_name: str

    @property
    def power(self) -> Power: ...

    @property
    def boot_id(self) -> str:
        """A new one each boot; empty while off."""
        ...

    @property
    def kubelet_alive(self) -> bool:
        """False while not running, and when the scenario says that the host hangs."""
        ...

    @property
    def gpu_capacity(self) -> int: ...

    @property
    def gpu_allocatable(self) -> int:
        """What the device plugin would report now."""
        ...

    @property
    def impaired(self) -> bool:
        """What EC2's instance status check says."""
        ...

    async def start(self) -> None:
        """Power on; returns at once, `power` tells when it is up."""
        ...

    async def reboot(self) -> None:
        """Reboot from inside or outside; returns at once."""
        ...

    async def stop(self) -> None:
        """Power off for good and end every process of this machine."""
        ...


MachineFactory = Callable[[str, str, str], Machine]
"""(instance id, node name, instance type) to a new machine that is off."""
