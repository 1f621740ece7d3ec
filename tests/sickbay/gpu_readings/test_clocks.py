from datetime import timedelta

import pytest

from sickbay.gpu_readings import ClockReason, GpuAnswer, NvmlAnswer, clock_faults
from tests.sickbay.gpu_readings.answers import after, expected, gpu, machine, pci, told

BRAKE = ClockReason.HARDWARE_SLOWDOWN | ClockReason.POWER_BRAKE
HEAT = ClockReason.HARDWARE_SLOWDOWN | ClockReason.HARDWARE_THERMAL


def slow(index: int, reasons: int | None) -> GpuAnswer:
    return gpu(index, clock_reasons=reasons)


def passes(*reasons: int | None) -> list[NvmlAnswer]:
    """Passes over two GPUs, of which the first one's clocks are held down."""
    return [machine(slow(0, why), slow(1, ClockReason.IDLE)) for why in reasons]


@pytest.mark.parametrize(
    ("reasons", "code"),
    [
        (BRAKE, "clocks-power-brake"),
        (HEAT, "clocks-thermal"),
        (ClockReason.HARDWARE_SLOWDOWN, "clocks-slowdown"),
        (HEAT | 0x800, "clocks-thermal"),
    ],
)
def test_clocks_that_the_hardware_holds_down_for_ten_minutes_are_a_fault(reasons: int, code: str) -> None:
    history = after(*passes(*[reasons] * 20))
    assert told(passes(reasons)[0], history) == [(code, pci(0))]


@pytest.mark.parametrize(
    "reasons",
    [
        [ClockReason.IDLE] * 20,
        [ClockReason.SOFTWARE_POWER_CAP] * 20,
        [ClockReason.SOFTWARE_THERMAL | ClockReason.APPLICATION_SETTING] * 20,
        [HEAT] * 11 + [0] * 9,
        [HEAT] * 6,
        [None] * 20,
    ],
)
def test_what_is_short_or_wanted_is_no_fault(reasons: list[int | None]) -> None:
    assert told(passes(0)[0], after(*passes(*reasons))) == []


def test_most_of_the_time_is_enough() -> None:
    assert told(passes(0)[0], after(*passes(*[HEAT] * 12, *[0] * 8))) == [("clocks-thermal", pci(0))]


def test_looks_of_an_hour_ago_count_no_more() -> None:
    assert told(passes(0)[0], after(*passes(*[HEAT] * 20, 0), apart=timedelta(minutes=15))) == []


def test_a_power_brake_on_all_gpus_is_one_fault_of_the_machine() -> None:
    answer = machine(*(slow(index, BRAKE) for index in range(8)))
    assert told(answer, after(*[answer] * 20)) == [("host-power-brake", "host")]
    assert [fault.code for fault in clock_faults(answer, expected())] == ["host-power-brake"]


def test_one_gpu_alone_that_brakes_is_not_the_machine() -> None:
    answer = machine(slow(0, BRAKE))
    assert told(answer, after(*[answer] * 20)) == [("clocks-power-brake", pci(0))]


def test_one_look_is_enough_for_a_recording_alone() -> None:
    answer = machine(slow(0, HEAT), slow(1, 0))
    assert [fault.code for fault in clock_faults(answer, expected())] == ["clocks-thermal"]
    assert told(answer, after(answer)) == []
