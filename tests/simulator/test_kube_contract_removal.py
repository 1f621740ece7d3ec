"""What an API server must do for deletions and evictions; see `test_kube_contract`."""

import asyncio
from typing import Any

import pytest
from kubernetes.aio import client
from kubernetes.aio.client.exceptions import ApiException

from simulator.kube.requests import MERGE_PATCH, STRATEGIC_PATCH
from tests.kube_under_test import KubeRequestError, KubeUnderTest

NODE = "/api/v1/nodes/n1"
CLAIMS = "/apis/karpenter.sh/v1/nodeclaims"
POD = "/api/v1/namespaces/default/pods/p1"
BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
TRAINERS = {"app": "trainer"}
ANOTHER_UID = "4d2b6a4e-0000-4000-8000-000000000000"


async def exists(kube: KubeUnderTest, path: str) -> bool:
    try:
        await kube.request("GET", path)
    except KubeRequestError as missing:
        if missing.code != 404:
            raise
        return False
    return True


async def refusal(kube: KubeUnderTest, method: str, path: str, body: Any = None) -> KubeRequestError:
    with pytest.raises(KubeRequestError) as caught:
        await kube.request(method, path, body)
    return caught.value


def causes(refused: KubeRequestError) -> list[str]:
    return [cause["reason"] for cause in refused.status.get("details", {}).get("causes", ())]


async def evict(kube: KubeUnderTest, pod: str = "p1", **delete_options: Any) -> dict[str, Any]:
    """Ask for an eviction as the typed client does; the pod may still refuse."""
    body: dict[str, Any] = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod}}
    if delete_options:
        body["deleteOptions"] = delete_options
    return await kube.request("POST", f"/api/v1/namespaces/default/pods/{pod}/eviction", body)


async def refused_eviction(kube: KubeUnderTest, pod: str = "p1", **delete_options: Any) -> KubeRequestError:
    with pytest.raises(KubeRequestError) as caught:
        await evict(kube, pod, **delete_options)
    return caught.value


async def is_going(kube: KubeUnderTest, path: str = POD) -> bool:
    return "deletionTimestamp" in (await kube.request("GET", path))["metadata"]


async def test_a_node_goes_at_once(kube_server: KubeUnderTest) -> None:
    await kube_server.create_node("n1")
    answer = await kube_server.request("DELETE", NODE)
    assert (answer["kind"], answer["status"]) == ("Status", "Success")
    assert not await exists(kube_server, NODE)


async def test_a_finalizer_holds_an_object_until_it_is_taken_off(kube_server: KubeUnderTest) -> None:
    place = f"{CLAIMS}/c1"
    await kube_server.create_karpenter("nodeclaims", "c1", metadata={"finalizers": ["karpenter.sh/termination"]})
    await kube_server.request("DELETE", place)
    assert await is_going(kube_server, place)
    await kube_server.request("DELETE", place)
    assert await is_going(kube_server, place)
    await kube_server.request("PATCH", place, {"metadata": {"finalizers": []}}, MERGE_PATCH)
    assert not await exists(kube_server, place)


async def test_no_finalizer_joins_an_object_that_is_going(kube_server: KubeUnderTest) -> None:
    await kube_server.create_node("n1", finalizers=["a.test/one"])
    await kube_server.request("DELETE", NODE)
    body = {"metadata": {"finalizers": ["a.test/two"]}}
    with pytest.raises(KubeRequestError) as caught:
        await kube_server.request("PATCH", NODE, body, STRATEGIC_PATCH)
    assert caught.value.code == 422


@pytest.mark.parametrize("precondition", [{"uid": ANOTHER_UID}, {"resourceVersion": "1"}])
async def test_a_deletion_means_one_object_in_one_state(kube_server: KubeUnderTest, precondition: Any) -> None:
    await kube_server.create_karpenter("nodeclaims", "c1")
    refused = await refusal(kube_server, "DELETE", f"{CLAIMS}/c1", {"preconditions": precondition})
    assert (refused.code, refused.status["reason"]) == (409, "Conflict")
    assert await exists(kube_server, f"{CLAIMS}/c1")


async def test_a_deletion_of_the_very_object_passes(kube_server: KubeUnderTest) -> None:
    claim = await kube_server.create_karpenter("nodeclaims", "c1")
    custom = client.CustomObjectsApi(kube_server.api_client())
    await custom.delete_cluster_custom_object(
        "karpenter.sh",
        "v1",
        "nodeclaims",
        "c1",
        body=client.V1DeleteOptions(preconditions=client.V1Preconditions(uid=claim["metadata"]["uid"])),
    )
    assert not await exists(kube_server, f"{CLAIMS}/c1")


