"""What NVML told of the GPUs of one machine in one pass: readings as they came, judged by nobody yet.

Filled by `health.nvml` from its child, and by the readers of recorded `nvidia-smi` outputs. None means that the reading
could not be had: on an old driver, on a product without the part, or since the GPU refused. It is never zero and never
health; `unanswered` tells which questions failed, and how. Numbers are NVML's own (nvml.h).
"""

from collections.abc import Mapping
from enum import IntFlag
from typing import Final

from sickbay.model import Frozen

NOT_SUPPORTED: Final = 3
NO_PERMISSION: Final = 4
NOT_FOUND: Final = 6
DRIVER_NOT_LOADED: Final = 9
LIBRARY_NOT_FOUND: Final = 12
FUNCTION_NOT_FOUND: Final = 13
CORRUPTED_INFOROM: Final = 14
LOST: Final = 15
RESET_REQUIRED: Final = 16
VERSION_MISMATCH: Final = 18


def short_address(pci: str) -> str:
    """A PCI address as everywhere in Sickbay, `0000:61:00`, of NVML's `00000000:61:00.0`; empty if it is none."""
    if pci.count(":") != 2:
        return ""
    domain, bus, device = pci.lower().split(":")
    return f"{domain[-4:]}:{bus}:{device.split('.')[0]}"


class ClockReason(IntFlag):
    """Why a GPU's clocks are below the most it could do (bits of nvmlDeviceGetCurrentClocksEventReasons)."""

    IDLE = 0x1
    APPLICATION_SETTING = 0x2
    SOFTWARE_POWER_CAP = 0x4
    HARDWARE_SLOWDOWN = 0x8
    SYNC_BOOST = 0x10
    SOFTWARE_THERMAL = 0x20
    HARDWARE_THERMAL = 0x40
    POWER_BRAKE = 0x80
    DISPLAY_SETTING = 0x100


class EccCounts(Frozen):
    """Memory errors, by what ECC could do about them; on products of one count for all memories only the totals."""

    corrected: int | None = None
    uncorrected: int | None = None
    dram_corrected: int | None = None
    dram_uncorrected: int | None = None
    sram_corrected: int | None = None
    sram_uncorrected: int | None = None


class RetiredPages(Frozen):
    """Pages of memory out of use, on GPUs before Ampere."""

    single_bit: int | None = None
    """Pages retired for repeated corrected errors."""
    double_bit: int | None = None
    """Pages retired for an uncorrected error."""
    pending: bool | None = None
    """A page waits for a reset to be retired."""


class RemapSpares(Frozen):
    """Banks of memory by how many spare rows are left to each, most to none."""

    most: int
    high: int
    partial: int
    low: int
    none: int


class LinkAnswer(Frozen):
    """One NVLink of a GPU. Counters run since the driver was loaded or the GPU was reset."""

    index: int
    active: bool | None = None
    replays: int | None = None
    recoveries: int | None = None
    crc_flit: int | None = None
    crc_data: int | None = None
    failed_recoveries: int | None = None
    """Of NVLink 5: how often the link could not be brought back."""
    effective_errors: int | None = None
    """Of NVLink 5: errors left after its error correction."""
    effective_ber: float | None = None
    """Of NVLink 5: their share of all bits."""


class FabricAnswer(Frozen):
    """How a GPU stands with the fabric manager (nvmlGpuFabricInfoV_t)."""

    state: int | None = None
    """0 not supported, 1 not started, 2 in progress, 3 completed."""
    status: int | None = None
    """NVML return code of the registration; counts once the state is completed."""
    cluster_uuid: str = ""
    """32 or 36 hexadecimal characters; all zero before the registration."""
    clique: int | None = None
    health_mask: int | None = None
    health_summary: int | None = None
    """0 not supported (as on H100), 1 healthy, 2 unhealthy, 3 limited capacity."""


class KnownGpu(Frozen):
    """A GPU that answered earlier in this boot, so that it can be named when it no longer does."""

    index: int
    uuid: str
    pci: str


