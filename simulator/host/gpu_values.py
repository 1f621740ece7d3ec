"""What a simulated GPU tells NVML: the numbers of its model, as its troubles have changed them.

Used by `simulator.host.gpu_state`. A number that the model cannot tell is left out, which the simulated NVML answers
with "not supported".
"""

from functools import reduce
from operator import or_

from simulator.host.gpu import ClockReason, GpuTrouble
from simulator.host.gpu_models import Fabric, GpuModel

USUAL_TEMPERATURE = 34
SLOWDOWN_TEMPERATURE, SHUTDOWN_TEMPERATURE, MEMORY_LIMIT = 87, 92, 95
BANKS = 640
"""Banks of memory that have spare rows."""

_EVENT_TYPES = 0x8 | 0x2 | 0x1
"""Xids, and ECC errors of two bits and of one."""
_EVENT_TYPES_SINCE = {550: 0x4000, 570: 0x8000}
"""What later drivers added: a GPU that became unavailable, and recovery actions."""
_IN_PROGRESS, _COMPLETED = 2, 3
_NO_STATE = 0
_FINE_MASK = 0b10101010 | 1 << 8
"""Each flag explicitly not so, and no error of the configuration."""
_FINE = 1
_CLUSTER = "5b1a" * 8


def values(model: GpuModel, trouble: GpuTrouble, driver: int) -> dict[str, int | str]:
    """By the names that the native library knows; `driver` is the first number of the driver's version."""
    return {
        **_memory(model, trouble),
        **_heat(model, trouble),
        **_links(model, trouble),
        **_fabric(model, trouble),
        "clock_reasons": reduce(or_, (reason.nvml for reason in trouble.clock_reasons), 0) or ClockReason.IDLE.nvml,
        "persistence": 1,
        "pcie_width": trouble.pcie_width or model.pcie_width,
        "pcie_width_max": 16,
        "pcie_generation": 1,
        "pcie_generation_max": model.pcie_generation,
        "pcie_replays": 0,
        "event_types": sum(types for since, types in _EVENT_TYPES_SINCE.items() if driver >= since) | _EVENT_TYPES,
        **({"gsp": int(not trouble.gsp_off)} if model.remaps_rows else {}),
        **_mig(model, trouble),
    }


def _memory(model: GpuModel, trouble: GpuTrouble) -> dict[str, int]:
    bad, corrected = trouble.uncorrected_errors, trouble.corrected_errors
    old, sram = trouble.old_uncorrected_errors, trouble.sram_uncorrected_errors
    totals = {
        "ecc": 1,
        "ecc_pending": 1,
        "volatile_corrected": corrected,
        "volatile_uncorrected": bad + sram,
        "aggregate_corrected": corrected,
        "aggregate_uncorrected": bad + sram + old,
    }
    if not model.remaps_rows:
        pages = {"retired_single": 0, "retired_double": trouble.retired_pages}
        return totals | pages | {"retired_pending": int(trouble.page_pending)}
    return totals | {
        "volatile_dram_corrected": corrected,
        "volatile_dram_uncorrected": bad,
        "volatile_sram_corrected": 0,
        "volatile_sram_uncorrected": sram,
        "aggregate_dram_corrected": corrected,
        "aggregate_dram_uncorrected": bad + old,
        "aggregate_sram_corrected": 0,
        "aggregate_sram_uncorrected": sram,
        "sram_threshold": int(trouble.sram_threshold_exceeded),
        "remapped_rows": trouble.remapped_rows + (trouble.remap_pending or trouble.remap_failed),
        "banks": BANKS,
        "banks_spent": int(trouble.spare_rows_gone),
    }


def _heat(model: GpuModel, trouble: GpuTrouble) -> dict[str, int]:
    degrees = trouble.temperature or USUAL_TEMPERATURE
    usual = {
        "temperature": degrees,
        "slowdown_temperature": SLOWDOWN_TEMPERATURE,
        "shutdown_temperature": SHUTDOWN_TEMPERATURE,
        "margin": max(SLOWDOWN_TEMPERATURE - degrees, 0),
    }
    if not model.stacked_memory:
        return usual
    memory = {"memory_temperature": trouble.memory_temperature or USUAL_TEMPERATURE}
    return usual | memory | {"memory_temperature_limit": MEMORY_LIMIT}


def _links(model: GpuModel, trouble: GpuTrouble) -> dict[str, int]:
    if not model.nvlinks:
        return {}
    if model.nvlink5:
        failed = trouble.nvlink_failed_recoveries
        return {"link_failed_recoveries": failed, "link_effective_errors": 0, "link_effective_ber": 1 << 8 | 255}
    return {"link_replays": trouble.nvlink_replays, "link_recoveries": 0, "link_crc": 0}


def _fabric(model: GpuModel, trouble: GpuTrouble) -> dict[str, int | str]:
    if model.fabric is Fabric.NONE:
        return {"fabric_state": _NO_STATE}
    if trouble.fabric_pending:
        return {"fabric_state": _IN_PROGRESS}
    told: dict[str, int | str] = {"fabric_state": _COMPLETED, "fabric_status": trouble.fabric_status}
    if model.fabric is Fabric.BOARD:
        # Hopper tells neither summary nor cluster, and a mask of which nothing is supported.
        return told | {"fabric_mask": trouble.fabric_mask, "fabric_summary": trouble.fabric_summary}
    told |= {"fabric_mask": trouble.fabric_mask or _FINE_MASK, "fabric_summary": trouble.fabric_summary or _FINE}
    return told if trouble.fabric_status else told | {"fabric_clique": 1, "cluster_uuid": _CLUSTER}


def _mig(model: GpuModel, trouble: GpuTrouble) -> dict[str, int]:
    if not (model.remaps_rows and model.stacked_memory):
        return {}
    on = bool(trouble.mig)
    return {"mig_mode": int(on), "mig_mode_pending": int(on is not trouble.mig_pending)}
