import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from kubernetes.aio import client

from activities.errors import FinalError, PassingError
from activities.nodes import (
    BootWait,
    ContainRequest,
    NodeActivities,
    NodeEvent,
    NodeQuery,
    PoolQuery,
    ReleaseRequest,
    SuccessorWait,
)
from sickbay import names
from sickbay.nodes import NodeRef, OwnerKind
from sickbay.policy.model import TaintPolicy
from simulator.kube.faults import RequestFault
from simulator.kube.requests import MERGE_PATCH
from tests.kube_under_test import KubeUnderTest

pytestmark = pytest.mark.kube

INCIDENT = "incident-c1-i-0abc"
TAINTED = TaintPolicy(enabled=True)
QUICK = timedelta(milliseconds=20)
SOON, NEVER = timedelta(seconds=30), timedelta()


@pytest.fixture
def nodes(kube_server: KubeUnderTest) -> NodeActivities:
    return NodeActivities(kube_server.api_client(), look_every=QUICK)


async def make_node(kube: KubeUnderTest, name: str = "node-a", **parts: Any) -> NodeRef:
    made = await kube.create_node(name, **parts)
    return NodeRef(cluster="c1", name=name, uid=str(made["metadata"]["uid"]))


async def node_of(kube: KubeUnderTest, ref: NodeRef) -> dict[str, Any]:
    return await kube.request("GET", f"/api/v1/nodes/{ref.name}")


async def version_of(kube: KubeUnderTest, ref: NodeRef) -> str:
    return str((await node_of(kube, ref))["metadata"]["resourceVersion"])


async def is_cordoned(kube: KubeUnderTest, ref: NodeRef) -> bool:
    return bool((await node_of(kube, ref))["spec"].get("unschedulable"))


async def patch_as(kube: KubeUnderTest, manager: str, ref: NodeRef, patch: dict[str, Any]) -> None:
    await kube.request("PATCH", f"/api/v1/nodes/{ref.name}?fieldManager={manager}", patch, MERGE_PATCH)


def contain_request(ref: NodeRef, taint: TaintPolicy = TAINTED, incident: str = INCIDENT) -> ContainRequest:
    return ContainRequest(node=ref, incident_id=incident, taint=taint)


async def test_a_contained_and_released_node_is_as_it_was(kube_server: KubeUnderTest, nodes: NodeActivities) -> None:
    foreign = {"key": "dedicated", "value": "gpu", "effect": "NoSchedule"}
    ref = await make_node(kube_server, annotations={"note": "mine"}, taints=[foreign])
    before = await node_of(kube_server, ref)

    assert (await nodes.contain_node(contain_request(ref))).contained
    held = await node_of(kube_server, ref)
    assert held["spec"]["unschedulable"]
    assert held["metadata"]["annotations"][names.ANNOTATION_INCIDENT] == INCIDENT
    assert (names.TAINT_INCIDENT, INCIDENT) in [(taint["key"], taint.get("value")) for taint in held["spec"]["taints"]]

    assert (await nodes.release_node(ReleaseRequest(node=ref, incident_id=INCIDENT))).released
    after = await node_of(kube_server, ref)
    assert after["metadata"]["annotations"] == before["metadata"]["annotations"]
    assert after["spec"] == before["spec"]


async def test_contain_and_release_may_be_repeated(kube_server: KubeUnderTest, nodes: NodeActivities) -> None:
    ref = await make_node(kube_server)
    first = await nodes.contain_node(contain_request(ref))
    version = await version_of(kube_server, ref)
    assert await nodes.contain_node(contain_request(ref)) == first
    assert await version_of(kube_server, ref) == version

    release = ReleaseRequest(node=ref, incident_id=INCIDENT)
    assert await nodes.release_node(release) == await nodes.release_node(release)
    assert not await is_cordoned(kube_server, ref)


async def test_a_persons_cordon_outlives_the_incident(kube_server: KubeUnderTest, nodes: NodeActivities) -> None:
    ref = await make_node(kube_server)
    await patch_as(kube_server, "kubectl-cordon", ref, {"spec": {"unschedulable": True}})
    assert (await nodes.contain_node(contain_request(ref))).prior_unschedulable
    assert (await nodes.release_node(ReleaseRequest(node=ref, incident_id=INCIDENT))).left_cordoned
    assert await is_cordoned(kube_server, ref)


