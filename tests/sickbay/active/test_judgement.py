from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sickbay.active.answers import CudaAnswer, CudaFailure, CudaStep, Rate, WrongData
from sickbay.active.idleness import Idleness
from sickbay.active.judgement import Finding, judge_copies, judge_work, outcome
from sickbay.catalogue import lookup
from sickbay.checks import CheckResult
from tests.sickbay.active.gpus import MOMENT, YOUNG, idle_gpu, nobody_came, somebody_came

GPU = idle_gpu(3)
BOUND = timedelta(minutes=10)
GIB = 1 << 30


def failed(code: int, step: CudaStep = CudaStep.CONTEXT, **more: object) -> CudaAnswer:
    known = {"step": step, "failed": CudaFailure(call="cuCall", code=code)}
    return CudaAnswer.model_validate(known | more)


def test_an_answer_to_the_end_is_well() -> None:
    assert judge_work(GPU, CudaAnswer(step=CudaStep.CLOSE, pci="0000:53:00.0"), nobody_came).well


def test_another_gpu_than_the_one_asked_for_is_not_judged() -> None:
    finding = judge_work(GPU, CudaAnswer(step=CudaStep.CLOSE, pci="0000:54:00.0"), nobody_came)
    assert (finding.code, finding.well) == ("", False)


@pytest.mark.parametrize("code", [2, 46])
def test_what_somebody_elses_work_explains_is_no_fault(code: int) -> None:
    finding = judge_work(GPU, failed(code), somebody_came)
    assert (finding.code, finding.left_out) == ("", "GPU 3 (0000:53:00) was taken into use meanwhile")


def test_wrong_data_is_a_fault_whoever_came() -> None:
    wrong = WrongData(at=8, bytes=1, expected="00", found="10")
    finding = judge_work(GPU, CudaAnswer(step=CudaStep.READ, wrong=wrong), somebody_came)
    assert finding.code == "gpu-wrong-result"


def test_memory_that_is_refused_though_free_is_a_fault_and_held_memory_is_only_told() -> None:
    refused = judge_work(GPU, failed(2, CudaStep.ALLOCATE, free_bytes=79 * GIB, total_bytes=80 * GIB), nobody_came)
    assert refused.code == "gpu-allocation-failed"
    held = judge_work(GPU, failed(2, CudaStep.ALLOCATE, free_bytes=1 << 20, total_bytes=80 * GIB), nobody_came)
    assert (held.code, bool(held.unjudged)) == ("gpu-memory-held", True)
    unknown = judge_work(GPU, failed(2), nobody_came)
    assert unknown.code == "gpu-memory-held"


@pytest.mark.parametrize("step", [CudaStep.BEGIN, CudaStep.LOAD])
def test_a_hang_before_any_gpu_is_touched_blames_none(step: CudaStep) -> None:
    answer = CudaAnswer(step=step, timed_out=True, silent="no answer in time")
    finding = judge_work(GPU, answer, nobody_came)
    assert (finding.code, bool(finding.unjudged)) == ("", True)


@pytest.mark.parametrize("code", [-1, -2, 1, 3, 34, 100, 101, 218, 221, 222, 304, 805, 810, 12345])
def test_what_says_nothing_of_the_gpu_is_unknown(code: int) -> None:
    """Detection 8.13: trouble of the container condemns no GPU."""
    finding = judge_work(GPU, failed(code, CudaStep.INIT), nobody_came)
    assert (finding.code, bool(finding.unjudged)) == ("", True)


@given(
    st.builds(
        CudaAnswer,
        step=st.sampled_from(CudaStep),
        failed=st.none() | st.builds(CudaFailure, call=st.text(max_size=5), code=st.integers(-3, 1000)),
        timed_out=st.booleans(),
        silent=st.sampled_from(["", "exit code 1"]),
        compute_mode=st.none() | st.integers(0, 3),
    )
)
def test_no_answer_with_a_failure_or_without_an_end_is_well_and_none_asks_for_a_replacement(answer: CudaAnswer) -> None:
    finding = judge_work(GPU, answer, nobody_came)
    if answer.failed is not None or answer.silent:
        assert not finding.well
    if finding.code:
        assert lookup(finding.code).known
        assert lookup(finding.code).rung != "replace"


def found(code: str, *indices: int) -> list[Finding]:
    return [Finding(gpu=idle_gpu(index), code=code, evidence="it was so") for index in indices]


def test_each_gpu_has_its_own_fault() -> None:
    result = outcome([[*found("gpu-context-failed", 1), Finding(gpu=idle_gpu(2))]], (), Idleness(), MOMENT, BOUND)
    assert [fault.component.id for fault in result.faults] == ["0000:51:00"]


def test_several_gpus_that_all_hang_show_a_driver_that_hangs() -> None:
    result = outcome([found("gpu-work-hangs", 0, 1, 2)], (), Idleness(), MOMENT, BOUND)
    assert [fault.code for fault in result.faults] == ["driver-hung"]


def test_the_only_gpu_that_is_tested_is_not_excused() -> None:
    result = outcome([found("gpu-work-hangs", 0)], (), Idleness(left_out=("GPU 1 has 1 processes",)), MOMENT, BOUND)
    assert [fault.code for fault in result.faults] == ["gpu-work-hangs"]


def test_memory_errors_of_all_gpus_are_still_each_ones_own() -> None:
    result = outcome([found("gpu-memory-error", 0, 1)], (), Idleness(), MOMENT, BOUND)
    assert [fault.component.id for fault in result.faults] == ["0000:50:00", "0000:51:00"]


def test_the_fabric_has_time_after_a_boot() -> None:
    found_now = [found("cuda-fabric-not-ready", 0, 1)]
    assert outcome(found_now, (), Idleness(), YOUNG, BOUND).result is CheckResult.STARTING
    late = outcome(found_now, (), Idleness(), MOMENT, BOUND)
    assert [(fault.code, fault.component.kind.value) for fault in late.faults] == [
        ("cuda-fabric-not-ready", "nvswitch")
    ]


def test_what_could_not_be_judged_keeps_the_rest_from_being_called_healthy() -> None:
    mixed = [Finding(gpu=idle_gpu(0)), Finding(gpu=idle_gpu(1), unjudged="GPU 1: who knows")]
    assert outcome([mixed], (), Idleness(), MOMENT, BOUND).result is CheckResult.UNKNOWN


def test_slow_copies_are_a_fault_unless_somebody_else_copies() -> None:
    slow = CudaAnswer(step=CudaStep.CLOSE, rates=(Rate(what="host_to_device", gigabytes_per_second=3.0),))
    finding = judge_copies(GPU, slow, nobody_came, 0.25)
    assert finding.code == "gpu-copy-slow"
    assert "3.0 GB/s, of which 15.8 is the least (25% of 63)" in finding.evidence
    assert judge_copies(GPU, slow, somebody_came, 0.25).left_out
    assert judge_copies(GPU, slow, nobody_came, 0).well
    assert judge_copies(idle_gpu(0, "NVIDIA Unheard-of"), slow, nobody_came, 0.25).well