class GpuAnswer(Frozen):
    """What one GPU answered; None where it could not be asked."""

    index: int
    uuid: str = ""
    pci: str = ""
    name: str = ""
    """Product, e.g. `NVIDIA H100 80GB HBM3`."""
    serial: str = ""
    recovery_action: int | None = None
    """Field 230, the driver's own verdict."""

    ecc_enabled: bool | None = None
    ecc_pending: bool | None = None
    """Whether ECC will be on after the next reboot."""
    ecc_volatile: EccCounts = EccCounts()
    """Since the driver was loaded or the GPU was reset."""
    ecc_aggregate: EccCounts = EccCounts()
    """In the GPU's whole life."""
    sram_threshold_exceeded: bool | None = None
    """The GPU's own count of SRAM errors says that it should be exchanged."""

    remapped_correctable: int | None = None
    """Rows remapped for corrected errors, in the GPU's whole life."""
    remapped_uncorrectable: int | None = None
    remap_pending: bool | None = None
    remap_failed: bool | None = None
    remap_spares: RemapSpares | None = None
    retired_pages: RetiredPages = RetiredPages()

    clock_reasons: int | None = None
    """Bits of `ClockReason`; may hold bits that are not known here."""
    temperature: int | None = None
    """Degrees Celsius, as all temperatures here."""
    slowdown_temperature: int | None = None
    """At which the hardware slows the clocks."""
    shutdown_temperature: int | None = None
    """At which the GPU switches itself off."""
    margin: int | None = None
    """Degrees left until it slows down; 0 and less is not trustworthy everywhere."""
    memory_temperature: int | None = None
    memory_temperature_limit: int | None = None

    links: tuple[LinkAnswer, ...] | None = None
    """NVLinks that the GPU tells of; empty if it has none, None if it was not asked or did not answer."""
    fabric: FabricAnswer | None = None

    gsp_enabled: bool | None = None
    gsp_version: str = ""
    persistence: bool | None = None
    mig_enabled: bool | None = None
    mig_pending: bool | None = None
    """Whether MIG will be on after the next reset."""
    mig_instances: tuple[str, ...] | None = None
    """Names of the MIG devices with their profiles, e.g. `NVIDIA H100 80GB HBM3 MIG 1g.10gb`."""
    mig_uuids: tuple[str, ...] | None = None
    """UUIDs of the MIG devices, e.g. `MIG-7f6a...`, by which work is put on one."""
    minor: int | None = None
    """Number of the GPU's device file, by which DRA names it; not its index."""

    pcie_width: int | None = None
    """Lanes in use."""
    pcie_width_max: int | None = None
    """Lanes that GPU and slot could use."""
    pcie_generation: int | None = None
    """Drops while the GPU is idle."""
    pcie_generation_max: int | None = None
    pcie_replays: int | None = None
    """Packets sent again, since the GPU was reset."""

    process_count: int | None = None
    pids: tuple[int, ...] = ()
    """Processes that compute on it, as numbered where the driver was asked."""
    errors: tuple[int, ...] = ()
    """NVML's return codes of the questions that failed."""
    unanswered: Mapping[str, int] = {}
    """The questions that failed, by name, with their return codes."""

    @property
    def address(self) -> str:
        """PCI address as everywhere in Sickbay, `0000:61:00`; empty if unknown."""
        return short_address(self.pci)


class NvmlAnswer(Frozen):
    """What NVML answered in one pass."""

    count: int | None = None
    """GPUs that the driver counts; None if it did not get that far."""
    driver_version: str = ""
    failed: int | None = None
    """Return code if NVML as a whole refused."""
    gpus: tuple[GpuAnswer, ...] = ()
    silent: str = ""
    """Why the pass has no end, in words (no answer in time, crashed); empty if it was whole."""

    @property
    def whole(self) -> bool:
        """NVML answered to the end, well or ill."""
        return not self.silent and self.failed is None

    @property
    def starting(self) -> bool:
        """The driver is not there, as it is for minutes after a boot (facts: detection, 7)."""
        return self.failed in (DRIVER_NOT_LOADED, LIBRARY_NOT_FOUND)
