"""Turns the printed values of one GPU into the readings that NVML would have given.

Called for each block of `-q` text, of its XML and of csv, whose names for the same value stand side by side here. What
was not printed, or is no value, stays None.
"""

from typing import Final

from sickbay.gpu_readings import EccCounts, GpuAnswer, NvmlAnswer, RemapSpares, RetiredPages
from sickbay.nvidia_smi import cells
from sickbay.nvidia_smi.blocks import Block, Document
from sickbay.nvidia_smi.modes import clock_reasons, fabric, recovery_action

UNNAMED: Final = -1
"""Index of a GPU that a fragment does not name."""

_TELLING: Final = (
    ("product_name", "name", "gpu_name"),
    ("temperature/gpu_current_temp", "temperature/gpu_temp", "temperature_gpu"),
    ("fb_memory_usage/used", "memory_used"),
    ("utilization/gpu", "utilization/gpu_util", "utilization_gpu"),
    ("performance_state", "pstate"),
    ("clocks/graphics", "clocks/graphics_clock", "clocks_current_graphics"),
    (
        "ecc_errors/volatile/dram_uncorrectable",
        "ecc_errors_uncorrected_volatile_total",
        "ecc_errors_uncorrected_volatile_dram",
    ),
)
"""Values that a GPU tells whenever it answers at all; each under its names."""


def answer_of(document: Document) -> NvmlAnswer:
    """All GPUs of an output."""
    return NvmlAnswer(
        count=document.attached,
        driver_version=document.driver_version,
        gpus=tuple(gpu_of(block) for block in document.blocks),
    )


def gpu_of(block: Block) -> GpuAnswer:
    """One GPU."""
    codes = _error_codes(block)
    errors = tuple(sorted(set(codes.values()))) if _silent(block) else _certain(codes)
    pids = tuple(
        pid
        for value in block.under("processes")
        if value.path.endswith("id") and (pid := cells.number(value.text)) is not None
    )
    processes_told = block.has("processes") or bool(pids)
    return GpuAnswer(
        index=UNNAMED if block.index is None else block.index,
        uuid=_word(block, "gpu_uuid", "uuid"),
        pci=_pci(block),
        name=_word(block, "product_name", "name", "gpu_name"),
        serial=_word(block, "serial_number", "serial", "gpu_serial"),
        recovery_action=recovery_action(block),
        ecc_enabled=_truth(block, "ecc_mode/current", "ecc_mode/current_ecc", "ecc_mode_current"),
        ecc_pending=_truth(block, "ecc_mode/pending", "ecc_mode/pending_ecc", "ecc_mode_pending"),
        ecc_volatile=_ecc(block, "volatile"),
        ecc_aggregate=_ecc(block, "aggregate"),
        sram_threshold_exceeded=_truth(
            block,
            "ecc_errors/aggregate/sram_threshold_exceeded",
            "ecc_errors_uncorrected_aggregate_sram_thresholdexceeded",
        ),
        remapped_correctable=_number(
            block, "remapped_rows/correctable_error", "remapped_rows/remapped_row_corr", "remapped_rows_correctable"
        ),
        remapped_uncorrectable=_number(
            block, "remapped_rows/uncorrectable_error", "remapped_rows/remapped_row_unc", "remapped_rows_uncorrectable"
        ),
        remap_pending=_truth(
            block, "remapped_rows/pending", "remapped_rows/remapped_row_pending", "remapped_rows_pending"
        ),
        remap_failed=_truth(
            block,
            "remapped_rows/remapping_failure_occurred",
            "remapped_rows/remapped_row_failure",
            "remapped_rows_failure",
        ),
        remap_spares=_spares(block),
        retired_pages=_pages(block),
        clock_reasons=clock_reasons(block),
        temperature=_number(block, "temperature/gpu_current_temp", "temperature/gpu_temp", "temperature_gpu"),
        slowdown_temperature=_number(block, "temperature/gpu_slowdown_temp", "temperature/gpu_temp_slow_threshold"),
        shutdown_temperature=_number(block, "temperature/gpu_shutdown_temp", "temperature/gpu_temp_max_threshold"),
        margin=_number(block, "temperature/gpu_t_limit_temp", "temperature/gpu_temp_tlimit", "temperature_gpu_tlimit"),
        memory_temperature=_number(
            block, "temperature/memory_current_temp", "temperature/memory_temp", "temperature_memory"
        ),
        memory_temperature_limit=_number(
            block, "temperature/memory_max_operating_temp", "temperature/gpu_temp_max_mem_threshold"
        ),
        fabric=fabric(block),
        gsp_version=_word(block, "gsp_firmware_version"),
        persistence=_truth(block, "persistence_mode"),
        mig_enabled=_truth(block, "mig_mode/current", "mig_mode/current_mig", "mig_mode_current"),
        mig_pending=_truth(block, "mig_mode/pending", "mig_mode/pending_mig", "mig_mode_pending"),
        minor=_number(block, "minor_number"),
        pcie_width=_number(
            block,
            "pci/gpu_link_info/link_width/current",
            "pci/pci_gpu_link_info/link_widths/current_link_width",
            "pcie_link_width_current",
        ),
        pcie_width_max=_number(
            block,
            "pci/gpu_link_info/link_width/max",
            "pci/pci_gpu_link_info/link_widths/max_link_width",
            "pcie_link_width_max",
        ),
        process_count=len(pids) if processes_told else None,
        pids=pids,
        errors=errors,
        unanswered=codes,
    )


