"""The active check with real children, against the simulated libcuda, NVML and a machine's state file."""

import asyncio
import sys
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import grpc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from health import active, active_cuda
from health.active import ActiveCheck
from health.children import ChildResult
from health.settings import NodeSettings
from sickbay.active.answers import CudaStep
from sickbay.active.idleness import IdleGpu
from sickbay.active.judgement import judge_work
from sickbay.checks import ActiveDepth, CheckMoment, CheckOutcome, CheckResult, HostFacts
from sickbay.faults import ComponentKind, Fault, FaultClass, Rung
from simulator.host import native
from simulator.host.faults import Cure, HostFault, HostTrouble
from simulator.host.gpu import GpuTrouble
from simulator.host.machine import HostMachine
from tests.health.kubelet import kubelet, pods
from tests.simulator.hosts import running_host

NOW = datetime(2026, 3, 4, 5, 6, tzinfo=UTC)
LONG_AFTER_BOOT = CheckMoment(now=NOW, boot_id="boot-1", boot_seen_at=NOW - timedelta(hours=1))


@pytest.fixture
async def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[HostMachine]:
    async with running_host(tmp_path) as running:
        monkeypatch.setenv("SICKBAY_SIM_GPU_STATE", str(running.driver.state_file))
        yield running


@pytest.fixture
async def small_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[HostMachine]:
    async with running_host(tmp_path, instance_type="g5.xlarge") as running:
        monkeypatch.setenv("SICKBAY_SIM_GPU_STATE", str(running.driver.state_file))
        yield running


def settings(tmp_path: Path, **more: object) -> NodeSettings:
    programs = native.build()
    return NodeSettings.model_validate(
        {
            "node_name": "node-a",
            "nvml_library": str(programs.nvml_library),
            "cuda_library": str(programs.cuda_library),
            "active_megabytes": 4,
            "burn_in_memory": 0.0001,
            "copy_floor": 0,
            "kubelet_socket": tmp_path / "no-kubelet.sock",
            **more,
        }
    )


async def run(
    tmp_path: Path,
    depth: ActiveDepth = ActiveDepth.QUICK,
    moment: CheckMoment = LONG_AFTER_BOOT,
    **more: object,
) -> CheckOutcome:
    check = ActiveCheck(settings(tmp_path, **more))
    asked = moment.model_copy(update={"depth": depth, "burn_in": timedelta(seconds=0.2)})
    return await asyncio.to_thread(check.run, asked)


def at_work(gpu: int = 3, **trouble: object) -> HostFault:
    """A GPU that fails at work and answers all queries."""
    return HostFault(gpu=gpu, gpu_trouble=GpuTrouble.model_validate({"cuda": trouble}), cured_by=Cure.RESET)


def only(outcome: CheckOutcome) -> Fault:
    assert outcome.result is CheckResult.FAULTS
    (fault,) = outcome.faults
    return fault


