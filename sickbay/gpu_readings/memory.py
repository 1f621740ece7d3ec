"""What a GPU's memory says of itself: ECC errors, remapped rows, retired pages.

Called by `judgement`. An error in the past is history; what counts is what happened since the driver was loaded
(volatile counts), what waits for a reset, and whether spare memory is left. Limits are DCGM's and those of NVIDIA's
field rules (facts: detection, 2).
"""

from collections.abc import Iterator
from typing import Final

from sickbay.faults import Fault
from sickbay.gpu_readings.answer import GpuAnswer
from sickbay.gpu_readings.expectation import Expectation, gpu_fault
from sickbay.gpu_readings.products import product_of

MOST_REMAPPED_ROWS: Final = 512
"""Rows remapped for uncorrected errors: as many as a GPU has spares for."""
MOST_RETIRED_PAGES: Final = 63
"""Retired pages, of both kinds together: as many as the GPU's own memory of them holds."""
MANY_DRAM_CORRECTED: Final = 20_000_000
"""Corrected errors since the driver was loaded that are worth telling (Azure's node health checks)."""
MANY_SRAM_CORRECTED: Final = 10_000


def memory_faults(gpu: GpuAnswer, pci: str, expected: Expectation) -> Iterator[Fault]:
    """The faults that one GPU's memory shows in one look."""
    yield from _ecc(gpu, pci, expected)
    yield from _rows(gpu, pci, expected)
    yield from _pages(gpu, pci, expected)


def memory_is_told(gpu: GpuAnswer) -> bool:
    """Whether the GPU told of its memory what a GPU of its kind can tell, so that silence is not taken for health.

    In MIG mode no GPU tells of its rows. Whether ECC is on is told by every product that has it.
    """
    product = product_of(gpu.name)
    rows = bool(gpu.mig_enabled) or (gpu.remap_pending is not None and gpu.remap_failed is not None)
    without_ecc = gpu.ecc_enabled is False or product.ecc is False or (gpu.ecc_enabled is None and not product.ecc)
    return (rows or not product.remaps_rows) and (uncorrected(gpu) is not None or without_ecc)


def uncorrected(gpu: GpuAnswer) -> int | None:
    """Uncorrected errors since the driver was loaded, by the largest count told; None if none was."""
    counts = gpu.ecc_volatile
    parts = [count for count in (counts.dram_uncorrected, counts.sram_uncorrected) if count is not None]
    told = [count for count in (counts.uncorrected, sum(parts) if parts else None) if count is not None]
    return max(told, default=None)


def _ecc(gpu: GpuAnswer, pci: str, expected: Expectation) -> Iterator[Fault]:
    counts, life = gpu.ecc_volatile, gpu.ecc_aggregate
    bad = uncorrected(gpu)
    if bad:
        parts = (("DRAM", counts.dram_uncorrected), ("SRAM", counts.sram_uncorrected))
        where = ", ".join(f"{count} in {memory}" for memory, count in parts if count)
        words = f"{bad} uncorrected memory errors since the driver was loaded" + (f" ({where})" if where else "")
        yield gpu_fault("ecc-uncorrected", pci, expected, f"GPU {gpu.index}: {words}")
    if gpu.sram_threshold_exceeded:
        seen = "" if life.sram_uncorrected is None else f", {life.sram_uncorrected} in its life"
        words = f"GPU {gpu.index}: SRAM errors above the GPU's own limit{seen}"
        yield gpu_fault("ecc-sram-threshold", pci, expected, words)
    many = (
        ("DRAM", counts.dram_corrected or 0, MANY_DRAM_CORRECTED),
        ("SRAM", counts.sram_corrected or 0, MANY_SRAM_CORRECTED),
        ("memory", counts.corrected or 0, MANY_DRAM_CORRECTED),
    )
    for memory, count, limit in many:
        if count > limit:
            words = f"GPU {gpu.index}: {count} corrected {memory} errors since the driver was loaded"
            yield gpu_fault("ecc-corrected-many", pci, expected, words)
            break


def _rows(gpu: GpuAnswer, pci: str, expected: Expectation) -> Iterator[Fault]:
    rows = gpu.remapped_uncorrectable
    if gpu.remap_failed:
        yield gpu_fault("row-remap-failed", pci, expected, f"NVML: row remapping of GPU {gpu.index} failed")
    if gpu.remap_pending:
        words = f"NVML: row remapping of GPU {gpu.index} waits for a reset"
        yield gpu_fault("row-remap-pending", pci, expected, words)
    if rows is not None and rows >= MOST_REMAPPED_ROWS:
        words = f"GPU {gpu.index}: {rows} rows remapped for uncorrected errors, of {MOST_REMAPPED_ROWS}"
        yield gpu_fault("row-remap-exhausted", pci, expected, words)
    if gpu.remap_spares is not None and gpu.remap_spares.none:
        words = f"GPU {gpu.index}: {gpu.remap_spares.none} banks of memory have no spare row left"
        yield gpu_fault("row-remap-spares-low", pci, expected, words)


def _pages(gpu: GpuAnswer, pci: str, expected: Expectation) -> Iterator[Fault]:
    pages = gpu.retired_pages
    retired = (pages.single_bit or 0) + (pages.double_bit or 0)
    if retired >= MOST_RETIRED_PAGES:
        words = f"GPU {gpu.index}: {retired} retired pages of memory, of {MOST_RETIRED_PAGES}"
        yield gpu_fault("page-retirement-exhausted", pci, expected, words)
    if pages.pending:
        words = f"GPU {gpu.index}: a page of memory waits for a reset to be retired ({retired} are)"
        yield gpu_fault("page-retirement-pending", pci, expected, words)
