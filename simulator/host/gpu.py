"""A simulated GPU: who it is, what ails it, and how it therefore answers.

Pure. A machine folds the troubles of its open faults into one `GpuTrouble` per GPU and writes the result where the
simulated NVML reads it (`gpu_state`). A trouble says how a GPU behaves, never what cures it: that is the fault's.
"""

import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from pydantic import ConfigDict, Field

from sickbay.model import Frozen
from simulator.host.cuda_trouble import CudaTrouble, combine_cuda

GPU_IS_LOST = 15
RESET_REQUIRED = 16
"""NVML's return codes (facts: detection, 2)."""

_IDENTITY_SPACE = uuid.UUID("6a2c5f0e-5d0c-4b43-9c53-0d5f0e8f7a11")


class Described(Frozen):
    """A part of a scenario file: a word that we do not know is an error, not ignored."""

    model_config = ConfigDict(extra="forbid")


class ClockReason(StrEnum):
    """Why clocks are low; NVML has one bit for each (facts: detection, 2)."""

    IDLE = "idle"
    SOFTWARE_POWER_CAP = "software_power_cap"
    HARDWARE_SLOWDOWN = "hardware_slowdown"
    SOFTWARE_THERMAL = "software_thermal"
    HARDWARE_THERMAL = "hardware_thermal"
    POWER_BRAKE = "power_brake"

    @property
    def nvml(self) -> int:
        """Its bit; heat and power that the hardware minds set the bit of slowing down too."""
        return {
            ClockReason.IDLE: 0x1,
            ClockReason.SOFTWARE_POWER_CAP: 0x4,
            ClockReason.HARDWARE_SLOWDOWN: 0x8,
            ClockReason.SOFTWARE_THERMAL: 0x20,
            ClockReason.HARDWARE_THERMAL: 0x48,
            ClockReason.POWER_BRAKE: 0x88,
        }[self]


class RecoveryAction(StrEnum):
    """The driver's own verdict, NVML field 230 and Xid 154."""

    NONE = "none"
    GPU_RESET = "gpu_reset"
    NODE_REBOOT = "node_reboot"
    DRAIN_P2P = "drain_p2p"
    DRAIN_AND_RESET = "drain_and_reset"
    RECOVER_IMEX_DOMAIN = "recover_imex_domain"
    UNTOLD = "untold"
    """An old driver, which does not know the field."""

    @property
    def nvml(self) -> int:
        """The value of field 230; -1 where the driver does not tell."""
        return -1 if self is RecoveryAction.UNTOLD else list(RecoveryAction).index(self)

    @property
    def kernel_text(self) -> str:
        """Number and words as in the kernel line of Xid 154 (facts: detection, 1e)."""
        return {
            RecoveryAction.NONE: "0x0 (None)",
            RecoveryAction.GPU_RESET: "0x1 (GPU Reset Required)",
            RecoveryAction.NODE_REBOOT: "0x2 (Node Reboot Required)",
            RecoveryAction.DRAIN_P2P: "0x3 (Drain P2P)",
            RecoveryAction.DRAIN_AND_RESET: "0x4 (Drain and Reset)",
            RecoveryAction.RECOVER_IMEX_DOMAIN: "0x5 (Recover IMEX Domain)",
            RecoveryAction.UNTOLD: "0xff (Unknown)",
        }[self]


_DRIVER_PRIORITY = (
    RecoveryAction.NODE_REBOOT,
    RecoveryAction.GPU_RESET,
    RecoveryAction.DRAIN_AND_RESET,
    RecoveryAction.DRAIN_P2P,
    RecoveryAction.RECOVER_IMEX_DOMAIN,
    RecoveryAction.UNTOLD,
    RecoveryAction.NONE,
)
"""Which action the driver tells when several are due (facts: detection, 1e)."""


