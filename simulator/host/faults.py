"""What is wrong with a simulated host, by its scenario, and which repair ends it.

`HostFault` is one fault as a scenario file describes it; `FaultBoard` keeps those that a machine has. Pure: the machine
(`simulator.host.machine`) writes the kernel lines, waits, and calls back.

A fault is ended by the repair it names and by every stronger one. A GPU reset reaches only the faults of the GPUs that
are reset; those that it does not cure come back after `relapse_after`, as hardware does that looked well for a moment.
"""

from enum import StrEnum
from typing import Annotated, Self

from pydantic import AfterValidator, Field, model_validator

from simulator.host.gpu import Described, GpuTrouble, combine
from simulator.host.kernel_lines import check_entry


class Cure(StrEnum):
    """What ends a fault, gentlest first."""

    ITSELF = "itself"
    RESET = "reset"
    REBOOT = "reboot"
    REPLACE = "replace"

    def ended_by(self, repair: "Cure") -> bool:
        """Whether this repair is as strong as the fault needs. One that passes by itself ends with any."""
        order = list(Cure)
        return order.index(repair) >= order.index(self)


class HostTrouble(Described):
    """How the host as a whole behaves; of the defaults, one behaves well."""

    kubelet_silent: bool = False
    """The kubelet stops reporting, so that the node turns NotReady."""
    agent_hangs: bool = False
    """Our agent is frozen."""
    impaired: bool = False
    """EC2's instance status check fails."""
    driver_hangs: bool = False
    """Every NVML call and every nvidia-smi blocks, a reset too."""
    nvml_init_error: int = Field(default=0, ge=0)
    """NVML return code of initialisation, e.g. 9 (driver not loaded), 18 (driver and library differ)."""
    missing_nvml_functions: tuple[str, ...] = ()
    """Functions that an old driver's library lacks, by their C names."""
    driver_version: str = Field(default="", pattern=r"^(\d{3}(\.\d+)+)?$")
    """Version of an older driver, e.g. `535.183.01`, which does not know what came later."""
    reset_refused: str = ""
    """nvidia-smi refuses a reset with this text (return code 3: not supported here)."""
    efa_absent: tuple[int, ...] = ()
    """Indices of EFA devices that are not on the PCI bus."""
    efa_down: tuple[int, ...] = ()
    """Indices of EFA devices whose port is down."""
    fabric_manager_dead: bool = False
    """The fabric manager does not run, which NVML does not show."""
    reboot_hangs: bool = False
    """The host never comes back from a reboot; only a replacement helps."""


KernelEntry = Annotated[str, AfterValidator(check_entry)]


class HostFault(Described):
    """One fault of one machine."""

    name: str = ""
    """For people who read the scenario's progress."""
    gpu: int | None = Field(default=None, ge=0)
    """Index of the GPU that is ill; none if it is the host's own fault."""
    kernel_log: tuple[KernelEntry, ...] = ()
    """What the kernel writes when the fault comes: names of templates, or raw lines."""
    kernel_log_at_boot: tuple[KernelEntry, ...] | None = None
    """What it writes at each boot that the fault survives; `kernel_log` again if not given."""
    repeat_every: float | None = Field(default=None, gt=0)
    """The kernel writes `kernel_log` again each so many seconds, until the fault is over."""
    gpu_trouble: GpuTrouble = GpuTrouble()
    gpu_trouble_at_boot: GpuTrouble | None = None
    """How the GPU behaves after a boot that the fault survives, e.g. absent where it was lost; by default the same."""
    host_trouble: HostTrouble = HostTrouble()
    cured_by: Cure
    passes_after: float | None = Field(default=None, gt=0)
    """Simulated seconds after which a fault passes that is cured by itself."""
    relapse_after: float = Field(default=0, ge=0)
    """Simulated seconds after a GPU reset that does not cure it until it shows again."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if (self.cured_by is Cure.ITSELF) != (self.passes_after is not None):
            raise ValueError("give passes_after (seconds) with cured_by: itself, and only then")
        if self.gpu is None and (self.gpu_trouble != GpuTrouble() or self.gpu_trouble_at_boot is not None):
            raise ValueError("gpu_trouble needs a gpu: give the GPU's index")
        if self.gpu is None and self.cured_by is Cure.RESET:
            raise ValueError("only a GPU's fault can be cured by a reset: give the GPU's index, or cured_by: reboot")
        return self


class OpenFault:
    """A fault that a machine has now."""

    def __init__(self, fault: HostFault) -> None:
        self.fault = fault
        self.shows = True
        """False while it looks cured, between a reset that did not help and its relapse."""
        self.survived_boot = False

    @property
    def gpu_trouble(self) -> GpuTrouble:
        """How its GPU behaves for it now."""
        if self.survived_boot and self.fault.gpu_trouble_at_boot is not None:
            return self.fault.gpu_trouble_at_boot
        return self.fault.gpu_trouble


class FaultBoard:
    """The open faults of one machine."""

    def __init__(self) -> None:
        self.open: list[OpenFault] = []

    def add(self, fault: HostFault) -> OpenFault:
        """A fault has come."""
        added = OpenFault(fault)
        self.open.append(added)
        return added

    def remove(self, fault: OpenFault) -> bool:
        """A fault has passed by itself; false if something else ended it before."""
        if fault in self.open:
            self.open.remove(fault)
            return True
        return False

    def reset_gpu(self, gpu: int) -> list[OpenFault]:
        """End what a reset of this GPU cures; what it does not is hidden, and returned: it will come back."""
        mine = [open_fault for open_fault in self.open if open_fault.fault.gpu == gpu]
        left = [open_fault for open_fault in mine if not open_fault.fault.cured_by.ended_by(Cure.RESET)]
        self.open = [open_fault for open_fault in self.open if open_fault not in mine or open_fault in left]
        for open_fault in left:
            open_fault.shows = False
        return left

    def reboot(self) -> list[OpenFault]:
        """End what a reboot cures; what it does not is returned, and shows at once."""
        self.open = [open_fault for open_fault in self.open if not open_fault.fault.cured_by.ended_by(Cure.REBOOT)]
        for open_fault in self.open:
            open_fault.shows = True
            open_fault.survived_boot = True
        return list(self.open)

    def gpu_trouble(self, gpu: int) -> GpuTrouble:
        """How one GPU behaves now."""
        return combine(
            open_fault.gpu_trouble for open_fault in self.open if open_fault.shows and open_fault.fault.gpu == gpu
        )

    def host_troubles(self) -> list[HostTrouble]:
        """What ails the host itself now."""
        return [open_fault.fault.host_trouble for open_fault in self.open if open_fault.shows]
