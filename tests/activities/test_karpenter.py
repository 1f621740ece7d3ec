from typing import Any

import pytest

from activities.errors import FinalError
from activities.karpenter import ClaimDeletion, KarpenterActivities, ProtectRequest
from sickbay import names
from sickbay.node_marks import DO_NOT_DISRUPT
from sickbay.nodes import NodeRef
from simulator.kube.faults import RequestFault
from simulator.kube.requests import MERGE_PATCH
from tests.kube_under_test import KubeUnderTest

pytestmark = pytest.mark.kube

INCIDENT = "incident-c1-i-0abc"
PROVIDER = "aws:///eu-west-1a/i-0abc"
CLAIM = "/apis/karpenter.sh/v1/nodeclaims/p5-x"


@pytest.fixture
def karpenter(kube_server: KubeUnderTest) -> KarpenterActivities:
    return KarpenterActivities(kube_server.api_client())


async def protect_request(kube: KubeUnderTest, annotations: dict[str, str] | None = None) -> ProtectRequest:
    made = await kube.create_node("node-a", annotations=annotations)
    ref = NodeRef(cluster="c1", name="node-a", uid=made["metadata"]["uid"])
    return ProtectRequest(node=ref, incident_id=INCIDENT)


async def annotations_of(kube: KubeUnderTest) -> dict[str, str]:
    node = await kube.request("GET", "/api/v1/nodes/node-a")
    return dict(node["metadata"].get("annotations", {}))


async def test_protection_comes_and_goes_with_the_incident(
    kube_server: KubeUnderTest, karpenter: KarpenterActivities
) -> None:
    request = await protect_request(kube_server)
    for _ in range(2):
        report = await karpenter.protect_node(request)
        assert (report.protected, report.ours) == (True, True)
    assert await annotations_of(kube_server) == {DO_NOT_DISRUPT: "true", names.ANNOTATION_DO_NOT_DISRUPT: INCIDENT}
    for _ in range(2):
        report = await karpenter.unprotect_node(request)
        assert (report.protected, report.ours) == (False, False)
    assert await annotations_of(kube_server) == {}


async def test_protection_by_somebody_else_stays(kube_server: KubeUnderTest, karpenter: KarpenterActivities) -> None:
    request = await protect_request(kube_server, {DO_NOT_DISRUPT: "true"})
    report = await karpenter.protect_node(request)
    assert (report.protected, report.ours) == (True, False)
    assert (await karpenter.unprotect_node(request)).protected
    assert await annotations_of(kube_server) == {DO_NOT_DISRUPT: "true"}


async def test_protecting_a_node_that_is_gone_says_so(
    kube_server: KubeUnderTest, karpenter: KarpenterActivities
) -> None:
    request = ProtectRequest(node=NodeRef(cluster="c1", name="node-a", uid="u-1"), incident_id=INCIDENT)
    assert (await karpenter.protect_node(request)).node_gone
    assert (await karpenter.unprotect_node(request)).node_gone


async def make_claim(kube: KubeUnderTest, *, finalizers: tuple[str, ...] = (), **changes: Any) -> ClaimDeletion:
    made = await kube.create_karpenter(
        "nodeclaims",
        "p5-x",
        metadata={"finalizers": list(finalizers)},
        status={"nodeName": "node-a", "providerID": PROVIDER},
    )
    node = NodeRef(cluster="c1", name="node-a", uid="u-1", provider_id=PROVIDER)
    meant = {"node": node, "claim_uid": made["metadata"]["uid"], **changes}
    return ClaimDeletion(incident_id=INCIDENT, claim_name="p5-x", **meant)


async def test_the_claim_that_was_meant_is_deleted_once(
    kube_server: KubeUnderTest, karpenter: KarpenterActivities
) -> None:
    deletion = await make_claim(kube_server, finalizers=("karpenter.sh/termination",))
    assert (await karpenter.delete_node_claim(deletion)).requested
    assert (await kube_server.request("GET", CLAIM))["metadata"]["deletionTimestamp"]
    assert (await karpenter.delete_node_claim(deletion)).already_going
    await kube_server.request("PATCH", CLAIM, {"metadata": {"finalizers": None}}, MERGE_PATCH)
    assert (await karpenter.delete_node_claim(deletion)).gone


async def test_another_claim_of_that_name_is_never_deleted(
    kube_server: KubeUnderTest, karpenter: KarpenterActivities
) -> None:
    deletion = await make_claim(kube_server, claim_uid="11111111-1111-1111-1111-111111111111")
    with pytest.raises(FinalError, match="another one by now"):
        await karpenter.delete_node_claim(deletion)
    assert "deletionTimestamp" not in (await kube_server.request("GET", CLAIM))["metadata"]


async def test_the_claim_of_another_machine_is_never_deleted(
    kube_server: KubeUnderTest, karpenter: KarpenterActivities
) -> None:
    other = NodeRef(cluster="c1", name="node-a", uid="u-1", provider_id="aws:///eu-west-1a/i-0def")
    with pytest.raises(FinalError, match="i-0abc, not for"):
        await karpenter.delete_node_claim(await make_claim(kube_server, node=other))


async def test_a_conflict_is_looked_into_and_tried_again(
    kube_server: KubeUnderTest, karpenter: KarpenterActivities
) -> None:
    if kube_server.simulator is None:
        pytest.skip("a real API server conflicts on no order")
    deletion = await make_claim(kube_server)
    kube_server.simulator.faults.add(RequestFault(method="DELETE", path="/nodeclaims/", status=409))
    assert (await karpenter.delete_node_claim(deletion)).requested
    assert (await karpenter.delete_node_claim(deletion)).gone


async def test_a_server_that_knows_no_claims_is_not_a_claim_that_is_gone(kube_server: KubeUnderTest) -> None:
    """Without Karpenter's CRDs every path of theirs is a 404, which proves nothing about a node."""
    api = kube_server.api_client()
    api.configuration.host = f"{kube_server.url}/apis/nothing.example"
    deletion = await make_claim(kube_server)
    with pytest.raises(FinalError, match="404"):
        await KarpenterActivities(api).delete_node_claim(deletion)