async def test_a_persons_uncordon_during_the_incident_is_an_order(
    kube_server: KubeUnderTest, nodes: NodeActivities
) -> None:
    ref = await make_node(kube_server)
    await nodes.contain_node(contain_request(ref))
    await patch_as(kube_server, "kubectl-uncordon", ref, {"spec": {"unschedulable": None}})

    assert (await nodes.observe_node(NodeQuery(node=ref))).uncordoned_by_person
    again = await nodes.contain_node(contain_request(ref))
    assert (again.contained, again.uncordoned_by_person) == (False, True)
    assert not await is_cordoned(kube_server, ref)


async def test_a_person_who_cordons_anew_during_the_incident_keeps_the_cordon(
    kube_server: KubeUnderTest, nodes: NodeActivities
) -> None:
    ref = await make_node(kube_server)
    await nodes.contain_node(contain_request(ref))
    for value in (None, True):
        await patch_as(kube_server, "kubectl", ref, {"spec": {"unschedulable": value}})
    assert (await nodes.release_node(ReleaseRequest(node=ref, incident_id=INCIDENT))).left_cordoned


async def test_our_own_cordon_is_recognised_as_ours(kube_server: KubeUnderTest, nodes: NodeActivities) -> None:
    ref = await make_node(kube_server)
    await nodes.contain_node(contain_request(ref))
    seen = await nodes.observe_node(NodeQuery(node=ref))
    assert (seen.unschedulable, seen.prior_unschedulable, seen.uncordoned_by_person) == (True, False, False)
    assert seen.incident_mark == INCIDENT


async def test_another_incidents_node_is_left_alone(kube_server: KubeUnderTest, nodes: NodeActivities) -> None:
    ref = await make_node(kube_server)
    await nodes.contain_node(contain_request(ref, incident="incident-other"))
    refused = await nodes.contain_node(contain_request(ref))
    assert (refused.contained, refused.other_incident) == (False, "incident-other")
    await nodes.release_node(ReleaseRequest(node=ref, incident_id=INCIDENT))
    assert (await node_of(kube_server, ref))["metadata"]["annotations"][names.ANNOTATION_INCIDENT] == "incident-other"


async def test_a_node_of_the_same_name_with_another_uid_is_another_node(
    kube_server: KubeUnderTest, nodes: NodeActivities
) -> None:
    ref = await make_node(kube_server)
    old = ref.model_copy(update={"uid": "11111111-1111-1111-1111-111111111111"})
    assert (await nodes.contain_node(contain_request(old))).node_gone
    assert (await nodes.release_node(ReleaseRequest(node=old, incident_id=INCIDENT))).node_gone
    assert not (await nodes.observe_node(NodeQuery(node=old))).exists
    assert not await is_cordoned(kube_server, ref)


async def test_two_writers_at_once_lose_nothing(kube_server: KubeUnderTest, nodes: NodeActivities) -> None:
    ref = await make_node(kube_server)

    async def kubelet() -> None:
        for beat in range(5):
            await patch_as(kube_server, "kubelet", ref, {"metadata": {"annotations": {"beat": str(beat)}}})

    containment, _ = await asyncio.gather(nodes.contain_node(contain_request(ref)), kubelet())
    assert containment.contained
    annotations = (await node_of(kube_server, ref))["metadata"]["annotations"]
    assert (annotations["beat"], annotations[names.ANNOTATION_INCIDENT]) == ("4", INCIDENT)


async def test_a_write_whose_answer_was_lost_is_not_repeated(kube_server: KubeUnderTest, nodes: NodeActivities) -> None:
    if kube_server.simulator is None:
        pytest.skip("a real API server loses no answers on order")
    ref = await make_node(kube_server)
    kube_server.simulator.faults.add(RequestFault(method="PATCH", path="/nodes/", status=504, after_work=True))
    with pytest.raises(PassingError):
        await nodes.contain_node(contain_request(ref))
    version = await version_of(kube_server, ref)
    assert (await nodes.contain_node(contain_request(ref))).prior_unschedulable is False
    assert await version_of(kube_server, ref) == version


