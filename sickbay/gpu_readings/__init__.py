"""What NVML's answers are, and what they mean: faults, unknowns, and whether a GPU that was reset is well again."""

from sickbay.gpu_readings.answer import (
    ClockReason,
    EccCounts,
    FabricAnswer,
    GpuAnswer,
    KnownGpu,
    LinkAnswer,
    NvmlAnswer,
    RemapSpares,
    RetiredPages,
)
from sickbay.gpu_readings.clocks import clock_faults
from sickbay.gpu_readings.expectation import Expectation
from sickbay.gpu_readings.history import GpuHistory, known_gpus, remember
from sickbay.gpu_readings.judgement import (
    RECOVERY_ACTIONS,
    UNKNOWN_ACTION,
    gpu_faults,
    passes_after_reset,
    readings,
)
from sickbay.gpu_readings.products import Product, Topology, product_of
from sickbay.gpu_readings.second_looks import Doubt, certain
from sickbay.gpu_readings.unjudged import told_besides, under_way, unjudged, unknown_checks

__all__ = [
    "RECOVERY_ACTIONS",
    "UNKNOWN_ACTION",
    "ClockReason",
    "Doubt",
    "EccCounts",
    "Expectation",
    "FabricAnswer",
    "GpuAnswer",
    "GpuHistory",
    "KnownGpu",
    "LinkAnswer",
    "NvmlAnswer",
    "Product",
    "RemapSpares",
    "RetiredPages",
    "Topology",
    "certain",
    "clock_faults",
    "gpu_faults",
    "known_gpus",
    "passes_after_reset",
    "product_of",
    "readings",
    "remember",
    "told_besides",
    "under_way",
    "unjudged",
    "unknown_checks",
]
