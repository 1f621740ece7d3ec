"""The active check on a real NVIDIA GPU: driver 535 or newer, any product, idle.

Run it alone on such a machine: `pytest -m gpu tests/health/test_real_gpu_active.py`. The GPUs must be idle.
"""

import shutil
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from health.active import ActiveCheck, usage_of
from health.active_cuda import Cuda
from health.settings import NodeSettings
from sickbay.active.answers import CudaAnswer, CudaStep
from sickbay.active.idleness import IdleGpu
from sickbay.checks import ActiveDepth, CheckMoment, CheckResult

pytestmark = pytest.mark.gpu

MIB = 1 << 20


def _answers() -> bool:
    program = shutil.which("nvidia-smi")
    if program is None:
        return False
    try:
        return subprocess.run([program, "-L"], capture_output=True, timeout=60, check=False).stdout.startswith(b"GPU")
    except subprocess.TimeoutExpired:
        return False


@pytest.fixture(scope="module")
def gpu() -> IdleGpu:
    if not _answers():
        pytest.skip("needs an NVIDIA GPU: nvidia-smi is not there, or does not answer")
    found = usage_of(settings()).look()
    if not found.idle:
        pytest.skip(f"needs an idle GPU: {found}")
    return found.idle[0]


def settings() -> NodeSettings:
    return NodeSettings(node_name="real", kubelet_socket=Path("/nonexistent"), burn_in_memory=0.2)


def done(answer: CudaAnswer) -> bool:
    """The child came to its end, and nothing was wrong."""
    return answer.step is CudaStep.CLOSE and not (answer.failed or answer.wrong or answer.silent)


def test_a_small_piece_of_work_ends_well_on_the_gpu_that_was_asked_for(gpu: IdleGpu) -> None:
    answer = Cuda().ask("quick", gpu.visible[:1], bytes=128 * MIB)
    assert done(answer), answer
    assert answer.pci.lower().startswith(gpu.pci)
    assert answer.total_bytes is not None
    assert answer.total_bytes > 1024 * MIB


def test_copies_have_rates_that_a_gpu_can_have(gpu: IdleGpu) -> None:
    answer = Cuda().ask("copies", gpu.visible[:1], bytes=128 * MIB)
    assert done(answer), answer
    rates = {rate.what: rate.gigabytes_per_second for rate in answer.rates}
    assert rates.keys() == {"host_to_device", "device_to_device", "device_to_host"}
    assert all(0.1 < rate < 20_000 for rate in rates.values()), rates
    assert rates["device_to_device"] > rates["host_to_device"]


def test_a_short_load_finds_all_of_its_results_right(gpu: IdleGpu) -> None:
    answer = Cuda().ask("load", gpu.visible[:1], timedelta(seconds=120), seconds=2, share=0.2)
    assert done(answer), answer
    assert answer.passes >= 1


@pytest.mark.parametrize("depth", [ActiveDepth.QUICK, ActiveDepth.BURN_IN])
def test_the_check_calls_a_well_gpu_healthy(gpu: IdleGpu, depth: ActiveDepth) -> None:
    now = datetime.now(UTC)
    moment = CheckMoment(
        now=now, boot_id="boot", boot_seen_at=now - timedelta(hours=1), depth=depth, burn_in=timedelta(seconds=5)
    )
    outcome = ActiveCheck(settings()).run(moment)
    assert outcome.result is CheckResult.HEALTHY, outcome
