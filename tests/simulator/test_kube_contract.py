"""What an API server must do with objects: told once, and asked of the simulated server and of a real one alike.

Each test of the three `test_kube_contract*` modules holds on both; what a real kube-apiserver would not keep does not
belong there. Trouble that can only be ordered of the simulated server is tested in `test_kube_faults`.
"""

import asyncio
from typing import Any

import pytest
from kubernetes.aio import client

from simulator.kube.requests import APPLY, JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH
from tests.kube_under_test import KubeRequestError, KubeUnderTest

NODE = "/api/v1/nodes/n1"
PODS = "/api/v1/namespaces/default/pods"
CLAIM = "/apis/karpenter.sh/v1/nodeclaims/c1"
OTHERS = {"key": "theirs", "effect": "NoSchedule"}
OURS = {"key": "ours", "value": "x", "effect": "NoSchedule"}


async def refused(kube: KubeUnderTest, method: str, path: str, body: Any = None, **more: str) -> tuple[int, str]:
    """Code and reason of the refusal with which the server answers this request."""
    with pytest.raises(KubeRequestError) as caught:
        await kube.request(method, path, body, **more)
    status = caught.value.status
    assert (status["kind"], status["status"], status["code"]) == ("Status", "Failure", caught.value.code)
    return caught.value.code, status.get("reason", "")


async def patched(kube: KubeUnderTest, path: str, body: Any, content_type: str = STRATEGIC_PATCH) -> dict[str, Any]:
    return await kube.request("PATCH", path, body, content_type=content_type)


def conditions(item: dict[str, Any]) -> dict[str, str]:
    return {entry["type"]: entry["status"] for entry in item["status"]["conditions"]}


def owners(item: dict[str, Any], *path: str) -> set[str]:
    """Managers that own the field at this path of FieldsV1 steps."""
    found = set()
    for entry in item["metadata"]["managedFields"]:
        fields: Any = entry["fieldsV1"]
        for step in path:
            fields = fields.get(step) if fields is not None else None
        if fields is not None:
            found.add(entry["manager"])
    return found


async def test_a_new_object_has_identity_and_keeps_what_was_sent(kube_server: KubeUnderTest) -> None:
    node = await kube_server.create_node("n1", labels={"pool": "p5"}, provider_id="aws:///eu-west-1a/i-1", gpus=4)
    assert node["metadata"]["uid"]
    assert node["metadata"]["creationTimestamp"]
    assert node["metadata"]["labels"]["pool"] == "p5"
    assert node["spec"]["providerID"] == "aws:///eu-west-1a/i-1"
    assert node["status"]["allocatable"]["nvidia.com/gpu"] == "4"
    assert node["status"]["nodeInfo"]["bootID"] == "boot-1"


async def test_the_typed_client_reads_what_the_server_writes(kube_server: KubeUnderTest) -> None:
    await kube_server.create_node("n1", taints=[OTHERS])
    await kube_server.create_pod("p1", node="n1", gpus=8, owner={"kind": "DaemonSet", "name": "plugin"})
    node = kube_server.plain(await kube_server.core.read_node("n1"))
    pods = kube_server.plain(await kube_server.core.list_pod_for_all_namespaces(field_selector="spec.nodeName=n1"))
    assert node["spec"]["taints"] == [OTHERS]
    assert [pod["metadata"]["ownerReferences"][0]["kind"] for pod in pods["items"]] == ["DaemonSet"]


async def test_every_kind_can_be_found_by_discovery(kube_server: KubeUnderTest) -> None:
    groups = await kube_server.request("GET", "/apis")
    names = {group["name"] for group in groups["groups"]}
    assert {"apps", "batch", "coordination.k8s.io", "karpenter.sh", "policy", "storage.k8s.io"} <= names
    core = await kube_server.request("GET", "/api/v1")
    assert {"nodes", "nodes/status", "pods/eviction", "pods/binding"} <= {entry["name"] for entry in core["resources"]}
    karpenter = await kube_server.request("GET", "/apis/karpenter.sh/v1")
    assert {"nodepools", "nodeclaims", "nodeclaims/status"} <= {entry["name"] for entry in karpenter["resources"]}


async def test_a_name_is_given_where_only_a_prefix_was(kube_server: KubeUnderTest) -> None:
    body = {"metadata": {"generateName": "job-"}, "spec": {"containers": [{"name": "a", "image": "b"}]}}
    pod = await kube_server.request("POST", PODS, body)
    assert pod["metadata"]["name"].startswith("job-")
    assert len(pod["metadata"]["name"]) == len("job-") + 5


async def test_a_taken_name_is_refused(kube_server: KubeUnderTest) -> None:
    await kube_server.create_node("n1")
    body = {"metadata": {"name": "n1"}}
    assert await refused(kube_server, "POST", "/api/v1/nodes", body) == (409, "AlreadyExists")