@pytest.mark.parametrize(("code", "final"), [(401, True), (403, True), (422, True), (429, False), (503, False)])
async def test_errors_that_stay_are_told_from_errors_that_pass(
    kube_server: KubeUnderTest, nodes: NodeActivities, code: int, final: bool
) -> None:
    if kube_server.simulator is None:
        pytest.skip("a real API server refuses nothing on order")
    ref = await make_node(kube_server)
    kube_server.simulator.faults.add(RequestFault(method="GET", path="/nodes/", status=code, retry_after=7))
    with pytest.raises(FinalError if final else PassingError) as caught:
        await nodes.observe_node(NodeQuery(node=ref))
    assert caught.value.non_retryable is final
    assert caught.value.type == ("FinalError" if final else "PassingError")
    assert caught.value.next_retry_delay == (None if final else timedelta(seconds=7))


async def test_an_api_server_that_is_down_is_a_passing_error() -> None:
    async with client.ApiClient(client.Configuration(host="http://127.0.0.1:9")) as api:
        with pytest.raises(PassingError, match="no answer"):
            await NodeActivities(api).observe_node(NodeQuery(node=NodeRef(cluster="c1", name="a", uid="u")))


async def test_a_node_is_observed_with_its_claim(kube_server: KubeUnderTest, nodes: NodeActivities) -> None:
    provider = "aws:///eu-west-1a/i-0abc"
    labels = {"karpenter.sh/nodepool": "p5"}
    ref = await make_node(kube_server, labels=labels, provider_id=provider)
    made = await kube_server.create_karpenter(
        "nodeclaims", "p5-x", metadata={"labels": labels}, status={"nodeName": ref.name, "providerID": provider}
    )
    seen = await nodes.observe_node(NodeQuery(node=ref))
    assert (seen.owner.kind, seen.owner.name, seen.owner.uid) == (
        OwnerKind.KARPENTER,
        "p5-x",
        made["metadata"]["uid"],
    )
    assert (seen.pool, seen.provider_id, seen.boot_id, seen.gpu_allocatable) == ("p5", provider, "boot-1", 8)


async def test_a_lease_of_another_remediator_is_a_lock(kube_server: KubeUnderTest, nodes: NodeActivities) -> None:
    ref = await make_node(kube_server)
    await kube_server.request("POST", "/api/v1/namespaces", {"metadata": {"name": "medik8s-leases"}})
    spec = {
        "holderIdentity": "NodeHealthCheck-x",
        "leaseDurationSeconds": 3600,
        "renewTime": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
    }
    leases = "/apis/coordination.k8s.io/v1/namespaces/medik8s-leases/leases"
    await kube_server.request("POST", leases, {"metadata": {"name": f"node-{ref.name}"}, "spec": spec})
    (lock,) = (await nodes.observe_node(NodeQuery(node=ref))).foreign_locks
    assert "NodeHealthCheck-x" in lock


async def test_a_cluster_without_medik8s_needs_no_rights_there(
    kube_server: KubeUnderTest, nodes: NodeActivities
) -> None:
    if kube_server.simulator is None:
        pytest.skip("a real API server forbids nothing here")
    ref = await make_node(kube_server)
    kube_server.simulator.faults.add(RequestFault(method="GET", path="/leases/", status=403))
    assert (await nodes.observe_node(NodeQuery(node=ref))).foreign_locks == ()


async def test_a_boot_wait_ends_when_the_node_is_back_with_all_its_gpus(
    kube_server: KubeUnderTest, nodes: NodeActivities
) -> None:
    ref = await make_node(kube_server, ready="False")
    wait = BootWait(node=ref, previous_boot_id="boot-1", expected_gpus=8, deadline=SOON)
    waiting = asyncio.create_task(nodes.wait_for_boot(wait))
    kubelet_info = (await node_of(kube_server, ref))["status"]["nodeInfo"]
    await kube_server.set_node_status(
        ref.name,
        {
            "nodeInfo": {**kubelet_info, "bootID": "boot-2"},
            "conditions": [{"type": "Ready", "status": "True"}],
            "allocatable": {"nvidia.com/gpu": "8"},
        },
    )
    assert (await waiting).boot_id == "boot-2"


async def test_a_boot_wait_returns_what_it_saw_at_its_deadline(
    kube_server: KubeUnderTest, nodes: NodeActivities
) -> None:
    ref = await make_node(kube_server)
    wait = BootWait(node=ref, previous_boot_id="boot-1", expected_gpus=8, deadline=NEVER)
    assert (await nodes.wait_for_boot(wait)).boot_id == "boot-1"


async def test_a_boot_wait_ends_at_once_for_a_node_that_is_gone(nodes: NodeActivities) -> None:
    ref = NodeRef(cluster="c1", name="never-was", uid="u-1")
    wait = BootWait(node=ref, previous_boot_id="boot-1", expected_gpus=8, deadline=SOON)
    assert not (await nodes.wait_for_boot(wait)).exists


