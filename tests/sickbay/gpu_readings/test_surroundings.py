from typing import Any

import pytest

from sickbay.gpu_readings import told_besides, unjudged
from tests.sickbay.gpu_readings.answers import A10G, after, gpu, machine, pci, told


@pytest.mark.parametrize(
    ("reading", "codes"),
    [
        ({"temperature": 86, "slowdown_temperature": 87}, []),
        ({"temperature": 87, "slowdown_temperature": 87}, ["gpu-hot"]),
        ({"memory_temperature": 97, "memory_temperature_limit": 95}, ["gpu-hot"]),
        ({"temperature": 99}, []),
        ({"margin": -3, "temperature": 40, "slowdown_temperature": 87}, []),
        ({"mig_enabled": False, "mig_pending": True}, ["gpu-mode-pending"]),
        ({"ecc_pending": False}, ["gpu-mode-pending"]),
        ({"persistence": False, "gsp_enabled": False}, []),
    ],
)
def test_heat_counts_by_the_gpus_own_limits_and_modes_by_what_will_change(
    reading: dict[str, Any], codes: list[str]
) -> None:
    assert [code for code, _ in told(machine(gpu(0, **reading)))] == codes


def test_fewer_lanes_than_the_peers_or_than_before_are_a_fault() -> None:
    peers = machine(*(gpu(index, pcie_width=8 if index == 1 else 16, pcie_width_max=16) for index in range(4)))
    assert told(peers) == [("pcie-width-reduced", pci(1))]
    before, now = (machine(gpu(0, pcie_width=width, pcie_width_max=16)) for width in (16, 8))
    assert told(now, after(before, now)) == [("pcie-width-reduced", pci(0))]


def test_a_narrow_slot_and_a_low_generation_are_no_faults() -> None:
    slots = machine(*(gpu(index, A10G, pcie_width=8, pcie_width_max=16, pcie_generation=1) for index in range(4)))
    assert told(slots, after(slots)) == []


def test_modes_and_untold_questions_are_told_beside_health() -> None:
    answer = machine(gpu(0, persistence=False, unanswered={"recovery action": 3}), gpu(1))
    assert told_besides(answer) == "persistence mode off on 1 of 2 GPUs; not told: recovery action"
    assert unjudged(answer) == ()