@pytest.mark.parametrize("method", ["GET", "DELETE"])
async def test_a_missing_object_is_not_found(kube_server: KubeUnderTest, method: str) -> None:
    assert await refused(kube_server, method, NODE) == (404, "NotFound")


async def test_a_missing_namespace_takes_no_objects(kube_server: KubeUnderTest) -> None:
    body = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "a", "image": "b"}]}}
    assert await refused(kube_server, "POST", "/api/v1/namespaces/nowhere/pods", body) == (404, "NotFound")


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (PODS, {"metadata": {"name": "p"}, "spec": {"containers": []}}),
        ("/api/v1/nodes", {"metadata": {"name": "Not_A_Name"}}),
        ("/api/v1/nodes", {"metadata": {}}),
        ("/api/v1/nodes", {"metadata": {"name": "n"}, "spec": {"taints": [{"key": "k", "effect": "Never"}]}}),
        ("/api/v1/nodes", {"metadata": {"name": "n"}, "spec": {"taints": [OURS, OURS]}}),
        (
            "/api/v1/namespaces/kube-system/events",
            {"metadata": {"name": "of-a-node"}, "involvedObject": {"kind": "Node", "name": "n"}},
        ),
    ],
)
async def test_an_object_that_breaks_a_rule_is_invalid(kube_server: KubeUnderTest, path: str, body: Any) -> None:
    assert await refused(kube_server, "POST", path, body) == (422, "Invalid")


