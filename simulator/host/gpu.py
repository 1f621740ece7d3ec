"""A simulated GPU: who it is, what ails it, and how it therefore answers.

Pure. A machine folds the troubles of its open faults into one `GpuTrouble` per GPU and writes the result where the
simulated NVML reads it (`gpu_state`). A trouble says how a GPU behaves, never what cures it: that is the fault's.
"""

import uuid
from collections.abc import Iterable
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
    uncorrected_errors: int = Field(default=0, ge=0)
    """Volatile uncorrected ECC errors."""
    nvlinks_down: tuple[int, ...] = ()
    fabric_pending: bool = False
    """The fabric manager has not admitted this GPU: fabric state stays in progress."""
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


def combine(troubles: Iterable[GpuTrouble]) -> GpuTrouble:
    """How a GPU behaves that has several troubles at once; the order does not matter."""
    found = list(troubles)
    if len(found) < 2:
        return found[0] if found else WELL
    return GpuTrouble(
        lost=any(trouble.lost for trouble in found),
        absent=any(trouble.absent for trouble in found),
        reset_required=any(trouble.reset_required for trouble in found),
        nvml_error=max(trouble.nvml_error for trouble in found),
        hangs=any(trouble.hangs for trouble in found),
        recovery_action=min((trouble.recovery_action for trouble in found), key=_DRIVER_PRIORITY.index),
        remap_pending=any(trouble.remap_pending for trouble in found),
        remap_failed=any(trouble.remap_failed for trouble in found),
        uncorrected_errors=sum(trouble.uncorrected_errors for trouble in found),
        nvlinks_down=tuple(sorted({link for trouble in found for link in trouble.nvlinks_down})),
        fabric_pending=any(trouble.fabric_pending for trouble in found),
        cuda=combine_cuda(trouble.cuda for trouble in found),
    )


@dataclass(frozen=True)
class GpuModel:
    """What the GPUs of one instance type are."""

    name: str
    memory_bytes: int
    nvlinks: int
    pci_device_id: str


GIB = 1 << 30

GPU_MODELS = {
    "p5.48xlarge": GpuModel("NVIDIA H100 80GB HBM3", 80 * GIB, 18, "10de:2330"),
    "p4d.24xlarge": GpuModel("NVIDIA A100-SXM4-40GB", 40 * GIB, 12, "10de:20b0"),
    "g5.xlarge": GpuModel("NVIDIA A10G", 24 * GIB, 0, "10de:2237"),
}
"""By EC2 instance type; how many a machine has is in `simulator.instance_types`."""

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