def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give up on hanging children soon; not so soon that a busy machine makes a well one hang."""
    ask = active_cuda.Cuda.ask

    def ask_briefly(
        self: active_cuda.Cuda, task: str, visible: list[str], deadline: timedelta = timedelta(), **order: float
    ) -> object:
        return ask(self, task, visible, timedelta(seconds=4), **order)

    monkeypatch.setattr(active_cuda.Cuda, "ask", ask_briefly)


async def test_idle_gpus_that_work_are_healthy(machine: HostMachine, tmp_path: Path) -> None:
    outcome = await run(tmp_path)
    assert (outcome.result, outcome.why) == (CheckResult.HEALTHY, "8 tested")


async def test_a_gpu_that_answers_all_queries_and_lets_no_work_begin_is_at_fault(
    machine: HostMachine, tmp_path: Path
) -> None:
    """Detection 8.10: queries pass, counters are 0, the context fails."""
    machine.inject(at_work(3, error=46))
    fault = only(await run(tmp_path))
    assert (fault.code, fault.component.id, fault.rung) == (
        "gpu-context-failed",
        machine.driver.gpus[3].pci,
        Rung.RESET_GPU,
    )
    assert "cuCtxCreate_v2 answers 46" in fault.evidence[0]
    assert fault.boot_id == "boot-1"


@pytest.mark.parametrize(
    ("trouble", "code"),
    [
        ({"error": 2}, "gpu-allocation-failed"),
        ({"error": 214}, "gpu-memory-error"),
        ({"error": 220}, "nvlink-uncorrectable"),
        ({"error": 719}, "gpu-launch-failed"),
        ({"error": 999}, "gpu-context-failed"),
        ({"wrong_memory": True}, "gpu-wrong-result"),
        ({"wrong_result": True}, "gpu-wrong-result"),
    ],
)
async def test_each_failure_at_work_is_the_fault_of_its_gpu(
    machine: HostMachine, tmp_path: Path, trouble: dict[str, object], code: str
) -> None:
    machine.inject(at_work(5, **trouble))
    fault = only(await run(tmp_path))
    assert (fault.code, fault.component.id) == (code, machine.driver.gpus[5].pci)


async def test_a_gpu_that_never_finishes_is_at_fault_at_once_and_the_others_are_tried(
    machine: HostMachine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hurry(monkeypatch)
    machine.inject(at_work(2, hangs=True))
    machine.inject(at_work(6, wrong_result=True))
    outcome = await run(tmp_path)
    assert {(fault.code, fault.component.id) for fault in outcome.faults} == {
        ("gpu-work-hangs", machine.driver.gpus[2].pci),
        ("gpu-wrong-result", machine.driver.gpus[6].pci),
    }
    hangs = next(fault for fault in outcome.faults if fault.code == "gpu-work-hangs")
    assert "no end of step context" in hangs.evidence[0]


async def test_gpus_in_use_are_left_out_and_that_is_no_failure(machine: HostMachine, tmp_path: Path) -> None:
    machine.occupy("pod-1", 5)
    machine.inject(at_work(0, wrong_result=True))
    outcome = await run(tmp_path)
    assert outcome.result is CheckResult.HEALTHY
    assert outcome.why.startswith("3 tested; left out: GPU 0 has 1 processes; GPU 1")


async def test_a_gpu_that_a_pod_has_and_does_not_use_yet_is_left_out(machine: HostMachine, tmp_path: Path) -> None:
    machine.inject(at_work(0, wrong_result=True))
    given = pods({"devices": [{"resource_name": "nvidia.com/gpu", "device_ids": [machine.driver.gpus[0].uuid]}]})
    with kubelet(tmp_path, given) as socket:
        outcome = await run(tmp_path, kubelet_socket=socket)
    assert (outcome.result, outcome.why) == (CheckResult.HEALTHY, "7 tested; left out: GPU 0 is given to a pod")


async def test_a_kubelet_that_does_not_answer_keeps_all_gpus_untouched(machine: HostMachine, tmp_path: Path) -> None:
    machine.inject(at_work(0, wrong_result=True))
    with kubelet(tmp_path, b"", grpc.StatusCode.INTERNAL) as socket:
        outcome = await run(tmp_path, kubelet_socket=socket)
    assert (outcome.result, outcome.faults) == (CheckResult.UNKNOWN, ())
    assert "the kubelet does not tell which GPUs pods have" in outcome.why


async def test_a_gpu_that_is_sliced_is_tried_by_its_mig_devices(small_machine: HostMachine, tmp_path: Path) -> None:
    sliced = GpuTrouble.model_validate({"mig": ["1g.10gb", "2g.20gb"]})
    small_machine.inject(HostFault(gpu=0, gpu_trouble=sliced, cured_by=Cure.RESET))
    assert (await run(tmp_path)).result is CheckResult.HEALTHY
    assert (await run(tmp_path, ActiveDepth.BURN_IN)).result is CheckResult.HEALTHY
    small_machine.inject(at_work(0, error=46))
    assert only(await run(tmp_path)).code == "gpu-context-failed"


async def test_where_all_gpus_are_in_use_there_is_nothing_to_judge(machine: HostMachine, tmp_path: Path) -> None:
    machine.occupy("pod-1", 8)
    assert (await run(tmp_path)).result is CheckResult.NOT_APPLICABLE


async def test_when_all_gpus_fail_alike_none_of_them_is_blamed(machine: HostMachine, tmp_path: Path) -> None:
    for gpu in range(8):
        machine.inject(at_work(gpu, error=999))
    fault = only(await run(tmp_path))
    assert (fault.code, fault.component.kind, fault.rung) == ("cuda-unusable", ComponentKind.DRIVER, Rung.HUMAN)


async def test_a_fabric_that_is_not_ready_is_starting_and_later_a_fault_of_the_fabric(
    machine: HostMachine, tmp_path: Path
) -> None:
    for gpu in range(8):
        machine.inject(at_work(gpu, error=802))
    fault = only(await run(tmp_path))
    assert (fault.code, fault.fault_class) == ("cuda-fabric-not-ready", FaultClass.FABRIC)
    young = LONG_AFTER_BOOT.model_copy(update={"boot_seen_at": NOW - timedelta(minutes=1)})
    assert (await run(tmp_path, moment=young)).result is CheckResult.STARTING


async def test_a_driver_of_another_version_is_the_drivers_fault(machine: HostMachine, tmp_path: Path) -> None:
    for gpu in range(8):
        machine.inject(at_work(gpu, error=803))
    fault = only(await run(tmp_path))
    assert (fault.code, fault.component.kind) == ("driver-mismatch", ComponentKind.DRIVER)


async def test_a_gpu_that_our_container_cannot_see_is_unknown_and_not_condemned(
    machine: HostMachine, tmp_path: Path
) -> None:
    """Detection 8.13: a container that lost its device files says nothing of the GPU."""
    machine.inject(at_work(1, error=100))
    outcome = await run(tmp_path)
    assert (outcome.result, outcome.faults) == (CheckResult.UNKNOWN, ())
    assert "cuInit answers 100" in outcome.why


async def test_without_the_library_nothing_is_known(machine: HostMachine, tmp_path: Path) -> None:
    outcome = await run(tmp_path, cuda_library="/nonexistent/libcuda.so.1")
    assert outcome.result is CheckResult.UNKNOWN
    assert "it is not there" in outcome.why


async def test_a_gpu_closed_to_work_is_left_out(machine: HostMachine, tmp_path: Path) -> None:
    machine.inject(at_work(4, compute_mode=2))
    outcome = await run(tmp_path)
    assert outcome.result is CheckResult.HEALTHY
    assert "closed to work" in outcome.why


async def test_while_the_driver_is_not_loaded_the_check_is_starting(machine: HostMachine, tmp_path: Path) -> None:
    trouble = HostTrouble.model_validate({"nvml_init_error": 9})
    machine.inject(HostFault(host_trouble=trouble, cured_by=Cure.REBOOT))
    assert (await run(tmp_path)).result is CheckResult.STARTING


async def test_when_nvml_does_not_answer_nobody_knows_which_gpus_are_idle(machine: HostMachine, tmp_path: Path) -> None:
    machine.inject(HostFault(host_trouble=HostTrouble.model_validate({"driver_hangs": True}), cured_by=Cure.REBOOT))
    outcome = await run(tmp_path, nvml_seconds=1)
    assert outcome.result is CheckResult.UNKNOWN
    assert "NVML cannot tell which GPUs are idle" in outcome.why


async def test_a_burn_in_measures_copies_pairs_and_load(small_machine: HostMachine, tmp_path: Path) -> None:
    outcome = await run(tmp_path, ActiveDepth.BURN_IN)
    assert (outcome.result, outcome.why) == (CheckResult.HEALTHY, "1 tested")


async def test_a_burn_in_finds_the_two_gpus_that_hang_at_each_other(
    machine: HostMachine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Detection 8.5: each GPU alone passes, and a pair hangs."""
    machine.occupy("pod-1", 4)
    machine.inject(at_work(5, peers_hang=[7]))
    hurry(monkeypatch)
    fault = only(await run(tmp_path, ActiveDepth.BURN_IN))
    assert (fault.code, fault.component.kind, fault.rung) == (
        "gpu-peer-copy-failed",
        ComponentKind.NVLINK,
        Rung.REBOOT,
    )
    assert fault.component.id == f"{machine.driver.gpus[5].pci}/{machine.driver.gpus[7].pci}"
    assert "GPU 5" in fault.evidence[0]
    assert "GPU 7" in fault.evidence[0]