@pytest.mark.parametrize(
    ("method", "path", "body", "content_type"),
    [
        ("POST", "/api/v1/nodes", {"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "n"}}, "application/json"),
        ("POST", "/api/v1/nodes", {"metadata": {"name": "n"}, "spec": "nothing"}, "application/json"),
        ("PUT", NODE, {"metadata": {"name": "n2"}}, "application/json"),
        ("PATCH", NODE, {"spec": {}}, JSON_PATCH),
    ],
)
async def test_a_body_that_cannot_be_meant_is_a_bad_request(
    kube_server: KubeUnderTest, method: str, path: str, body: Any, content_type: str
) -> None:
    await kube_server.create_node("n1")
    assert (await refused(kube_server, method, path, body, content_type=content_type))[0] == 400


async def test_an_update_from_an_old_reading_is_a_conflict(kube_server: KubeUnderTest) -> None:
    old = await kube_server.create_node("n1")
    await patched(kube_server, NODE, {"metadata": {"labels": {"changed": "yes"}}})
    old["spec"]["unschedulable"] = True
    assert await refused(kube_server, "PUT", NODE, old) == (409, "Conflict")
    stale = {"metadata": {"resourceVersion": old["metadata"]["resourceVersion"]}, "spec": {"unschedulable": True}}
    assert await refused(kube_server, "PATCH", NODE, stale, content_type=MERGE_PATCH) == (409, "Conflict")


async def test_of_two_updates_from_one_reading_only_one_passes(kube_server: KubeUnderTest) -> None:
    read = await kube_server.create_node("n1")
    bodies = [{**read, "spec": {"taints": [{"key": key, "effect": "NoSchedule"}]}} for key in ("a", "b")]
    puts = [kube_server.request("PUT", NODE, body) for body in bodies]
    outcomes = await asyncio.gather(*puts, return_exceptions=True)
    assert sorted(isinstance(outcome, KubeRequestError) for outcome in outcomes) == [False, True]


async def test_another_objects_uid_is_a_conflict(kube_server: KubeUnderTest) -> None:
    node = await kube_server.create_node("n1")
    node["metadata"] |= {"uid": "4d2b6a4e-0000-4000-8000-000000000000", "resourceVersion": ""}
    assert await refused(kube_server, "PUT", NODE, node) == (409, "Conflict")


async def test_a_change_of_nothing_writes_nothing(kube_server: KubeUnderTest) -> None:
    before = await kube_server.create_node("n1", unschedulable=True)
    after = await patched(kube_server, NODE, {"spec": {"unschedulable": True}})
    assert after["metadata"]["resourceVersion"] == before["metadata"]["resourceVersion"]


async def test_a_dry_run_answers_and_changes_nothing(kube_server: KubeUnderTest) -> None:
    await kube_server.create_node("n1")
    answer = await patched(kube_server, f"{NODE}?dryRun=All", {"spec": {"unschedulable": True}})
    stored = await kube_server.request("GET", NODE)
    assert answer["spec"]["unschedulable"] is True
    assert "unschedulable" not in stored["spec"]


async def test_status_and_the_rest_change_through_different_paths(kube_server: KubeUnderTest) -> None:
    await kube_server.create_pod("p1", node="n1")
    through_main = await patched(kube_server, f"{PODS}/p1", {"status": {"phase": "Failed"}})
    assert through_main["status"]["phase"] == "Running"
    both = {"metadata": {"annotations": {"a": "b"}}, "spec": {"nodeName": "n2"}, "status": {"phase": "Failed"}}
    through_status = await patched(kube_server, f"{PODS}/p1/status", both)
    assert through_status["status"]["phase"] == "Failed"
    assert through_status["spec"]["nodeName"] == "n1"
    assert through_status["metadata"]["annotations"] == {"a": "b"}


async def test_a_claims_status_path_changes_status_alone(kube_server: KubeUnderTest) -> None:
    await kube_server.create_karpenter("nodeclaims", "c1", spec={"pool": "a"}, status={"nodeName": "n1"})
    both = {"metadata": {"annotations": {"a": "b"}}, "spec": {"pool": "b"}, "status": {"nodeName": "n2"}}
    claim = await patched(kube_server, f"{CLAIM}/status", both, MERGE_PATCH)
    assert (claim["spec"], claim["status"]) == ({"pool": "a"}, {"nodeName": "n2"})
    assert "annotations" not in claim["metadata"]


async def test_generation_counts_changes_of_the_specification(kube_server: KubeUnderTest) -> None:
    claim = await kube_server.create_karpenter("nodeclaims", "c1", spec={"pool": "a"}, status={"nodeName": "n1"})
    assert claim["metadata"]["generation"] == 1
    assert (await patched(kube_server, CLAIM, {"spec": {"pool": "b"}}, MERGE_PATCH))["metadata"]["generation"] == 2
    label = {"metadata": {"labels": {"a": "b"}}}
    assert (await patched(kube_server, CLAIM, label, MERGE_PATCH))["metadata"]["generation"] == 2


async def test_a_strategic_patch_merges_conditions_by_type(kube_server: KubeUnderTest) -> None:
    await kube_server.create_node("n1")
    body = {"status": {"conditions": [{"type": "SickbayGpuHealthy", "status": "False", "reason": "Xid79"}]}}
    node = await patched(kube_server, f"{NODE}/status", body)
    assert conditions(node) == {"Ready": "True", "SickbayGpuHealthy": "False"}
    gone = {"status": {"conditions": [{"type": "SickbayGpuHealthy", "$patch": "delete"}]}}
    assert conditions(await patched(kube_server, f"{NODE}/status", gone)) == {"Ready": "True"}


@pytest.mark.parametrize("content_type", [STRATEGIC_PATCH, MERGE_PATCH])
async def test_a_patch_of_taints_replaces_them_all(kube_server: KubeUnderTest, content_type: str) -> None:
    """Also the strategic one: taints have no merge key, so that whoever writes them must have read them."""
    await kube_server.create_node("n1", taints=[OTHERS])
    node = await patched(kube_server, NODE, {"spec": {"taints": [OURS]}}, content_type)
    assert node["spec"]["taints"] == [OURS]


async def test_a_json_patch_tests_before_it_changes(kube_server: KubeUnderTest) -> None:
    await kube_server.create_node("n1", taints=[OTHERS], annotations={"a/b": "1"})
    steps = [
        {"op": "test", "path": "/metadata/annotations/a~1b", "value": "1"},
        {"op": "add", "path": "/spec/taints/-", "value": OURS},
        {"op": "remove", "path": "/metadata/annotations/a~1b"},
    ]
    node = await patched(kube_server, NODE, steps, JSON_PATCH)
    assert node["spec"]["taints"] == [OTHERS, OURS]
    assert await refused(kube_server, "PATCH", NODE, steps, content_type=JSON_PATCH) == (422, "Invalid")


async def test_custom_kinds_take_no_strategic_patch(kube_server: KubeUnderTest) -> None:
    await kube_server.create_karpenter("nodeclaims", "c1")
    answer = await refused(kube_server, "PATCH", CLAIM, {"spec": {"a": "b"}}, content_type=STRATEGIC_PATCH)
    assert answer == (415, "UnsupportedMediaType")


async def test_an_uncordon_leaves_no_owner_of_the_cordon(kube_server: KubeUnderTest) -> None:
    """A false `unschedulable` is the same as none: after an uncordon, managedFields no longer tell who did it."""
    await kube_server.create_node("n1")
    cordon = await patched(kube_server, f"{NODE}?fieldManager=sickbay", {"spec": {"unschedulable": True}})
    assert owners(cordon, "f:spec", "f:unschedulable") == {"sickbay"}
    uncordon = await patched(kube_server, f"{NODE}?fieldManager=kubectl", {"spec": {"unschedulable": False}})
    assert "unschedulable" not in uncordon["spec"]
    assert owners(uncordon, "f:spec", "f:unschedulable") == set()


async def test_who_wrote_a_field_last_owns_it(kube_server: KubeUnderTest) -> None:
    await kube_server.create_node("n1")
    path = ("f:metadata", "f:annotations", "f:mark")
    ours = await patched(kube_server, f"{NODE}?fieldManager=ours", {"metadata": {"annotations": {"mark": "1"}}})
    assert owners(ours, *path) == {"ours"}
    theirs = await patched(kube_server, f"{NODE}?fieldManager=theirs", {"metadata": {"annotations": {"mark": "2"}}})
    assert owners(theirs, *path) == {"theirs"}


async def test_an_update_names_its_user_agent_where_no_manager_is_given(kube_server: KubeUnderTest) -> None:
    await kube_server.create_node("n1")
    node = await patched(kube_server, NODE, {"metadata": {"labels": {"a": "b"}}})
    assert owners(node, "f:metadata", "f:labels", "f:a") == {"raw"}


async def test_apply_owns_what_it_names_and_removes_what_it_no_longer_names(kube_server: KubeUnderTest) -> None:
    await kube_server.create_node("n1", annotations={"theirs": "1"})
    place = f"{NODE}?fieldManager=agent"
    first = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1", "annotations": {"a": "1", "b": "1"}}}
    applied = await patched(kube_server, place, first, APPLY)
    assert applied["metadata"]["annotations"] == {"theirs": "1", "a": "1", "b": "1"}
    second = {**first, "metadata": {"name": "n1", "annotations": {"a": "2"}}}
    assert (await patched(kube_server, place, second, APPLY))["metadata"]["annotations"] == {"theirs": "1", "a": "2"}


async def test_apply_refuses_to_overwrite_another_manager_unless_forced(kube_server: KubeUnderTest) -> None:
    await kube_server.create_node("n1", annotations={"theirs": "1"})
    body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1", "annotations": {"theirs": "2"}}}
    place = f"{NODE}?fieldManager=agent"
    assert await refused(kube_server, "PATCH", place, body, content_type=APPLY) == (409, "Conflict")
    forced = await patched(kube_server, f"{place}&force=true", body, APPLY)
    assert owners(forced, "f:metadata", "f:annotations", "f:theirs") == {"agent"}


async def test_apply_of_conditions_leaves_those_of_others(kube_server: KubeUnderTest) -> None:
    await kube_server.create_node("n1")
    mine = {"type": "SickbayHostHealthy", "status": "True"}
    body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}, "status": {"conditions": [mine]}}
    node = await patched(kube_server, f"{NODE}/status?fieldManager=agent", body, APPLY)
    assert conditions(node) == {"Ready": "True", "SickbayHostHealthy": "True"}


