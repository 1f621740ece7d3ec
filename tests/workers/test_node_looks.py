"""What the watch remembers from look to look, and when it expects agents."""

from datetime import UTC, datetime, timedelta

import pytest

from sickbay import names
from sickbay.conditions import FaultsAnnotation
from sickbay.kube_objects import Node
from sickbay.watch_faults import AgentsExpected, WatchRules
from workers.node_looks import NodeLooks

START = datetime(2026, 5, 1, 12, 0, tzinfo=UTC)
LATER = START + timedelta(minutes=11)


def node(name: str, *, agent: bool = False, boot: str = "boot-1", reported: str = "boot-1") -> Node:
    beat = LATER.isoformat()
    conditions = [{"type": "Ready", "status": "True", "lastTransitionTime": (START - timedelta(days=1)).isoformat()}]
    annotations = {}
    if agent:
        conditions += [{"type": kind, "status": "True", "lastHeartbeatTime": beat} for kind in names.CONDITIONS]
        told = FaultsAnnotation(boot_id=reported, reported_at=LATER)
        annotations[names.ANNOTATION_FAULTS] = told.model_dump_json()
    return Node.model_validate(
        {
            "metadata": {
                "name": name,
                "uid": f"u-{name}",
                "annotations": annotations,
                "creationTimestamp": (START - timedelta(days=1)).isoformat(),
            },
            "status": {
                "conditions": conditions,
                "nodeInfo": {"bootID": boot},
                "capacity": {"nvidia.com/gpu": "8"},
                "allocatable": {"nvidia.com/gpu": "8"},
            },
        }
    )


def codes(looks: NodeLooks, seen: Node, now: datetime) -> list[str]:
    return [fault.code for fault in looks.look(seen, now).faults]


@pytest.mark.parametrize(
    ("expected", "others", "found"),
    [
        (AgentsExpected.AUTO, False, []),
        (AgentsExpected.AUTO, True, ["agent-missing"]),
        (AgentsExpected.YES, False, ["agent-missing"]),
        (AgentsExpected.NO, True, []),
    ],
)
def test_agents_are_expected_by_the_setting_or_once_one_has_reported(
    expected: AgentsExpected, others: bool, found: list[str]
) -> None:
    bare, other = node("n1"), node("n2", agent=others)
    looks = NodeLooks({each.metadata.uid: each for each in (bare, other)}, WatchRules(agents=expected))
    assert codes(looks, bare, START) == []
    assert codes(looks, bare, LATER) == found


def test_a_rollout_of_agents_over_an_old_fleet_blocks_none_of_its_nodes() -> None:
    bare, other = node("n1"), node("n2")
    nodes = {each.metadata.uid: each for each in (bare, other)}
    looks = NodeLooks(nodes, WatchRules())
    looks.look(bare, START)
    nodes["u-n2"] = node("n2", agent=True)
    assert codes(looks, bare, LATER) == []
    assert codes(looks, bare, LATER + timedelta(minutes=11)) == ["agent-missing"]


def test_agents_stay_expected_when_the_only_node_that_had_one_is_gone() -> None:
    bare, other = node("n1"), node("n2", agent=True)
    nodes = {each.metadata.uid: each for each in (bare, other)}
    looks = NodeLooks(nodes, WatchRules())
    looks.look(bare, START)
    del nodes["u-n2"]
    assert codes(looks, bare, LATER) == ["agent-missing"]


def test_a_boot_is_remembered_from_look_to_look_and_forgotten_with_its_node() -> None:
    stale = node("n1", agent=True, boot="boot-2", reported="boot-1")
    looks = NodeLooks({"u-n1": stale}, WatchRules())
    assert codes(looks, stale, LATER - timedelta(minutes=4)) == []
    assert codes(looks, stale, LATER + timedelta(minutes=2)) == ["monitor-silent"]
    looks.forget("u-n1")
    assert codes(looks, stale, LATER + timedelta(minutes=2)) == []