async def test_a_burn_in_finds_the_gpu_whose_copies_all_arrive_wrong(machine: HostMachine, tmp_path: Path) -> None:
    machine.occupy("pod-1", 4)
    machine.inject(at_work(6, peers_wrong=[4, 5, 7]))
    fault = only(await run(tmp_path, ActiveDepth.BURN_IN))
    assert (fault.code, fault.component.kind, fault.component.id) == (
        "gpu-peer-copy-failed",
        ComponentKind.GPU,
        machine.driver.gpus[6].pci,
    )


async def test_a_burn_in_finds_the_gpu_that_copies_slowly(small_machine: HostMachine, tmp_path: Path) -> None:
    small_machine.inject(at_work(0, copy_gbps=0.5))
    fault = only(await run(tmp_path, ActiveDepth.BURN_IN, copy_floor=0.03))
    assert fault.code == "gpu-copy-slow"
    assert "copies from the host at 0." in fault.evidence[0]


def test_a_machine_without_gpus_is_not_asked(tmp_path: Path) -> None:
    check = ActiveCheck(settings(tmp_path))
    assert check.applies(HostFacts(pci_known=True)) == "no NVIDIA GPU on the PCI bus"
    assert check.applies(HostFacts()) == ""
    assert check.run(LONG_AFTER_BOOT).result is CheckResult.NOT_APPLICABLE


