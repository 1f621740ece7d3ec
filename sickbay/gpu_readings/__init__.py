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
from sickbay.gpu_readings.judgement import (
    RECOVERY_ACTIONS,
    UNKNOWN_ACTION,
    Expectation,
    gpu_faults,
    known_gpus,
    passes_after_reset,
    readings,
    unknown_checks,
)

__all__ = [
    "RECOVERY_ACTIONS",
    "UNKNOWN_ACTION",
    "ClockReason",
    "EccCounts",
    "Expectation",
    "FabricAnswer",
    "GpuAnswer",
    "KnownGpu",
    "LinkAnswer",
    "NvmlAnswer",
    "RemapSpares",
    "RetiredPages",
    "gpu_faults",
    "known_gpus",
    "passes_after_reset",
    "readings",
    "unknown_checks",
]