async def test_a_wait_outlasts_an_api_server_that_is_down_for_a_while(
    kube_server: KubeUnderTest, nodes: NodeActivities
) -> None:
    if kube_server.simulator is None:
        pytest.skip("a real API server does not fail on order")
    ref = await make_node(kube_server, boot_id="boot-2")
    kube_server.simulator.faults.add(RequestFault(method="GET", path="/nodes/", status=503, times=3))
    wait = BootWait(node=ref, previous_boot_id="boot-1", expected_gpus=8, deadline=SOON)
    assert (await nodes.wait_for_boot(wait)).boot_id == "boot-2"


def successor_wait(old: NodeRef, deadline: timedelta, known: tuple[str, ...] = ()) -> SuccessorWait:
    return SuccessorWait(
        node=old,
        asked_at=datetime.now(UTC) - timedelta(seconds=1),
        known_uids=known,
        expected_gpus=8,
        deadline=deadline,
    )


async def test_a_successor_is_a_new_working_node_of_the_pool_once_the_old_one_is_gone(
    kube_server: KubeUnderTest, nodes: NodeActivities
) -> None:
    labels = {"eks.amazonaws.com/nodegroup": "gpu"}
    old = await make_node(kube_server, "node-old", labels=labels)
    old = old.model_copy(update={"pool": "gpu"})
    waiting = asyncio.create_task(nodes.wait_for_successor(successor_wait(old, SOON)))
    new = await make_node(kube_server, "node-new", labels=labels)
    await make_node(kube_server, "node-elsewhere", labels={"eks.amazonaws.com/nodegroup": "cpu"})
    await kube_server.request("DELETE", f"/api/v1/nodes/{old.name}")
    succession = await waiting
    assert succession.old_gone
    assert succession.waiting_for == ""
    assert succession.successor == new.model_copy(update={"pool": "gpu"})


async def test_a_succession_says_what_is_missing_at_its_deadline(
    kube_server: KubeUnderTest, nodes: NodeActivities
) -> None:
    labels = {"karpenter.sh/nodepool": "p5"}
    old = (await make_node(kube_server, "node-old", labels=labels)).model_copy(update={"pool": "p5"})
    known = await make_node(kube_server, "node-known", labels=labels)
    alone = await nodes.wait_for_successor(successor_wait(old, NEVER, (known.uid,)))
    assert (alone.old_gone, alone.waiting_for) == (False, "node-old is still there; no new node yet")
    await make_node(kube_server, "node-new", labels=labels, gpus=4)
    coming = await nodes.wait_for_successor(successor_wait(old, NEVER, (known.uid,)))
    assert coming.waiting_for == "node-old is still there; node-new: 4 of 8 GPUs are allocatable"


async def test_a_pool_is_read_as_the_budget_counts_it(kube_server: KubeUnderTest, nodes: NodeActivities) -> None:
    labels = {"karpenter.sh/nodepool": "p5"}
    await make_node(kube_server, "node-a", labels=labels)
    await make_node(kube_server, "node-b", labels=labels, ready="False")
    await make_node(kube_server, "node-c", labels=labels, unschedulable=True)
    await make_node(kube_server, "node-d", labels={"karpenter.sh/nodepool": "other"})
    pool = await nodes.observe_pool(PoolQuery(cluster="c1", pool="p5"))
    assert {each.node.name: each.why_not for each in pool.nodes} == {
        "node-a": "",
        "node-b": "Ready is False",
        "node-c": "it is cordoned",
    }
    every = await nodes.observe_pool(PoolQuery(cluster="c1", pool=""))
    assert len(every.nodes) == 4


async def test_an_event_is_written_once_on_the_node(kube_server: KubeUnderTest, nodes: NodeActivities) -> None:
    ref = await make_node(kube_server)
    event = NodeEvent(node=ref, incident_id=INCIDENT, reason="Contained", message="x" * 2000, warning=True)
    assert await nodes.record_event(event) == await nodes.record_event(event)
    (written,) = (await kube_server.request("GET", "/api/v1/namespaces/default/events"))["items"]
    assert (written["involvedObject"]["kind"], written["involvedObject"]["name"]) == ("Node", ref.name)
    assert (written["type"], written["reason"], len(written["message"])) == ("Warning", "Contained", 1024)