@pytest.mark.parametrize(("policy", "finalizer"), [("Foreground", "foregroundDeletion"), ("Orphan", "orphan")])
async def test_propagation_waits_for_the_garbage_collector(
    kube_server: KubeUnderTest, policy: str, finalizer: str
) -> None:
    await kube_server.create_node("n1")
    await kube_server.request("DELETE", NODE, {"propagationPolicy": policy})
    node = await kube_server.request("GET", NODE)
    assert node["metadata"]["finalizers"] == [finalizer]
    assert "deletionTimestamp" in node["metadata"]


async def test_a_pod_on_a_node_waits_for_its_kubelet(kube_server: KubeUnderTest) -> None:
    await kube_server.create_pod("p1", node="n1", grace=30)
    await kube_server.request("DELETE", POD)
    pod = await kube_server.request("GET", POD)
    assert pod["metadata"]["deletionGracePeriodSeconds"] == 30
    await kube_server.finish_pod("p1")
    assert not await exists(kube_server, POD)


async def test_a_second_deletion_can_only_shorten_the_grace(kube_server: KubeUnderTest) -> None:
    await kube_server.create_pod("p1", node="n1", grace=30)
    for asked, granted in ((20, 20), (60, 20), (5, 5)):
        await kube_server.request("DELETE", POD, {"gracePeriodSeconds": asked})
        pod = await kube_server.request("GET", POD)
        assert pod["metadata"]["deletionGracePeriodSeconds"] == granted


@pytest.mark.parametrize(("node", "phase"), [("", "Pending"), ("n1", "Succeeded"), ("n1", "Failed")])
async def test_a_pod_that_runs_nowhere_goes_at_once(kube_server: KubeUnderTest, node: str, phase: str) -> None:
    await kube_server.create_pod("p1", node=node, phase=phase)
    await kube_server.request("DELETE", POD)
    assert not await exists(kube_server, POD)


async def test_a_finalizer_outlives_the_kubelet(kube_server: KubeUnderTest) -> None:
    await kube_server.create_pod("p1", node="n1", finalizers=["a.test/one"])
    await kube_server.request("DELETE", POD)
    await kube_server.finish_pod("p1")
    assert await is_going(kube_server)
    await kube_server.request("PATCH", POD, {"metadata": {"finalizers": None}}, MERGE_PATCH)
    assert not await exists(kube_server, POD)


async def test_a_collection_is_deleted_by_selector(kube_server: KubeUnderTest) -> None:
    await kube_server.create_node("n1", labels={"old": "1"})
    await kube_server.create_node("n2")
    await kube_server.request("DELETE", "/api/v1/nodes?labelSelector=old")
    assert not await exists(kube_server, NODE)
    assert await exists(kube_server, "/api/v1/nodes/n2")


async def test_an_eviction_starts_a_graceful_deletion_and_says_why(kube_server: KubeUnderTest) -> None:
    await kube_server.create_pod("p1", node="n1", grace=30)
    await evict(kube_server)
    pod = await kube_server.request("GET", POD)
    assert pod["metadata"]["deletionGracePeriodSeconds"] == 30
    reasons = {entry["type"]: entry.get("reason") for entry in pod["status"]["conditions"]}
    assert reasons["DisruptionTarget"] == "EvictionByEvictionAPI"


async def test_an_eviction_may_set_its_own_grace(kube_server: KubeUnderTest) -> None:
    await kube_server.create_pod("p1", node="n1", grace=30)
    await evict(kube_server, gracePeriodSeconds=5)
    assert (await kube_server.request("GET", POD))["metadata"]["deletionGracePeriodSeconds"] == 5


async def test_the_typed_client_tells_a_budgets_refusal(kube_server: KubeUnderTest) -> None:
    await kube_server.create_pod("p1", node="n1", labels=TRAINERS)
    await kube_server.create_budget("b1", labels=TRAINERS, allowed=0)
    body = client.V1Eviction(metadata=client.V1ObjectMeta(name="p1", namespace="default"))
    with pytest.raises(ApiException) as caught:
        await kube_server.core.create_namespaced_pod_eviction("p1", "default", body)
    assert caught.value.status == 429
    assert "DisruptionBudget" in str(caught.value.body)


async def test_a_spent_budget_refuses_with_its_cause_and_no_time_to_retry(kube_server: KubeUnderTest) -> None:
    await kube_server.create_pod("p1", node="n1", labels=TRAINERS)
    await kube_server.create_budget("b1", labels=TRAINERS, allowed=0)
    refused = await refused_eviction(kube_server)
    assert (refused.code, refused.status["reason"], causes(refused)) == (429, "TooManyRequests", ["DisruptionBudget"])
    assert "b1" in refused.status["details"]["causes"][0]["message"]
    assert "Retry-After" not in refused.headers
    assert not await is_going(kube_server)


