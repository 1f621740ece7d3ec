"""NVML on a real NVIDIA GPU with driver 535 or newer. Run by hand or on a GPU machine: `pytest -m gpu tests/health`.

Readings that a product or a driver does not have may be unknown; what is read must have the right shape, and a GPU in
good order must not be called ill.
"""

import shutil
import subprocess
from datetime import UTC, datetime, timedelta

import pytest

from health.nvml import ask_nvml
from health.nvml_check import NvmlCheck
from health.nvml_events import NvmlEvents
from health.settings import NodeSettings
from sickbay.checks import CheckMoment, CheckResult
from sickbay.gpu_readings import GpuAnswer, NvmlAnswer
from sickbay.gpu_readings.answer import FUNCTION_NOT_FOUND, NO_PERMISSION, NOT_SUPPORTED
from tests.eventually import eventually

SOON = timedelta(seconds=30)
BOOT = "the boot of this machine"
_NOT_THERE = {2, NOT_SUPPORTED, NO_PERMISSION, FUNCTION_NOT_FOUND, 25, 26}
"""How a driver or product says that it does not know a question."""


def smi(*words: str) -> str:
    """What nvidia-smi says; empty if it does not answer."""
    if shutil.which("nvidia-smi") is None:
        return ""
    try:
        done = subprocess.run(["nvidia-smi", *words], capture_output=True, text=True, timeout=60, check=False)
    except subprocess.TimeoutExpired:
        return ""
    return done.stdout if done.returncode == 0 else ""


pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not smi("-L"), reason="no NVIDIA GPU here: nvidia-smi does not answer"),
]


@pytest.fixture(scope="module")
def answer() -> NvmlAnswer:
    return ask_nvml(SOON)


def test_a_real_driver_is_read_to_the_end(answer: NvmlAnswer) -> None:
    assert (answer.silent, answer.failed) == ("", None)
    assert answer.count == len(answer.gpus) > 0
    assert int(answer.driver_version.split(".")[0]) >= 535


def test_real_gpus_are_named_as_nvidia_smi_names_them(answer: NvmlAnswer) -> None:
    rows = smi("--query-gpu=uuid,pci.bus_id,name", "--format=csv,noheader").splitlines()
    named = [tuple(cell.strip().lower() for cell in row.split(",")) for row in rows]
    assert [(gpu.uuid.lower(), gpu.pci.lower(), gpu.name.lower()) for gpu in answer.gpus] == named
    assert all(len(gpu.address) == len("0000:61:00") for gpu in answer.gpus)


def test_what_a_real_gpu_does_not_answer_it_does_not_know(answer: NvmlAnswer) -> None:
    assert {code for gpu in answer.gpus for code in gpu.unanswered.values()} <= _NOT_THERE


def test_real_readings_are_possible_ones(answer: NvmlAnswer) -> None:
    for gpu in answer.gpus:
        assert_possible(gpu)


def assert_possible(gpu: GpuAnswer) -> None:
    """Each reading that is told is within what its unit allows."""
    ranges = (
        (gpu.temperature, range(1, 121)),
        (gpu.memory_temperature, range(121)),
        (gpu.slowdown_temperature, range(60, 131)),
        (gpu.pcie_width, range(1, 33)),
        (gpu.pcie_generation, range(1, 9)),
        (gpu.remapped_uncorrectable, range(513)),
        (gpu.recovery_action, range(8)),
    )
    assert [(value, possible) for value, possible in ranges if value is not None and value not in possible] == []
    if gpu.fabric is not None and gpu.fabric.state is not None:
        assert 0 <= gpu.fabric.state <= 3
        assert len(gpu.fabric.cluster_uuid) == 32
    assert all(link.effective_ber is None or 0 <= link.effective_ber < 1 for link in gpu.links or ())


def test_a_real_gpu_in_good_order_is_healthy_and_stays_so() -> None:
    check = NvmlCheck(NodeSettings(node_name="here"))
    memory = ""
    for second in range(2):
        now = datetime.now(UTC) + timedelta(seconds=second)
        outcome = check.run(CheckMoment(now=now, boot_id=BOOT, boot_seen_at=now - timedelta(hours=1), memory=memory))
        memory = outcome.memory
        assert [fault for fault in outcome.faults if fault.rung.disrupts] == []
        assert outcome.result in (CheckResult.HEALTHY, CheckResult.FAULTS), outcome.why


async def test_a_real_driver_lets_us_wait_for_events() -> None:
    events = NvmlEvents(BOOT)
    events.start()
    try:
        await eventually(events.ready.is_set)
    finally:
        assert events.stop()
    assert events.take() == ()
