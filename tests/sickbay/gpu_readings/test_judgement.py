from datetime import UTC, datetime
from typing import Any

import pytest

from sickbay.faults import Fault, FaultClass, Rung
from sickbay.gpu_readings import (
    Expectation,
    FabricAnswer,
    GpuAnswer,
    KnownGpu,
    NvmlAnswer,
    gpu_faults,
    known_gpus,
    passes_after_reset,
    readings,
    unjudged,
    unknown_checks,
)

NOW = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)
PCIS = ("0000:53:00", "0000:64:00", "0000:75:00")
KNOWN = tuple(KnownGpu(index=index, uuid=f"GPU-{index}", pci=pci) for index, pci in enumerate(PCIS))
EXPECTED = Expectation(boot_id="boot-1", seen=NOW, count=3, known=KNOWN)


def gpu(index: int, **more: Any) -> GpuAnswer:
    whole: dict[str, Any] = {
        "index": index,
        "uuid": f"GPU-{index}",
        "pci": f"0000{PCIS[index]}.0".upper(),
        "recovery_action": 0,
        "remap_pending": False,
        "remap_failed": False,
        "process_count": 0,
    }
    return GpuAnswer.model_validate(whole | more)


def silent_gpu(index: int, error: int) -> GpuAnswer:
    return GpuAnswer(index=index, errors=(error,))


def answer(*gpus: GpuAnswer, **more: Any) -> NvmlAnswer:
    return NvmlAnswer.model_validate({"count": len(gpus), "gpus": gpus} | more)


def found(told: NvmlAnswer, expected: Expectation = EXPECTED) -> list[tuple[str, str, Rung]]:
    return [(fault.code, fault.component.id, fault.rung) for fault in gpu_faults(told, expected)]


HEALTHY = answer(gpu(0), gpu(1), gpu(2))


def test_healthy_gpus_have_no_fault_and_are_named_as_everywhere() -> None:
    assert gpu_faults(HEALTHY, EXPECTED) == ()
    assert unknown_checks(HEALTHY) == ()
    assert [(one.pci, one.recovery_action) for one in readings(HEALTHY)] == [(pci, "none") for pci in PCIS]
    assert known_gpus(HEALTHY, ()) == KNOWN


@pytest.mark.parametrize(
    ("action", "rung"),
    [
        (1, Rung.RESET_GPU),
        (2, Rung.REBOOT),
        (3, Rung.STOP_WORKLOAD),
        (4, Rung.RESET_GPU),
        (5, Rung.HUMAN),
        (6, Rung.RESET_GPU),
        (7, Rung.REBOOT),
    ],
)
def test_the_drivers_verdict_sets_the_rung(action: int, rung: Rung) -> None:
    assert found(answer(gpu(0), gpu(1, recovery_action=action), gpu(2))) == [("gpu-recovery-action", PCIS[1], rung)]


@pytest.mark.parametrize("action", [None, 42, 255])
def test_a_verdict_that_an_old_driver_cannot_give_is_unknown_and_no_fault(action: int | None) -> None:
    told = answer(gpu(0, recovery_action=action, errors=(3,)), gpu(1), gpu(2))
    assert gpu_faults(told, EXPECTED) == ()
    assert readings(told)[0].recovery_action == "unknown"


@pytest.mark.parametrize(
    ("reading", "words"),
    [
        ({"recovery_action": 8}, "recovery action 8"),
        ({"fabric": FabricAnswer(state=4)}, "fabric state 4"),
        ({"fabric": FabricAnswer(state=3, status=0, health_summary=4)}, "fabric health 4"),
    ],
)
def test_numbers_of_a_newer_driver_are_neither_well_nor_a_fault(reading: dict[str, Any], words: str) -> None:
    """It may ask for anything: nobody is reset for it, and nobody gets work."""
    told = answer(gpu(0), gpu(1, **reading), gpu(2))
    assert found(told) == []
    assert unjudged(told) == (f"GPU {PCIS[1]} tells what this version does not know: {words}",)
    assert passes_after_reset(told, (PCIS[1],), KNOWN) is ("recovery_action" not in reading)
    assert unjudged(answer(gpu(0, recovery_action=255, fabric=FabricAnswer(state=0)))) == ()


def test_row_remapping_that_waits_asks_for_a_reset_and_one_that_failed_for_a_replacement() -> None:
    assert found(answer(gpu(0, remap_pending=True), gpu(1, remap_failed=True), gpu(2))) == [
        ("row-remap-pending", PCIS[0], Rung.RESET_GPU),
        ("row-remap-failed", PCIS[1], Rung.REPLACE),
    ]


def test_lost_gpus_are_named_by_what_this_boot_has_shown() -> None:
    told = answer(silent_gpu(0, 15), gpu(1), silent_gpu(2, 15))
    assert found(told) == [("gpu-lost", PCIS[0], Rung.REBOOT), ("gpu-lost", PCIS[2], Rung.REBOOT)]
    assert unknown_checks(told) == ("nvml 0", "nvml 2")


