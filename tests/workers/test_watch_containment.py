"""What the cap on the watch's own cordons counts."""

from datetime import UTC, datetime, timedelta

import pytest
from kubernetes.aio.client import ApiClient

from activities import node_marks
from activities.errors import PassingError
from activities.node_models import Containment, ContainRequest
from sickbay import names
from sickbay.kube_objects import Node
from sickbay.node_reading import reference
from sickbay.policy.model import ContainmentPolicy, Limit, TaintPolicy
from workers.watch_containment import TRIED_WITHIN, WatchAnswer, WatchContainment


def gpu_node(name: str, *, tainted: bool = False, **annotations: str) -> Node:
    written = {f"{names.DOMAIN}/{key.replace('_', '-')}": value for key, value in annotations.items()}
    return Node.model_validate(
        {
            "metadata": {"name": name, "uid": f"uid-{name}", "annotations": written},
            "spec": {"taints": [{"key": names.TAINT_ADMISSION, "effect": "NoSchedule"}] if tainted else []},
            "status": {"capacity": {"nvidia.com/gpu": "8"}},
        }
    )


async def test_a_containment_that_failed_counts_while_its_incident_may_still_contain(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [datetime(2026, 3, 1, tzinfo=UTC)]
    failing = True

    async def contain(api: ApiClient, request: ContainRequest) -> Containment:
        if failing:
            raise PassingError("the API server is away")
        return Containment(contained=True)

    monkeypatch.setattr(node_marks, "contain", contain)
    first, second = gpu_node("n1"), gpu_node("n2")
    nodes = {node.metadata.uid: node for node in (first, second)}
    cap = ContainmentPolicy(cap=Limit(count=1, percent=100))
    containment = WatchContainment(ApiClient(), nodes, lambda: cap, lambda: now[0])
    assert await containment.contain(reference(first, "lab"), "incident-1", TaintPolicy()) is WatchAnswer.NOT_NOW
    failing = False
    second_ref = reference(second, "lab")
    assert await containment.contain(second_ref, "incident-2", TaintPolicy()) is WatchAnswer.BEYOND_CAP
    now[0] += TRIED_WITHIN + timedelta(seconds=1)
    assert await containment.contain(second_ref, "incident-2", TaintPolicy()) is WatchAnswer.CONTAINED


@pytest.mark.parametrize(
    ("other", "answer"),
    [
        (gpu_node("new", tainted=True, incident="incident-lab-new"), WatchAnswer.CONTAINED),
        (gpu_node("new", tainted=True, incident="incident-lab-new", admitted_boot="boot-1"), WatchAnswer.BEYOND_CAP),
        (gpu_node("new", incident="incident-lab-new"), WatchAnswer.BEYOND_CAP),
    ],
    ids=["has not worked yet", "was held back", "worked"],
)
async def test_nodes_that_fail_their_first_validation_leave_the_cap_to_those_that_work(
    monkeypatch: pytest.MonkeyPatch, other: Node, answer: WatchAnswer
) -> None:
    async def contain(api: ApiClient, request: ContainRequest) -> Containment:
        return Containment(contained=True)

    monkeypatch.setattr(node_marks, "contain", contain)
    sick = gpu_node("n1")
    nodes = {node.metadata.uid: node for node in (sick, other)}
    cap = ContainmentPolicy(cap=Limit(count=1, percent=100))
    containment = WatchContainment(ApiClient(), nodes, lambda: cap, lambda: datetime(2026, 3, 1, tzinfo=UTC))
    assert await containment.contain(reference(sick, "lab"), "incident-1", TaintPolicy()) is answer
