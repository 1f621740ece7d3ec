from datetime import timedelta
from typing import Any

import pytest

from sickbay.faults import Rung
from sickbay.gpu_readings import Topology, gpu_faults, product_of, under_way
from tests.sickbay.gpu_readings.answers import (
    A10G,
    A100,
    A100_PCIE,
    GB200,
    H100,
    V100,
    after,
    board,
    expected,
    gpu,
    links,
    machine,
    pci,
    told,
)

ALL = tuple(range(18))


@pytest.mark.parametrize(
    ("name", "topology", "remaps"),
    [
        ("NVIDIA H100 80GB HBM3", Topology.BOARD, True),
        ("NVIDIA H100 PCIe", Topology.BRIDGE, True),
        ("NVIDIA H100 NVL", Topology.BRIDGE, True),
        ("NVIDIA H200", Topology.BOARD, True),
        ("NVIDIA H200 NVL", Topology.BRIDGE, True),
        ("NVIDIA H20", Topology.BOARD, True),
        ("NVIDIA B200", Topology.BOARD, True),
        ("NVIDIA GB200", Topology.RACK, True),
        ("NVIDIA A100-SXM4-80GB", Topology.BOARD, True),
        ("NVIDIA A100-PCIE-40GB", Topology.BRIDGE, True),
        ("NVIDIA A100 80GB PCIe", Topology.BRIDGE, True),
        ("NVIDIA A10", Topology.NONE, True),
        ("NVIDIA A10G", Topology.NONE, True),
        ("NVIDIA L40S", Topology.NONE, True),
        ("Tesla T4", Topology.NONE, False),
        ("Tesla V100-SXM2-16GB", Topology.BOARD, False),
        ("A100-SXM-80GB", Topology.BOARD, True),
        ("NVIDIA L4-3Q", Topology.NONE, None),
        ("NVIDIA A10-24Q", Topology.NONE, None),
        ("GRID A100-1-5C", Topology.NONE, None),
        ("NVIDIA GeForce RTX 4090", Topology.UNKNOWN, None),
        ("", Topology.UNKNOWN, None),
    ],
)
def test_products_are_known_by_their_names(name: str, topology: Topology, remaps: bool | None) -> None:
    assert (product_of(name).topology, product_of(name).remaps_rows) == (topology, remaps)


def test_absent_bridges_are_no_links_that_are_down() -> None:
    """detection 8.16"""
    cards = machine(*(gpu(index, A100_PCIE, links=links(12, down=tuple(range(12)))) for index in range(2)))
    assert told(cards) == []
    assert under_way(cards, expected(timedelta())) == ()


def test_of_bridged_cards_only_a_link_that_was_up_can_be_down() -> None:
    three = tuple(range(4, 12))
    bridged = machine(*(gpu(index, A100_PCIE, links=links(12, down=three)) for index in range(2)))
    broken = machine(gpu(0, A100_PCIE, links=links(12, down=(0, *three))), *bridged.gpus[1:])
    assert told(bridged, after(bridged)) == []
    assert told(broken, after(bridged, broken)) == [("nvlink-down", pci(0))]


@pytest.mark.parametrize(("name", "count", "link_count"), [(H100, 8, 18), (A100, 8, 12), (GB200, 4, 18)])
def test_a_link_that_is_down_on_a_switched_board_is_a_fault_at_first_sight(
    name: str, count: int, link_count: int
) -> None:
    answer = board(count, name, link_count, links=links(link_count, down=(4,)))
    assert told(answer) == [("nvlink-down", pci(2))]


def test_one_gpu_without_links_among_peers_with_links_is_a_fault() -> None:
    assert told(board(links=links(18, down=ALL))) == [("nvlink-down", pci(2))]
    assert told(board(4, links=links(18, down=ALL)), switched=False) == [("nvlink-down", pci(2))]


def test_on_boards_without_switches_some_links_lead_nowhere() -> None:
    answer = machine(*(gpu(index, V100, links=links(6, down=(1, 5))) for index in range(4)))
    assert told(answer) == []
    assert told(board(4, links=links(18, down=(1,))), switched=False) == []


def test_no_link_at_all_on_a_switched_board_is_one_fault_once_training_is_over() -> None:
    answer = machine(*(gpu(index, links=links(18, down=ALL)) for index in range(8)))
    soon = timedelta(minutes=9)
    assert told(answer, since_boot=soon) == []
    assert under_way(answer, expected(soon)) == ("NVLinks are not up yet",)
    assert told(answer) == [("nvlink-all-down", "host")]


def test_where_nobody_sees_switches_a_board_without_links_is_a_person_s() -> None:
    """A virtual machine may have eight GPUs of a board, and its host the switches."""
    answer = machine(*(gpu(index, links=links(18, down=ALL)) for index in range(8)))
    rungs = [gpu_faults(answer, expected(switched=switched))[0].rung for switched in (True, None)]
    assert rungs == [Rung.REBOOT, Rung.HUMAN]
    assert told(answer, switched=False) == []


def test_links_that_train_one_after_the_other_after_a_boot_are_not_down() -> None:
    answer = board(links=links(18, down=(4, 5)))
    soon = timedelta(minutes=2)
    assert told(answer, after(board(), answer), since_boot=soon) == []
    assert under_way(answer, expected(soon)) == ("NVLinks are not up yet",)
    assert told(answer) == [("nvlink-down", pci(2))]


@pytest.mark.parametrize(
    "reading",
    [
        {"mig_enabled": True, "links": links(18, down=ALL)},
        {"mig_enabled": True, "links": ()},
        {"links": None},
        {"links": ()},
    ],
)
def test_links_that_are_off_for_mig_or_were_not_told_are_not_down(reading: dict[str, Any]) -> None:
    well = board()
    assert told(board(**reading), after(well, board(**reading))) == []


def test_a_product_without_links_has_none_to_be_down() -> None:
    assert told(machine(gpu(0, A10G, links=()))) == []


def test_an_unknown_product_is_judged_by_what_it_showed() -> None:
    before = machine(gpu(0, "NVIDIA X9000", links=links(4, down=(3,))))
    now = machine(gpu(0, "NVIDIA X9000", links=links(4, down=(2, 3))))
    assert told(before, after(before)) == []
    assert told(now, after(before, now)) == [("nvlink-down", pci(0))]


def test_errors_count_by_their_growth_and_a_reset_is_a_new_base() -> None:
    def erring(replays: int) -> Any:
        return board(links=links(18, replays=replays))

    assert told(erring(9_000), after(erring(9_000))) == []
    assert told(erring(9_101), after(erring(9_000), erring(9_101))) == [("nvlink-errors", pci(2))]
    assert told(erring(50), after(erring(9_000), erring(50))) == []
    assert told(erring(151), after(erring(9_000), erring(50), erring(151))) == [("nvlink-errors", pci(2))]


def test_a_link_that_could_not_be_brought_back_is_told_at_once() -> None:
    before, now = (board(links=links(18, failed_recoveries=count)) for count in (3, 4))
    assert told(now, after(before, now)) == [("nvlink-recovery-failed", pci(2))]
