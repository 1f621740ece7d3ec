"""The last look before a rung: each thing that may stand against it, and that nothing else does."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sickbay.faults import Component, ComponentKind, Fault, FaultClass, Rung, Severity
from sickbay.nodes import NodeOwner, NodeRef, NodeSnapshot, OwnerKind
from sickbay.permits import Permit
from sickbay.safety import Obstacle, objection_to_disrupting, objection_to_touching, outlived

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
OURS = "incident-c1-i-1"
NODE = NodeRef(cluster="c1", name="node-1", uid="uid-1", provider_id="aws:///a/i-1", pool="p5")
PERMIT = Permit(holder=OURS, epoch=1, granted_at=NOW, expires_at=NOW + timedelta(hours=1))
SOUND = NodeSnapshot(
    observed_at=NOW, exists=True, uid="uid-1", provider_id="aws:///a/i-1", incident_mark=OURS, unschedulable=True
)
GOING = NodeOwner(kind=OwnerKind.KARPENTER, name="claim-1", uid="claim-uid-1", deleting=True)

TOUCHING: list[tuple[dict[str, Any], Obstacle]] = [
    ({"exists": False}, Obstacle.NODE_GONE),
    ({"provider_id": "aws:///a/i-2"}, Obstacle.NODE_GONE),
    ({"deleting": True}, Obstacle.BEING_REPLACED),
    ({"owner": GOING}, Obstacle.BEING_REPLACED),
    ({"incident_mark": "incident-c1-i-9"}, Obstacle.OTHER_INCIDENT),
    ({"uncordoned_by_person": True}, Obstacle.PERSON_RELEASED),
]


def seen(**values: Any) -> NodeSnapshot:
    return SOUND.model_copy(update=values)


def test_nothing_stands_against_a_sound_node_under_permit() -> None:
    assert objection_to_touching(NODE, OURS, SOUND) is None
    assert objection_to_disrupting(NODE, OURS, SOUND, PERMIT, NOW) is None


def test_a_node_without_any_mark_may_be_touched() -> None:
    assert objection_to_touching(NODE, OURS, seen(incident_mark=None)) is None


@pytest.mark.parametrize(("values", "obstacle"), TOUCHING)
def test_what_forbids_to_touch_a_node_forbids_to_disrupt_it(values: dict[str, Any], obstacle: Obstacle) -> None:
    look = seen(**values)
    for objection in (
        objection_to_touching(NODE, OURS, look),
        objection_to_disrupting(NODE, OURS, look, PERMIT, NOW),
    ):
        assert objection is not None
        assert objection.obstacle is obstacle
        assert objection.reason


@pytest.mark.parametrize("values", [{"unschedulable": False}, {"incident_mark": None}])
def test_a_node_that_takes_new_work_is_not_disrupted(values: dict[str, Any]) -> None:
    objection = objection_to_disrupting(NODE, OURS, seen(**values), PERMIT, NOW)
    assert objection is not None
    assert objection.obstacle is Obstacle.NOT_CONTAINED


def test_the_lock_of_somebody_else_forbids_only_to_disrupt() -> None:
    look = seen(foreign_locks=("kured reboots the node", "driver upgrade"))
    objection = objection_to_disrupting(NODE, OURS, look, PERMIT, NOW)
    assert objection_to_touching(NODE, OURS, look) is None
    assert objection is not None
    assert (objection.obstacle, objection.reason) == (Obstacle.FOREIGN_LOCK, "kured reboots the node; driver upgrade")


@pytest.mark.parametrize("permit", [None, PERMIT.model_copy(update={"expires_at": NOW})])
def test_without_a_permit_in_hand_nothing_is_disrupted(permit: Permit | None) -> None:
    objection = objection_to_disrupting(NODE, OURS, SOUND, permit, NOW)
    assert objection is not None
    assert objection.obstacle is Obstacle.PERMIT_LOST


@given(st.lists(st.sampled_from([values for values, _ in TOUCHING]), min_size=1), st.booleans())
def test_more_trouble_never_makes_a_node_safer(troubles: list[dict[str, Any]], permitted: bool) -> None:
    merged = {name: value for trouble in troubles for name, value in trouble.items()}
    assert objection_to_disrupting(NODE, OURS, seen(**merged), PERMIT if permitted else None, NOW) is not None


def lost_gpu(boot_id: str | None, code: str = "xid-79") -> Fault:
    gpu = Component(kind=ComponentKind.GPU, id="0000:61:00")
    return Fault(
        code=code,
        component=gpu,
        fault_class=FaultClass.GPU,
        severity=Severity.FATAL,
        rung=Rung.REBOOT,
        boot_id=boot_id,
    )


def test_a_fault_of_an_earlier_boot_that_the_new_one_does_not_show_is_over() -> None:
    old, unknown, present = lost_gpu("boot-1"), lost_gpu(None), lost_gpu("boot-2")
    back = seen(boot_id="boot-2", conditions_fresh=True)
    assert outlived((old, unknown, present), back) == (old,)
    assert outlived((old,), back.model_copy(update={"faults": (present,)})) == ()


@pytest.mark.parametrize("values", [{"conditions_fresh": False}, {"boot_id": ""}])
def test_silence_in_the_new_boot_ends_no_fault(values: dict[str, Any]) -> None:
    back = seen(**{"boot_id": "boot-2", "conditions_fresh": True, **values})
    assert outlived((lost_gpu("boot-1"),), back) == ()
