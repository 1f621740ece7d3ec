"""The GPUs that simulated machines have: one model for each instance type of `simulator.instance_types`.

Used by the machine for its driver's state file, by its files in /sys and by its kernel log. Figures are those of
NVIDIA's data sheets; what a model cannot tell through NVML, its readings lack.
"""

from dataclasses import dataclass
from enum import StrEnum

GIB = 1 << 30


class Fabric(StrEnum):
    """What a GPU registers with before its NVLinks carry anything."""

    NONE = "none"
    BOARD = "board"
    """The fabric manager of its machine, which gives no cluster."""
    RACK = "rack"
    """The fabric manager of several machines, which gives a cluster and a clique."""


@dataclass(frozen=True)
class GpuModel:
    """What the GPUs of one instance type are."""

    name: str
    memory_bytes: int
    nvlinks: int
    pci_device_id: str
    fabric: Fabric = Fabric.NONE
    """Only from Hopper on is there anything to tell of it."""
    bridged: bool = False
    """Its NVLinks need a bridge, and there is none: all are down."""
    remaps_rows: bool = True
    """Else it retires pages, and tells its memories' errors in one sum."""
    stacked_memory: bool = True
    """HBM, which has a temperature of its own."""
    nvlink5: bool = False
    """Its links count other errors than older ones."""
    pcie_width: int = 16
    pcie_generation: int = 5


GPU_MODELS = {
    "p6e-gb200.36xlarge": GpuModel("NVIDIA GB200", 186 * GIB, 18, "10de:2941", Fabric.RACK, nvlink5=True),
    "p6-b200.48xlarge": GpuModel("NVIDIA B200", 180 * GIB, 18, "10de:2901", Fabric.BOARD, nvlink5=True),
    "p5en.48xlarge": GpuModel("NVIDIA H200", 141 * GIB, 18, "10de:2335", Fabric.BOARD),
    "p5e.48xlarge": GpuModel("NVIDIA H200", 141 * GIB, 18, "10de:2335", Fabric.BOARD),
    "p5.48xlarge": GpuModel("NVIDIA H100 80GB HBM3", 80 * GIB, 18, "10de:2330", Fabric.BOARD),
    "p4d.24xlarge": GpuModel("NVIDIA A100-SXM4-40GB", 40 * GIB, 12, "10de:20b0", pcie_generation=4),
    "own.a100-pcie": GpuModel("NVIDIA A100 80GB PCIe", 80 * GIB, 12, "10de:20b5", bridged=True, pcie_generation=4),
    "p3dn.24xlarge": GpuModel("Tesla V100-SXM2-32GB", 32 * GIB, 6, "10de:1db5", remaps_rows=False, pcie_generation=3),
    "g5.xlarge": GpuModel(
        "NVIDIA A10G", 24 * GIB, 0, "10de:2237", stacked_memory=False, pcie_width=8, pcie_generation=4
    ),
}
"""By instance type; how many a machine has is in `simulator.instance_types`."""
