"""The NVML layer with the real pynvml, against the simulated libnvidia-ml.so.1, in a real child process."""

import asyncio
import sys
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from health import nvml
from health.children import ChildResult
from health.nvml import ask_nvml, read_answer
from sickbay.gpu_readings import NvmlAnswer
from simulator.host import native
from simulator.host.faults import Cure, HostFault, HostTrouble
from simulator.host.gpu import GpuTrouble
from simulator.host.machine import HostMachine
from tests.simulator.hosts import lost, reset_needed, running_host

SOON = timedelta(seconds=30)


@pytest.fixture
async def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[HostMachine]:
    async with running_host(tmp_path) as running:
        monkeypatch.setenv("SICKBAY_SIM_GPU_STATE", str(running.driver.state_file))
        yield running


async def ask(deadline: timedelta = SOON) -> NvmlAnswer:
    return await asyncio.to_thread(ask_nvml, deadline, str(native.build().nvml_library))


def ill(gpu: int | None = 3, **trouble: object) -> HostFault:
    return HostFault(gpu=gpu, gpu_trouble=GpuTrouble.model_validate(trouble), cured_by=Cure.REBOOT)


def host_ill(**trouble: object) -> HostFault:
    return HostFault(host_trouble=HostTrouble.model_validate(trouble), cured_by=Cure.REBOOT)


async def test_healthy_gpus_answer_everything(machine: HostMachine) -> None:
    machine.occupy("pod-1", 2)
    answer = await ask()
    assert (answer.whole, answer.count) == (True, 8)
    assert [gpu.address for gpu in answer.gpus] == [gpu.pci for gpu in machine.driver.gpus]
    assert [gpu.uuid for gpu in answer.gpus] == [gpu.uuid for gpu in machine.driver.gpus]
    assert [gpu.process_count for gpu in answer.gpus] == [1, 1, 0, 0, 0, 0, 0, 0]
    assert all((gpu.recovery_action, gpu.remap_pending, gpu.remap_failed) == (0, False, False) for gpu in answer.gpus)
    assert {tuple(gpu.unanswered.items()) for gpu in answer.gpus} == {(("retired pages", 3),)}


async def test_a_lost_gpu_and_one_that_needs_a_reset_are_told_beside_healthy_ones(machine: HostMachine) -> None:
    machine.inject(lost(5))
    machine.inject(reset_needed(3))
    answer = await ask()
    assert answer.whole
    assert 15 in answer.gpus[5].errors
    assert 16 in answer.gpus[3].errors
    assert (answer.gpus[3].recovery_action, answer.gpus[3].address) == (1, machine.driver.gpus[3].pci)
    assert answer.gpus[0].errors == (3,)


async def test_row_remapping_and_the_drivers_verdict_are_read(machine: HostMachine) -> None:
    machine.inject(ill(2, remap_pending=True, recovery_action="drain_and_reset"))
    machine.inject(ill(4, remap_failed=True))
    answer = await ask()
    assert (answer.gpus[2].remap_pending, answer.gpus[2].recovery_action) == (True, 4)
    assert (answer.gpus[4].remap_failed, answer.gpus[4].remap_pending) == (True, False)


async def test_an_old_driver_is_unknown_where_it_cannot_tell_and_no_crash(machine: HostMachine) -> None:
    machine.inject(ill(0, recovery_action="untold"))
    machine.inject(host_ill(missing_nvml_functions=["nvmlDeviceGetRemappedRows"]))
    answer = await ask()
    assert answer.whole
    assert answer.gpus[0].recovery_action is None
    assert [gpu.remap_failed for gpu in answer.gpus] == [None] * 8


async def test_a_hang_at_one_gpu_keeps_what_the_others_said_before(machine: HostMachine) -> None:
    machine.inject(ill(2, hangs=True))
    machine.inject(ill(1, remap_failed=True))
    answer = await ask(timedelta(seconds=3))
    assert answer.silent == "no answer in time"
    assert answer.count == 8
    assert [gpu.index for gpu in answer.gpus] == [0, 1]
    assert answer.gpus[1].remap_failed


async def test_a_driver_that_hangs_altogether_is_silent(machine: HostMachine) -> None:
    """detection 8.4"""
    machine.inject(host_ill(driver_hangs=True))
    answer = await ask(timedelta(seconds=1))
    assert (answer.whole, answer.count, answer.silent) == (False, None, "no answer in time")


async def test_a_driver_that_is_not_loaded_says_so(machine: HostMachine) -> None:
    machine.inject(host_ill(nvml_init_error=9))
    answer = await ask()
    assert (answer.failed, answer.starting) == (9, True)


def test_a_library_that_is_not_there_is_told_as_nvml_tells_it() -> None:
    assert ask_nvml(SOON, "/nonexistent/libnvidia-ml.so.1").failed == 12


def test_a_child_that_crashes_is_silent_with_its_last_words() -> None:
    answer = read_answer(
        ChildResult(-11, '{"count": 8}\n{"gpu": {"index": 0', "Fatal Python error: Segmentation fault")
    )
    assert (answer.count, answer.gpus) == (8, ())
    assert answer.silent == "exit code -11: Fatal Python error: Segmentation fault"


def test_words_of_the_library_between_the_answers_do_not_hurt() -> None:
    answer = read_answer(ChildResult(0, 'NVML: warning\n{"count": 0}\n[1, 2]\n{"end": true}\n', ""))
    assert (answer.whole, answer.count) == (True, 0)


WELL = "\n".join(
    (
        '{"count": 2, "driver_version": "580.95.05"}',
        '{"gpu": {"index": 0, "uuid": "GPU-0", "pci": "00000000:53:00.0", "errors": []}}',
        '{"gpu": {"index": 1, "uuid": "GPU-1", "pci": "00000000:61:00.0", "errors": []}}',
        '{"end": true}',
    )
)


@given(st.integers(0, len(WELL) - 1))
def test_an_answer_that_was_cut_anywhere_is_not_whole(end: int) -> None:
    assert read_answer(ChildResult(None, WELL, "", timed_out=True)).whole
    assert not read_answer(ChildResult(None, WELL[:end], "", timed_out=True)).whole


@given(st.text() | st.binary().map(lambda data: data.decode(errors="replace")))
def test_nonsense_is_no_answer_and_no_error(text: str) -> None:
    assert not read_answer(ChildResult(0, text, "")).whole


def test_no_child_is_started_while_too_many_hang_in_the_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvml, "leaked_children", lambda: 3)
    monkeypatch.setattr(sys, "executable", "/nonexistent/python")
    assert ask_nvml(SOON).silent == "3 earlier children hang in the driver"