async def test_a_pods_place_and_resources_cannot_be_changed(kube_server: KubeUnderTest) -> None:
    await kube_server.create_pod("p1", node="n1")
    body = {"spec": {"nodeName": "n2"}}
    assert await refused(kube_server, "PATCH", f"{PODS}/p1", body, content_type=STRATEGIC_PATCH) == (422, "Invalid")


async def test_quantities_are_text_once_stored_and_limits_are_requested(kube_server: KubeUnderTest) -> None:
    container = {"name": "a", "image": "b", "resources": {"limits": {"nvidia.com/gpu": 8}}}
    body = {"metadata": {"name": "p1"}, "spec": {"containers": [container]}}
    pod = await kube_server.request("POST", PODS, body)
    asked = {"nvidia.com/gpu": "8"}
    assert pod["spec"]["containers"][0]["resources"] == {"limits": asked, "requests": asked}


async def test_a_pod_is_bound_once(kube_server: KubeUnderTest) -> None:
    await kube_server.create_pod("p1", phase="Pending")
    body = {"metadata": {"name": "p1"}, "target": {"kind": "Node", "name": "n1"}}
    await kube_server.request("POST", f"{PODS}/p1/binding", body)
    pod = await kube_server.request("GET", f"{PODS}/p1")
    assert pod["spec"]["nodeName"] == "n1"
    assert await refused(kube_server, "POST", f"{PODS}/p1/binding", body) == (409, "Conflict")


async def test_a_lease_is_taken_over_only_by_who_has_read_it(kube_server: KubeUnderTest) -> None:
    leases = client.CoordinationV1Api(kube_server.api_client())
    path = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
    made = await kube_server.request("POST", path, {"metadata": {"name": "lead"}, "spec": {"holderIdentity": "a"}})
    unread = {"metadata": {"name": "lead"}, "spec": {"holderIdentity": "b"}}
    assert (await refused(kube_server, "PUT", f"{path}/lead", unread))[0] == 422
    await kube_server.request("PUT", f"{path}/lead", {**made, "spec": {"holderIdentity": "b"}})
    assert await refused(kube_server, "PUT", f"{path}/lead", made) == (409, "Conflict")
    lease = kube_server.plain(await leases.read_namespaced_lease("lead", "default"))
    assert lease["spec"]["holderIdentity"] == "b"