async def test_a_budget_behind_its_spec_asks_for_patience(kube_server: KubeUnderTest) -> None:
    await kube_server.create_pod("p1", node="n1", labels=TRAINERS)
    await kube_server.create_budget("b1", labels=TRAINERS, allowed=1, observed=False)
    refused = await refused_eviction(kube_server)
    assert (refused.code, causes(refused)) == (429, ["DisruptionBudget"])
    assert refused.status["details"]["retryAfterSeconds"] == 10
    assert refused.headers["Retry-After"] == "10"


async def test_two_budgets_over_one_pod_are_an_error(kube_server: KubeUnderTest) -> None:
    await kube_server.create_pod("p1", node="n1", labels=TRAINERS)
    for name in ("b1", "b2"):
        await kube_server.create_budget(name, labels=TRAINERS, allowed=1)
    refused = await refused_eviction(kube_server)
    assert refused.code == 500
    assert "more than one PodDisruptionBudget" in refused.status["message"]


async def test_of_evictions_at_once_only_as_many_pass_as_the_budget_allows(kube_server: KubeUnderTest) -> None:
    pods = [f"p{number}" for number in range(1, 6)]
    for pod in pods:
        await kube_server.create_pod(pod, node="n1", labels=TRAINERS)
    await kube_server.create_budget("b1", labels=TRAINERS, allowed=1, healthy=5, desired=4)
    outcomes = await asyncio.gather(*(evict(kube_server, pod) for pod in pods), return_exceptions=True)
    refusals = [outcome for outcome in outcomes if isinstance(outcome, KubeRequestError)]
    assert [refused.code for refused in refusals] == [429] * 4
    budget = await kube_server.request("GET", f"{BUDGETS}/b1")
    assert budget["status"]["disruptionsAllowed"] == 0
    assert len(budget["status"]["disruptedPods"]) == 1


async def test_a_budget_minds_only_pods_of_its_own_labels(kube_server: KubeUnderTest) -> None:
    await kube_server.create_pod("p1", node="n1", labels={"app": "other"})
    await kube_server.create_budget("b1", labels=TRAINERS, allowed=0)
    await evict(kube_server)
    assert await is_going(kube_server)


@pytest.mark.parametrize("phase", ["Succeeded", "Failed", "Pending"])
async def test_a_pod_that_does_not_run_asks_no_budget(kube_server: KubeUnderTest, phase: str) -> None:
    await kube_server.create_pod("p1", node="n1", labels=TRAINERS, phase=phase)
    await kube_server.create_budget("b1", labels=TRAINERS, allowed=0)
    await evict(kube_server)
    assert not await exists(kube_server, POD) or await is_going(kube_server)


async def test_a_pod_that_is_going_already_asks_no_budget(kube_server: KubeUnderTest) -> None:
    await kube_server.create_pod("p1", node="n1", labels=TRAINERS)
    await kube_server.create_budget("b1", labels=TRAINERS, allowed=0)
    await kube_server.request("DELETE", POD)
    await evict(kube_server)
    assert await is_going(kube_server)


@pytest.mark.parametrize(
    ("healthy", "policy", "passes"),
    [(3, None, True), (1, None, False), (1, "IfHealthyBudget", False), (1, "AlwaysAllow", True)],
)
async def test_a_pod_that_is_not_ready_may_go_by_the_budgets_policy(
    kube_server: KubeUnderTest, healthy: int, policy: str | None, passes: bool
) -> None:
    await kube_server.create_pod("p1", node="n1", labels=TRAINERS, ready=False)
    await kube_server.create_budget("b1", labels=TRAINERS, allowed=0, healthy=healthy, desired=2, unhealthy_pods=policy)
    if passes:
        await evict(kube_server)
    else:
        assert (await refused_eviction(kube_server)).code == 429
    assert await is_going(kube_server) is passes


async def test_an_eviction_means_one_pod_and_not_its_namesake(kube_server: KubeUnderTest) -> None:
    await kube_server.create_pod("p1", node="n1")
    refused = await refused_eviction(kube_server, preconditions={"uid": ANOTHER_UID})
    assert (refused.code, refused.status["reason"]) == (409, "Conflict")
    assert not await is_going(kube_server)


@pytest.mark.parametrize(("allowed", "passes"), [(1, True), (0, False)])
async def test_a_dry_run_tells_what_the_budget_would_say(
    kube_server: KubeUnderTest, allowed: int, passes: bool
) -> None:
    await kube_server.create_pod("p1", node="n1", labels=TRAINERS)
    await kube_server.create_budget("b1", labels=TRAINERS, allowed=allowed)
    if passes:
        await evict(kube_server, dryRun=["All"])
    else:
        assert (await refused_eviction(kube_server, dryRun=["All"])).code == 429
    assert not await is_going(kube_server)
    assert (await kube_server.request("GET", f"{BUDGETS}/b1"))["status"]["disruptionsAllowed"] == allowed


async def test_an_eviction_of_nobody_is_not_found(kube_server: KubeUnderTest) -> None:
    assert (await refused_eviction(kube_server)).code == 404
