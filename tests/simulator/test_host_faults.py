"""Which repair ends which fault, and how several troubles of one GPU add up."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from simulator.host.faults import Cure, FaultBoard, HostFault, HostTrouble
from simulator.host.gpu import WELL, GpuTrouble, RecoveryAction, combine, identities

TROUBLES = st.builds(
    GpuTrouble,
    lost=st.booleans(),
    reset_required=st.booleans(),
    nvml_error=st.sampled_from([0, 10, 999]),
    hangs=st.booleans(),
    recovery_action=st.sampled_from(RecoveryAction),
    remap_failed=st.booleans(),
    uncorrected_errors=st.integers(0, 9),
    nvlinks_down=st.lists(st.integers(0, 17), unique=True).map(lambda links: tuple(sorted(links))),
)


def fault(cured_by: Cure, gpu: int | None = 0) -> HostFault:
    trouble = GpuTrouble(lost=True) if gpu is not None else GpuTrouble()
    return HostFault(
        gpu=gpu, gpu_trouble=trouble, cured_by=cured_by, passes_after=1 if cured_by is Cure.ITSELF else None
    )


@given(st.lists(TROUBLES, max_size=4))
def test_the_order_of_troubles_does_not_matter(troubles: list[GpuTrouble]) -> None:
    assert combine(troubles) == combine(reversed(troubles))


@given(TROUBLES)
def test_a_healthy_part_adds_nothing(trouble: GpuTrouble) -> None:
    if trouble.recovery_action is not RecoveryAction.UNTOLD:
        assert combine([trouble, WELL]) == trouble


def test_the_driver_tells_the_gravest_recovery_action() -> None:
    reset, reboot = (GpuTrouble(recovery_action=action) for action in ("gpu_reset", "node_reboot"))
    assert combine([reset, reboot]).recovery_action is RecoveryAction.NODE_REBOOT


@pytest.mark.parametrize(("cure", "left"), [(Cure.ITSELF, 0), (Cure.RESET, 0), (Cure.REBOOT, 1), (Cure.REPLACE, 1)])
def test_a_reset_ends_what_it_can_and_hides_the_rest(cure: Cure, left: int) -> None:
    board = FaultBoard()
    board.add(fault(cure))
    assert len(board.reset_gpu(0)) == left
    assert len(board.open) == left
    assert board.gpu_trouble(0) == WELL


@pytest.mark.parametrize(("cure", "left"), [(Cure.ITSELF, 0), (Cure.RESET, 0), (Cure.REBOOT, 0), (Cure.REPLACE, 1)])
def test_a_reboot_ends_what_it_can_and_shows_the_rest(cure: Cure, left: int) -> None:
    board = FaultBoard()
    board.add(fault(cure))
    board.reset_gpu(0)
    assert len(board.reboot()) == left
    assert board.gpu_trouble(0).lost is bool(left)


def test_a_reset_does_not_touch_other_gpus_nor_the_host() -> None:
    board = FaultBoard()
    board.add(fault(Cure.RESET, gpu=1))
    board.add(HostFault(host_trouble=HostTrouble(kubelet_silent=True), cured_by=Cure.REBOOT))
    assert board.reset_gpu(0) == []
    assert len(board.open) == 2
    assert any(trouble.kubelet_silent for trouble in board.host_troubles())


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"cured_by": "itself"}, "give passes_after"),
        ({"cured_by": "reboot", "passes_after": 5}, "give passes_after"),
        ({"cured_by": "reset"}, "only a GPU's fault can be cured by a reset"),
        ({"cured_by": "reboot", "gpu_trouble": {"lost": True}}, "gpu_trouble needs a gpu"),
        ({"cured_by": "reboot", "kernel_log": ["xid-998"]}, "no kernel lines are known"),
    ],
)
def test_a_fault_that_cannot_be_is_refused(words: dict[str, object], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        HostFault.model_validate(words)


def test_gpus_of_two_machines_are_never_the_same() -> None:
    one, other = identities("i-1", 8), identities("i-2", 8)
    assert identities("i-1", 8) == one
    assert len({gpu.uuid for gpu in one + other}) == 16
    assert len({gpu.serial for gpu in one + other}) == 16
