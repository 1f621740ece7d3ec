from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sickbay.catalogue import lookup
from sickbay.faults import FaultClass, Rung
from sickbay.gpu_readings import EccCounts, RemapSpares, RetiredPages, told_besides, unjudged
from tests.sickbay.gpu_readings.answers import A10G, H100, V100, after, gpu, machine, pci, told

COUNTS = st.none() | st.integers(0, 10**12)


@pytest.mark.parametrize(
    ("reading", "code"),
    [
        ({"ecc_volatile": EccCounts(uncorrected=1)}, "ecc-uncorrected"),
        ({"ecc_volatile": EccCounts(dram_uncorrected=5)}, "ecc-uncorrected"),
        ({"ecc_volatile": EccCounts(uncorrected=0, sram_uncorrected=1)}, "ecc-uncorrected"),
        ({"sram_threshold_exceeded": True}, "ecc-sram-threshold"),
        ({"ecc_volatile": EccCounts(uncorrected=0, dram_corrected=20_000_001)}, "ecc-corrected-many"),
        ({"ecc_volatile": EccCounts(uncorrected=0, sram_corrected=10_001)}, "ecc-corrected-many"),
        ({"remap_pending": True}, "row-remap-pending"),
        ({"remap_failed": True}, "row-remap-failed"),
        ({"remapped_uncorrectable": 512}, "row-remap-exhausted"),
        ({"remap_spares": RemapSpares(most=639, high=0, partial=0, low=0, none=1)}, "row-remap-spares-low"),
    ],
)
def test_what_memory_tells_is_a_fault_of_its_gpu(reading: dict[str, Any], code: str) -> None:
    assert told(machine(gpu(0), gpu(1, **reading))) == [(code, pci(1))]


@pytest.mark.parametrize(
    "reading",
    [
        {"ecc_aggregate": EccCounts(uncorrected=9, corrected=10**6)},
        {"remapped_correctable": 60, "remapped_uncorrectable": 511},
        {"ecc_volatile": EccCounts(uncorrected=0, corrected=17_000)},
        {"remap_spares": RemapSpares(most=600, high=39, partial=0, low=1, none=0)},
    ],
)
def test_history_and_errors_that_were_corrected_are_no_faults(reading: dict[str, Any]) -> None:
    assert told(machine(gpu(0, **reading))) == []


@pytest.mark.parametrize(
    ("single", "double", "pending", "codes"),
    [
        (60, 2, False, []),
        (2, 61, False, ["page-retirement-exhausted"]),
        (63, None, False, ["page-retirement-exhausted"]),
        (6, 0, True, ["page-retirement-pending"]),
        (20, 45, True, ["page-retirement-exhausted", "page-retirement-pending"]),
        (None, None, None, []),
    ],
)
def test_before_ampere_the_sum_of_retired_pages_counts(
    single: int | None, double: int | None, pending: bool | None, codes: list[str]
) -> None:
    """detection 8.20"""
    pages = RetiredPages(single_bit=single, double_bit=double, pending=pending)
    sick = gpu(0, V100, retired_pages=pages, remap_pending=None, remap_failed=None)
    assert [code for code, _ in told(machine(sick))] == codes


def test_a_gpu_before_ampere_that_tells_no_rows_is_well() -> None:
    """detection 8.11: a blank of a product that remaps no rows is no failure."""
    old = machine(gpu(0, V100, remap_pending=None, remap_failed=None))
    assert told(old) == []
    assert unjudged(old) == ()


@pytest.mark.parametrize("missing", [{"remap_pending": None}, {"ecc_volatile": EccCounts()}])
def test_a_gpu_that_does_not_tell_what_its_kind_tells_is_not_called_well(missing: dict[str, Any]) -> None:
    answer = machine(gpu(0), gpu(1, **missing))
    assert told(answer) == []
    assert unjudged(answer) == (f"GPU {pci(1)} does not tell how its memory is",)


def test_a_gpu_whose_ecc_is_off_tells_no_errors_and_is_told_of() -> None:
    answer = machine(gpu(0, A10G, ecc_enabled=False, ecc_pending=False, ecc_volatile=EccCounts()))
    assert (told(answer), unjudged(answer)) == ([], ())
    assert told_besides(answer) == "ECC off"


def test_errors_of_a_whole_life_count_by_their_growth_where_no_others_are_told() -> None:
    before = machine(gpu(0, ecc_volatile=EccCounts(), ecc_aggregate=EccCounts(uncorrected=7)))
    grown = machine(gpu(0, ecc_volatile=EccCounts(), ecc_aggregate=EccCounts(uncorrected=8)))
    assert told(before, after(before, before)) == []
    assert told(grown, after(before, grown)) == [("ecc-uncorrected", pci(0))]


def test_the_rungs_are_the_gentlest_that_cure() -> None:
    rungs = {code: lookup(code).rung for code in ("ecc-uncorrected", "row-remap-pending", "page-retirement-pending")}
    assert set(rungs.values()) == {Rung.RESET_GPU}
    assert {lookup(code).rung for code in ("row-remap-exhausted", "ecc-sram-threshold")} == {Rung.REPLACE}
    assert lookup("ecc-corrected-many").fault_class is FaultClass.WATCH


@given(COUNTS, COUNTS, COUNTS, COUNTS, st.sampled_from([H100, A10G, V100, "something new"]))
def test_no_count_makes_the_rules_fail(
    total: int | None, dram: int | None, sram: int | None, rows: int | None, name: str
) -> None:
    counts = EccCounts(uncorrected=total, dram_uncorrected=dram, sram_uncorrected=sram, corrected=total)
    answer = machine(gpu(0, name, ecc_volatile=counts, remapped_uncorrectable=rows))
    bad = any((total, dram, sram))
    assert (("ecc-uncorrected", pci(0)) in told(answer)) is bad


@pytest.mark.parametrize(
    ("name", "reading", "well"),
    [
        (H100, {"ecc_enabled": None, "ecc_volatile": EccCounts()}, False),
        (V100, {"ecc_enabled": None, "ecc_volatile": EccCounts()}, False),
        (H100, {"ecc_enabled": False, "ecc_volatile": EccCounts()}, True),
        ("NVIDIA GB10", {"ecc_enabled": None, "ecc_volatile": EccCounts(), "remap_pending": None}, True),
        ("NVIDIA L4-3Q", {"ecc_enabled": None, "ecc_volatile": EccCounts(), "remap_pending": None}, True),
        ("NVIDIA L4", {"ecc_enabled": None, "ecc_volatile": EccCounts(), "remap_pending": None}, False),
    ],
)
def test_a_product_that_tells_of_its_memory_must_and_a_share_of_it_cannot(
    name: str, reading: dict[str, Any], well: bool
) -> None:
    """A guest with a virtual GPU is told nothing of its memory; detection 8.11: silence of a GPU is no health."""
    assert (unjudged(machine(gpu(0, name, **reading))) == ()) is well
