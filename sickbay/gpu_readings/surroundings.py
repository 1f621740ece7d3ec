"""Heat, the PCIe slot, and modes of the driver: what surrounds a GPU.

Called by `judgement`. The PCIe generation is never judged, since it drops while a GPU is idle; its width is judged by
the peers and by this boot, since some machines give every GPU a narrower slot than it could use.
"""

from collections import Counter
from collections.abc import Iterator

from sickbay.faults import Fault
from sickbay.gpu_readings.answer import GpuAnswer, NvmlAnswer
from sickbay.gpu_readings.expectation import Expectation, gpu_fault
from sickbay.gpu_readings.history import GpuHistory


def surrounding_faults(answer: NvmlAnswer, expected: Expectation, history: GpuHistory) -> tuple[Fault, ...]:
    """The faults of all GPUs' surroundings."""
    usual = _usual_width(answer)
    found = [fault for gpu in answer.gpus for fault in (*_heat(gpu, expected), *_modes(gpu, expected))]
    for gpu in answer.gpus:
        most = max(usual, history.widths.get(gpu.address, 0))
        if gpu.pcie_width and gpu.pcie_width < min(most, gpu.pcie_width_max or most):
            words = f"GPU {gpu.index}: {gpu.pcie_width} PCIe lanes in use, {most} by its peers or earlier in this boot"
            found.append(gpu_fault("pcie-width-reduced", gpu.address, expected, words))
    return tuple(found)


def told_apart(gpu: GpuAnswer) -> tuple[str, ...]:
    """Modes of one GPU that are worth telling and no fault."""
    modes = (
        ("GSP firmware off", gpu.gsp_enabled is False),
        ("persistence mode off", gpu.persistence is False),
        ("ECC off", gpu.ecc_enabled is False),
    )
    return tuple(words for words, holds in modes if holds)


def _usual_width(answer: NvmlAnswer) -> int:
    """Lanes that most GPUs use; 0 without a majority."""
    widths = Counter(gpu.pcie_width for gpu in answer.gpus if gpu.pcie_width)
    width, count = max(widths.items(), key=lambda item: item[1], default=(0, 0))
    return width if count * 2 > len(answer.gpus) else 0


def _heat(gpu: GpuAnswer, expected: Expectation) -> Iterator[Fault]:
    parts = (
        ("", gpu.temperature, gpu.slowdown_temperature),
        ("memory ", gpu.memory_temperature, gpu.memory_temperature_limit),
    )
    hot = [
        f"{part}{degrees} of at most {limit} degrees"
        for part, degrees, limit in parts
        if degrees and limit and degrees >= limit
    ]
    if hot:
        yield gpu_fault("gpu-hot", gpu.address, expected, f"GPU {gpu.index}: {', '.join(hot)}")


def _modes(gpu: GpuAnswer, expected: Expectation) -> Iterator[Fault]:
    modes = (("MIG", gpu.mig_enabled, gpu.mig_pending), ("ECC", gpu.ecc_enabled, gpu.ecc_pending))
    waiting = [
        f"{mode} will be {'on' if pending else 'off'}"
        for mode, enabled, pending in modes
        if enabled is not None and pending is not None and enabled is not pending
    ]
    if waiting:
        words = f"GPU {gpu.index}: after its next reset, {', '.join(waiting)}"
        yield gpu_fault("gpu-mode-pending", gpu.address, expected, words)
