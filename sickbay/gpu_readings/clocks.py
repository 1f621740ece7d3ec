"""Clocks that the hardware holds down: for heat, for want of power, or for reasons of its own.

Called by `judgement`. One look tells little, since a GPU may slow for a moment at any time; what lasts for most of ten
minutes is a fault (gpud's rule; facts: detection, 2). A cap set by software, idleness and chosen clocks are no faults.
When power brakes all GPUs of a machine at once, the machine is short of power, and no GPU is to blame.
"""

from collections.abc import Mapping
from datetime import timedelta
from typing import Final

from sickbay.faults import Fault
from sickbay.gpu_readings.answer import ClockReason, NvmlAnswer
from sickbay.gpu_readings.expectation import Expectation, gpu_fault, host_fault
from sickbay.gpu_readings.history import ClockSample, GpuHistory

SUSTAINED_SHARE: Final = 0.6
"""Of the samples of ten minutes."""
_SHORTEST: Final = timedelta(minutes=8)
_FEWEST_SAMPLES: Final = 8
"""Fewer, or over a shorter time, tell nothing yet."""

_CODES: Final = {
    ClockReason.POWER_BRAKE: ("clocks-power-brake", "the external power brake"),
    ClockReason.HARDWARE_THERMAL: ("clocks-thermal", "heat"),
    ClockReason.HARDWARE_SLOWDOWN: ("clocks-slowdown", "the hardware"),
}
"""The most telling reason first: the last one is set beside each of the others."""


def clock_faults(answer: NvmlAnswer, expected: Expectation) -> tuple[Fault, ...]:
    """The faults of one look alone, for recorded outputs, which have no more than that."""
    reasons = {gpu.address or str(gpu.index): gpu.clock_reasons or 0 for gpu in answer.gpus}
    return _faults(reasons, len(answer.gpus), expected, "now")


def sustained_clock_faults(answer: NvmlAnswer, expected: Expectation, history: GpuHistory) -> tuple[Fault, ...]:
    """The faults of what lasted for most of the last ten minutes."""
    reasons = {gpu.address: _sustained(history.clocks.get(gpu.address, ())) for gpu in answer.gpus if gpu.address}
    return _faults(reasons, len(answer.gpus), expected, "for most of the last 10 minutes")


def _sustained(samples: tuple[ClockSample, ...]) -> int:
    if len(samples) < _FEWEST_SAMPLES or samples[-1].at - samples[0].at < _SHORTEST.total_seconds():
        return 0
    enough = SUSTAINED_SHARE * len(samples)
    return sum(reason for reason in _CODES if sum(bool(sample.reasons & reason) for sample in samples) >= enough)


def _faults(reasons: Mapping[str, int], gpus: int, expected: Expectation, when: str) -> tuple[Fault, ...]:
    found = []
    for pci, bits in reasons.items():
        reason = next((reason for reason in _CODES if bits & reason), None)
        if reason is not None:
            code, words = _CODES[reason]
            found.append(gpu_fault(code, pci, expected, f"GPU {pci}: clocks held down by {words} {when}"))
    if len(found) == gpus > 1 and {fault.code for fault in found} == {"clocks-power-brake"}:
        return (host_fault("host-power-brake", expected, f"clocks of all {gpus} GPUs held down by power {when}"),)
    return tuple(found)
