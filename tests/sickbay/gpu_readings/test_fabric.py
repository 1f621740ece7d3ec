from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sickbay.gpu_readings import FabricAnswer, NvmlAnswer, under_way
from sickbay.gpu_readings.fabric import troubles_of
from tests.sickbay.gpu_readings.answers import (
    A100_PCIE,
    CLUSTER,
    GB200,
    H100,
    board,
    expected,
    gpu,
    links,
    machine,
    pci,
    told,
)

FINE = 0b10_10_10_10 | 1 << 8
SOON = timedelta(minutes=9)


def rack(**sick: object) -> NvmlAnswer:
    """Four GPUs of a rack, the third one as given."""
    fine = {"state": 3, "status": 0, "cluster_uuid": CLUSTER, "clique": 1, "health_mask": FINE, "health_summary": 1}
    return machine(
        *(
            gpu(index, GB200, links=links(18), fabric=FabricAnswer.model_validate(fine | (sick if index == 2 else {})))
            for index in range(4)
        )
    )


def test_a_registered_board_is_well_without_a_cluster() -> None:
    """detection 8.15: what a Hopper board without a rack shows beside its success is no fault."""
    zero = FabricAnswer(state=3, status=0, cluster_uuid="00000000-0000-0000-0000-000000000000", health_summary=0)
    assert told(board(fabric=zero)) == []
    assert told(rack()) == []


def test_a_registration_that_ended_badly_is_a_fault() -> None:
    """detection 8.15: completed, with insufficient resources and an all-zero cluster."""
    refused = FabricAnswer(state=3, status=23, cluster_uuid="0" * 32)
    assert told(board(fabric=refused)) == [("fabric-refused", pci(2))]


def test_in_a_rack_a_gpu_without_a_cluster_is_a_fault() -> None:
    assert told(rack(cluster_uuid="0" * 32)) == [("fabric-refused", pci(2))]
    assert told(rack(state=0)) == [("fabric-not-ready", pci(2))]


@pytest.mark.parametrize("state", [1, 2])
def test_a_wait_for_the_fabric_manager_is_bounded(state: int) -> None:
    """detection 8.14: seven of eight GPUs are ready, one stays in progress."""
    answer = board(fabric=FabricAnswer(state=state))
    assert told(answer, since_boot=SOON) == []
    assert under_way(answer, expected(SOON)) == ("1 GPUs wait for the fabric manager",)
    assert told(answer) == [("fabric-not-ready", pci(2))]
    assert under_way(answer, expected()) == ()


def test_a_recording_does_not_tell_how_long_it_has_waited() -> None:
    answer = board(fabric=FabricAnswer(state=2))
    assert told(answer, since_boot=None) == []
    assert under_way(answer, expected(None)) == ("1 GPUs wait for the fabric manager",)


def test_when_all_wait_the_machine_has_one_fault() -> None:
    answer = machine(*(gpu(index, H100, fabric=FabricAnswer(state=2)) for index in range(8)))
    assert told(answer) == [("fabric-not-started", "host")]


@pytest.mark.parametrize(
    "answer",
    [
        machine(gpu(0, H100, fabric=FabricAnswer(state=2))),
        machine(gpu(0, A100_PCIE, fabric=FabricAnswer(state=0)), gpu(1, A100_PCIE, fabric=FabricAnswer(state=0))),
        machine(gpu(0, H100, fabric=None), gpu(1, H100, fabric=FabricAnswer())),
    ],
)
def test_a_gpu_alone_or_without_a_fabric_waits_for_nothing(answer: NvmlAnswer) -> None:
    assert told(answer) == []
    assert under_way(answer, expected(None)) == ()


@pytest.mark.parametrize(
    ("mask", "codes"),
    [
        (0, []),
        (FINE, []),
        (FINE | 1 << 12, []),
        (2 << 12, []),
        (1 << 0, ["fabric-degraded"]),
        (1 << 2, ["fabric-degraded"]),
        (1 << 4, ["fabric-unhealthy"]),
        (1 << 6, ["fabric-degraded"]),
        (0b11_11_11_11, []),
        (5 << 8, ["fabric-misconfigured"]),
        (12 << 8, ["fabric-misconfigured"]),
        (0x7FFFFFFFFFFFFFF0, []),
        (0x7FFFFFF2, []),
        (0xFFFFFFF1, []),
        (-1, []),
        (None, []),
    ],
)
def test_the_health_mask_is_read_field_by_field(mask: int | None, codes: list[str]) -> None:
    assert [trouble.code for trouble in troubles_of(FabricAnswer(state=3, health_mask=mask))] == codes


def test_summary_and_mask_make_one_fault_of_one_kind() -> None:
    assert told(rack(health_summary=2, health_mask=FINE ^ 0b11 << 4)) == [("fabric-unhealthy", pci(2))]
    assert told(rack(health_summary=3, health_mask=1 << 4)) == [
        ("fabric-degraded", pci(2)),
        ("fabric-unhealthy", pci(2)),
    ]


@given(st.integers(-1, 1 << 64), st.integers(0, 255), st.integers(0, 255), st.text(max_size=40))
def test_nothing_that_a_fabric_tells_makes_the_rules_fail(mask: int, state: int, summary: int, uuid: str) -> None:
    fabric = FabricAnswer(state=state, status=0, cluster_uuid=uuid, health_mask=mask, health_summary=summary)
    told(board(fabric=fabric))
