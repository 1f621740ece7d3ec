"""What the simulated cloud and cluster need of a simulated machine; `simulator.host` builds it.

The cloud (EC2 calls, Karpenter, Auto Scaling) turns machines on and off; the cluster (kubelet, scheduler) reads how
they stand. Neither knows how a GPU breaks: that is the machine's own affair, by its scenario.
"""

from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
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
    def power(self) -> Power:
        """Whether the machine runs now."""
        ...

    @property
    def boot_id(self) -> str:
        """A new one each boot; empty while off."""
        ...

    @property
    def kubelet_alive(self) -> bool:
        """False while not running, and when the scenario says that the host hangs."""
        ...

    @property
    def gpu_capacity(self) -> int:
        """GPUs that a machine of this type has when whole."""
        ...

    @property
    def gpu_allocatable(self) -> int:
        """What the device plugin would report now."""
        ...

    @property
    def impaired(self) -> bool:
        """What EC2's instance status check says."""
        ...

    @property
    def host_root(self) -> Path | None:
        """The machine's own folder that stands for `/` to pods' processes; None where none can run."""
        ...

    def occupy(self, owner: str, gpus: int) -> tuple[int, ...]:
        """Give `gpus` healthy free GPUs to a pod's process; their indices, or nothing if there are too few.

        The kubelet calls it when it starts a pod (`owner` is the pod's UID). An owner that has GPUs keeps them.
        """
        ...

    def open_gpus(self, owner: str) -> None:
        """A pod's process opens every GPU without being given any, as monitors and device plugins do.

        No GPU can be reset until it vacates. It keeps no pod from a GPU.
        """
        ...

    def vacate(self, owner: str) -> None:
        """The owner's processes have ended; nothing happens if it had none. Each power-off vacates everything."""
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