def test_a_lost_gpu_that_was_never_seen_is_told_without_a_name() -> None:
    assert found(answer(silent_gpu(0, 15)), Expectation(boot_id="boot-1", seen=NOW)) == [
        ("gpu-lost", "unknown", Rung.REBOOT)
    ]


def test_a_gpu_that_needs_a_reset_says_so_itself() -> None:
    assert found(answer(gpu(0), gpu(1, errors=(16, 16)), gpu(2))) == [("gpu-reset-required", PCIS[1], Rung.RESET_GPU)]


@pytest.mark.parametrize("error", [10, 17, 999])
def test_a_gpu_that_does_not_answer_blocks_new_work_and_is_not_condemned(error: int) -> None:
    (fault,) = gpu_faults(answer(gpu(0), gpu(1, errors=(error,)), gpu(2)), EXPECTED)
    assert (fault.code, fault.fault_class) == ("gpu-not-answering", FaultClass.MONITOR_UNAVAILABLE)
    assert fault.rung is Rung.BLOCK_NEW_WORK


def test_a_missing_gpu_is_named_where_it_was_seen_in_this_boot() -> None:
    assert found(answer(gpu(0), gpu(2))) == [("gpu-missing", PCIS[1], Rung.REBOOT)]


def test_gpus_that_never_showed_are_missing_without_a_name() -> None:
    expected = EXPECTED.model_copy(update={"known": KNOWN[:1]})
    assert found(answer(gpu(0)), expected) == [("gpu-missing", "unknown", Rung.REBOOT)]


def test_without_an_expectation_as_many_count_as_this_boot_has_shown() -> None:
    expected = EXPECTED.model_copy(update={"count": None})
    assert found(answer(gpu(0), gpu(1)), expected) == [("gpu-missing", PCIS[2], Rung.REBOOT)]
    assert found(answer(gpu(0)), Expectation(boot_id="boot-1", seen=NOW)) == []


def test_a_pass_cut_by_a_hang_keeps_what_it_learned_and_misses_nobody() -> None:
    told = answer(gpu(0, remap_failed=True), count=3, silent="no answer in time")
    assert found(told) == [("row-remap-failed", PCIS[0], Rung.REPLACE)]
    assert unknown_checks(told) == ("nvml",)


@pytest.mark.parametrize(("error", "code"), [(15, "gpu-lost"), (16, "gpu-reset-required"), (18, "driver-mismatch")])
def test_a_refusal_of_nvml_as_a_whole_is_read_too(error: int, code: str) -> None:
    told = NvmlAnswer(failed=error)
    assert [fault.code for fault in gpu_faults(told, EXPECTED)] == [code]
    assert unknown_checks(told) == ("nvml",)


def test_a_driver_that_is_not_there_is_no_fault_by_itself() -> None:
    for error in (9, 12):
        told = NvmlAnswer(failed=error)
        assert told.starting
        assert gpu_faults(told, EXPECTED) == ()


@pytest.mark.parametrize(
    ("after", "passes"),
    [
        (HEALTHY, True),
        (answer(gpu(0), gpu(1, recovery_action=None), gpu(2)), True),
        (answer(gpu(0), gpu(1, recovery_action=2), gpu(2)), False),
        (answer(gpu(0), gpu(1, remap_pending=True), gpu(2)), False),
        (answer(gpu(0), gpu(1, errors=(16,)), gpu(2)), False),
        (answer(gpu(0), gpu(1, uuid="GPU-other"), gpu(2)), False),
        (answer(gpu(0), gpu(2)), False),
        (answer(gpu(0), gpu(1), gpu(2), silent="no answer in time"), False),
        (NvmlAnswer(failed=999), False),
    ],
)
def test_a_reset_is_proven_by_a_whole_clean_pass_over_the_same_gpus_alone(after: NvmlAnswer, passes: bool) -> None:
    assert passes_after_reset(after, (PCIS[1],), KNOWN) is passes
    assert passes_after_reset(after, (), KNOWN) is passes


def test_a_sick_neighbour_does_not_spoil_the_proof_of_one_gpu() -> None:
    after = answer(gpu(0, remap_failed=True), gpu(1), gpu(2))
    assert passes_after_reset(after, (PCIS[1],), KNOWN)
    assert not passes_after_reset(after, (), KNOWN)


def test_every_fault_carries_boot_time_and_evidence() -> None:
    faults: tuple[Fault, ...] = gpu_faults(answer(silent_gpu(0, 15), gpu(1, remap_failed=True)), EXPECTED)
    assert all(fault.boot_id == "boot-1" and fault.first_seen == NOW and fault.evidence for fault in faults)