def _error_codes(block: Block) -> dict[str, int]:
    """The values that are errors, with NVML's return codes."""
    return {value.path: code for value in block.values if (code := cells.error_in(value.text)) is not None}


def _certain(codes: dict[str, int]) -> tuple[int, ...]:
    """Errors that tell of the whole GPU though they stand in one place."""
    return tuple(sorted({code for code in codes.values() if code in (cells.LOST, cells.RESET_REQUIRED)}))


def _silent(block: Block) -> bool:
    """Whether most of what a GPU always tells is an error; one bad cell is a sensor's trouble."""
    told = [block.text(*paths) for paths in _TELLING if block.has(*paths)]
    bad = [text for text in told if cells.error_in(text) is not None]
    return len(bad) > 1 and 2 * len(bad) >= len(told)


def _pci(block: Block) -> str:
    printed = block.pci or block.text("pci/bus_id", "pci/pci_bus_id", "pci_bus_id", "gpu_bus_id")
    return f"{place}.0" if (place := cells.address(printed)) else ""


def _word(block: Block, *paths: str) -> str:
    text = block.text(*paths).strip()
    return "" if cells.is_no_data(text) or cells.error_in(text) is not None else text


def _number(block: Block, *paths: str) -> int | None:
    return cells.number(block.text(*paths))


def _truth(block: Block, *paths: str) -> bool | None:
    return cells.truth(block.text(*paths))


def _ecc(block: Block, span: str) -> EccCounts:
    """Errors since the driver was loaded (`volatile`) or in the GPU's life (`aggregate`)."""
    section = f"ecc_errors/{span}"
    sram = [
        count
        for name in ("sram_uncorrectable_parity", "sram_uncorrectable_sec_ded", "sram_uncorrectable_secded")
        if (count := _number(block, f"{section}/{name}")) is not None
    ]
    in_one = _number(block, f"{section}/sram_uncorrectable", f"ecc_errors_uncorrected_{span}_sram")
    return EccCounts(
        corrected=_number(block, f"{section}/single_bit/total", f"ecc_errors_corrected_{span}_total"),
        uncorrected=_number(block, f"{section}/double_bit/total", f"ecc_errors_uncorrected_{span}_total"),
        dram_corrected=_number(block, f"{section}/dram_correctable", f"ecc_errors_corrected_{span}_dram"),
        dram_uncorrected=_number(block, f"{section}/dram_uncorrectable", f"ecc_errors_uncorrected_{span}_dram"),
        sram_corrected=_number(block, f"{section}/sram_correctable", f"ecc_errors_corrected_{span}_sram"),
        sram_uncorrected=in_one if in_one is not None else (sum(sram) if sram else None),
    )


def _spares(block: Block) -> RemapSpares | None:
    names = ("max", "high", "partial", "low", "none")
    counts = [
        _number(
            block,
            f"remapped_rows/bank_remap_availability_histogram/{name}",
            f"remapped_rows/row_remapper_histogram/row_remapper_histogram_{name}",
            f"remapped_rows_histogram_{name}",
        )
        for name in names
    ]
    told = [count for count in counts if count is not None]
    if len(told) < len(names):
        return None
    most, high, partial, low, none = told
    return RemapSpares(most=most, high=high, partial=partial, low=low, none=none)


def _pages(block: Block) -> RetiredPages:
    return RetiredPages(
        single_bit=_number(
            block,
            "retired_pages/single_bit_ecc",
            "retired_pages/multiple_single_bit_retirement/retired_count",
            "retired_pages_single_bit_ecc_count",
        ),
        double_bit=_number(
            block,
            "retired_pages/double_bit_ecc",
            "retired_pages/double_bit_retirement/retired_count",
            "retired_pages_double_bit_count",
        ),
        pending=_truth(
            block,
            "retired_pages/pending_page_blacklist",
            "retired_pages/pending",
            "retired_pages/pending_blacklist",
            "retired_pages/pending_retirement",
            "retired_pages_pending",
        ),
    )
