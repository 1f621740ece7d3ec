"""What one look does not prove, and what it does."""

from collections.abc import Mapping
from datetime import timedelta

import pytest

from sickbay.catalogue import codes, fault_of
from sickbay.faults import Component, ComponentKind, Fault, Rung
from sickbay.gpu_readings import Doubt, certain
from tests.sickbay.gpu_readings.answers import NOW, pci


def fault(code: str, gpu: int = 0) -> Fault:
    return fault_of(code, Component(kind=ComponentKind.GPU, id=pci(gpu)), evidence=(f"{code} of GPU {gpu}",))


def proven(*looks: tuple[Fault, ...], apart: timedelta = timedelta(seconds=30)) -> list[set[str]]:
    """Codes that each of some looks in a row has proven."""
    doubts: Mapping[str, Doubt] = {}
    found = []
    for number, shown in enumerate(looks):
        told = certain(shown, doubts, NOW + number * apart, 2)
        doubts = told.doubts
        found.append({fault.code for fault in told.faults})
    return found


@pytest.mark.parametrize("code", ["gpu-missing", "nvlink-down", "gpu-hot", "driver-not-loaded"])
def test_a_moment_proves_nothing_and_two_looks_in_a_row_do(code: str) -> None:
    assert proven((fault(code),), (fault(code),)) == [set(), {code}]
    assert proven((fault(code),), (), (fault(code),)) == [set(), set(), set()]


@pytest.mark.parametrize("code", ["nvlink-all-down", "fabric-not-ready", "fabric-not-started"])
def test_a_fabric_that_is_set_up_anew_has_five_minutes(code: str) -> None:
    every_minute = proven(*[(fault(code),)] * 7, apart=timedelta(minutes=1))
    assert every_minute == [set()] * 5 + [{code}] * 2


@pytest.mark.parametrize(
    "code", ["gpu-lost", "gpu-reset-required", "gpu-recovery-action", "row-remap-failed", "xid-79"]
)
def test_what_stays_until_it_is_cured_counts_at_once(code: str) -> None:
    assert proven((fault(code),)) == [{code}]


def test_a_link_of_another_gpu_has_a_second_look_of_its_own() -> None:
    first, second = (fault("nvlink-down", 0),), (fault("nvlink-down", 1),)
    assert proven(first, second) == [set(), set()]


def test_missing_gpus_are_one_doubt_whoever_of_them_can_be_named() -> None:
    assert proven((fault("gpu-missing", 0),), (fault("gpu-missing", 1),)) == [set(), {"gpu-missing"}]


def test_where_no_other_look_follows_all_counts_but_a_missing_gpu() -> None:
    shown = (fault("gpu-missing"), fault("nvlink-all-down"))
    told = certain(shown, {}, NOW, 2, only=True)
    assert [fault.code for fault in told.faults] == ["nvlink-all-down"]
    assert told.unsure == ("gpu-missing of GPU 0; further looks decide",)


def test_nothing_that_disrupts_is_proven_by_a_look_at_what_comes_and_goes() -> None:
    """Links, registrations and heat are read anew at each look; only these codes of NVML's may be a moment's."""
    momentary = [code for code in codes() if code.startswith(("nvlink-", "fabric-not", "gpu-hot", "gpu-missing"))]
    disrupting = [code for code in momentary if fault(code).rung.disrupts]
    from_logs = {"nvlink-training-failed", "nvlink-uncorrectable"}
    assert set(disrupting) - from_logs
    assert not any(proven((fault(code),))[0] for code in disrupting if code not in from_logs)
    assert fault("gpu-hot").rung is Rung.BLOCK_NEW_WORK