class GpuTrouble(Described):
    """How a sick GPU behaves; of the defaults, one behaves well."""

    lost: bool = False
    """Off the bus: NVML answers 15 to everything."""
    absent: bool = False
    """Not found by the driver at boot: the count is short."""
    reset_required: bool = False
    """NVML answers 16 to everything but identity and recovery action."""
    nvml_error: int = 0
    """Any other NVML return code for every reading, e.g. 10 (timeout) or 999 (unknown)."""
    hangs: bool = False
    """Every call on this GPU blocks, and so does its reset."""
    recovery_action: RecoveryAction = RecoveryAction.NONE
    remap_pending: bool = False
    remap_failed: bool = False
    spare_rows_gone: bool = False
    """A bank of memory has no spare row left."""
    remapped_rows: int = Field(default=0, ge=0)
    """Rows remapped for uncorrected errors."""
    retired_pages: int = Field(default=0, ge=0)
    """Pages retired for uncorrected errors, on a GPU before Ampere."""
    page_pending: bool = False
    """A page waits for a reset to be retired."""
    uncorrected_errors: int = Field(default=0, ge=0)
    """Volatile uncorrected ECC errors in DRAM; the aggregate count has them too."""
    sram_uncorrected_errors: int = Field(default=0, ge=0)
    corrected_errors: int = Field(default=0, ge=0)
    """Corrected ECC errors in DRAM."""
    old_uncorrected_errors: int = Field(default=0, ge=0)
    """Of earlier days: in the aggregate count alone."""
    sram_threshold_exceeded: bool = False
    clock_reasons: tuple[ClockReason, ...] = ()
    """Why the clocks are low."""
    temperature: int = Field(default=0, ge=0)
    """Degrees Celsius where it is not as usual."""
    memory_temperature: int = Field(default=0, ge=0)
    nvlinks_down: tuple[int, ...] = ()
    nvlink_replays: int = Field(default=0, ge=0)
    nvlink_failed_recoveries: int = Field(default=0, ge=0)
    fabric_pending: bool = False
    """The fabric manager has not admitted this GPU: fabric state stays in progress."""
    fabric_status: int = Field(default=0, ge=0)
    """NVML return code with which the fabric manager ended the registration, e.g. 23 (insufficient resources)."""
    fabric_mask: int = Field(default=0, ge=0)
    """Fields of the health mask that are not as usual."""
    fabric_summary: int = Field(default=0, ge=0, le=3)
    """2 is unhealthy, 3 limited capacity."""
    mig: tuple[str, ...] = ()
    """Profiles of the MIG devices, which no sickness is; MIG is on if there is one."""
    mig_pending: bool = False
    """MIG changes with the next reset."""
    pcie_width: int = Field(default=0, ge=0)
    """PCIe lanes in use where fewer than usual."""
    gsp_off: bool = False
    cuda: CudaTrouble = CudaTrouble()
    """How it fails at work, whatever NVML says of it."""

    @property
    def error(self) -> int:
        """The NVML return code of every reading; 0 is fine."""
        if self.lost:
            return GPU_IS_LOST
        return RESET_REQUIRED if self.reset_required else self.nvml_error

    @property
    def schedulable(self) -> bool:
        """Whether the device plugin offers the GPU to pods."""
        return not (self.error or self.absent or self.hangs or self.remap_failed)


WELL = GpuTrouble()

_ADDED_UP = (
    "uncorrected_errors",
    "sram_uncorrected_errors",
    "corrected_errors",
    "old_uncorrected_errors",
    "remapped_rows",
    "retired_pages",
    "nvlink_replays",
    "nvlink_failed_recoveries",
)


def combine(troubles: Iterable[GpuTrouble]) -> GpuTrouble:
    """How a GPU behaves that has several troubles at once; the order does not matter."""
    found = list(troubles)
    if len(found) < 2:
        return found[0] if found else WELL
    return GpuTrouble.model_validate({name: _fold(name, found) for name in GpuTrouble.model_fields})


def _fold(name: str, troubles: Sequence[GpuTrouble]) -> object:
    """One field of several troubles: all that is listed, anything that is so, errors added up, else the most."""
    values = [getattr(trouble, name) for trouble in troubles]
    match values[0]:
        case RecoveryAction():
            return min(values, key=_DRIVER_PRIORITY.index)
        case CudaTrouble():
            return combine_cuda(values)
        case tuple():
            return tuple(sorted({item for value in values for item in value}))
        case bool():
            return any(values)
        case _:
            return sum(values) if name in _ADDED_UP else max(values)


_BUSES = ("53", "64", "75", "86", "97", "a8", "b9", "ca")


@dataclass(frozen=True)
class GpuIdentity:
    """Who a GPU is. It stays the same over resets and reboots, and is another one in another machine."""

    index: int
    uuid: str
    pci: str
    """Address without function, as in kernel lines: `0000:53:00`."""
    serial: str


def identities(instance_id: str, count: int) -> tuple[GpuIdentity, ...]:
    """The `count` GPUs of one machine."""
    return tuple(
        GpuIdentity(
            index=index,
            uuid=f"GPU-{(made := uuid.uuid5(_IDENTITY_SPACE, f'{instance_id}/{index}'))}",
            pci=f"0000:{_BUSES[index]}:00",
            serial=f"16{made.int % 10**11:011d}",
        )
        for index in range(count)
    )