def test_an_agent_may_be_told_never_to_try_gpus_by_itself(tmp_path: Path) -> None:
    about = ActiveCheck(settings(tmp_path, active_seconds=0)).about
    assert (about.every, about.fresh_for) == (active.NEVER, active.KEPT)


def test_a_child_that_never_began_is_no_hang() -> None:
    answer = active_cuda.read_answer(ChildResult(None, "", "", timed_out=True))
    assert (answer.step, answer.timed_out, answer.silent) == (CudaStep.BEGIN, True, "no answer in time")


def test_a_child_that_crashed_keeps_what_it_said_before() -> None:
    answer = active_cuda.read_answer(ChildResult(-11, '{"step": "context"}\nNVRM\n{"step": "al', "Segmentation fault"))
    assert (answer.step, answer.silent) == (CudaStep.CONTEXT, "exit code -11: Segmentation fault")


WELL = """{"step": "init"}
{"count": 1}
{"pci": "0000:53:00.0", "name": "NVIDIA H100 80GB HBM3", "compute_mode": 0}
{"step": "context"}
{"free_bytes": 85000000000, "total_bytes": 85899345920}
{"step": "compute"}
{"step": "close"}
{"end": true}
"""


@given(st.integers(0, len(WELL) - 3), st.binary(max_size=20), st.sampled_from([0, 1, -9, -11]))
def test_what_a_child_says_is_never_well_without_its_end(length: int, noise: bytes, exit_code: int) -> None:
    said = WELL[:length] + noise.decode(errors="replace")
    answer = active_cuda.read_answer(ChildResult(exit_code, said, ""))
    gpu = IdleGpu(index=0, uuid="GPU-a", pci="0000:53:00", product="", visible=("GPU-a",))
    assert not judge_work(gpu, answer, lambda: True).well


def test_a_child_that_cannot_be_started_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/nonexistent/python")
    answer = active_cuda.Cuda().ask("quick", ["GPU-a"], timedelta(seconds=1))
    assert answer.silent.startswith("cannot start /nonexistent/python")
