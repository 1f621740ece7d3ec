"""Looks at Node objects, and at the claim and the lease that belong to them.

Used by the node activities, the drain and the Karpenter activities. It only fetches: what a node's fields mean is
decided by `sickbay.node_reading`.
"""

from collections.abc import Iterable
from datetime import datetime
from typing import Final

from kubernetes.aio.client import ApiClient

from activities.kube import KubeFinalError, NotFoundError, call, list_all, path
from sickbay import node_reading
from sickbay.foreign_locks import LEASE_NAMESPACE
from sickbay.kube_objects import Lease, Node, NodeClaim
from sickbay.nodes import NodeRef, NodeSnapshot

NODES: Final = "/api/v1/nodes"
NODE_CLAIMS: Final = "/apis/karpenter.sh/v1/nodeclaims"
_LEASES: Final = f"/apis/coordination.k8s.io/v1/namespaces/{LEASE_NAMESPACE}/leases"


async def get_node(api: ApiClient, ref: NodeRef) -> Node | None:
    """The node, or None if no node of this name has this UID any more."""
    try:
        node = await call(api, "GET", path(NODES, ref.name), Node)
    except NotFoundError:
        return None
    return node if node.metadata.uid == ref.uid else None


async def observe(api: ApiClient, ref: NodeRef, now: datetime) -> NodeSnapshot:
    """One look at the node and all that belongs to it."""
    node = await get_node(api, ref)
    if node is None:
        return node_reading.gone(now)
    claim, claim_gone = await _claim_of(api, node)
    lease = await _lease_of(api, node)
    return node_reading.read_node(node, now, claim=claim, claim_gone=claim_gone, lease=lease)


async def list_pool(api: ApiClient, pool: str) -> tuple[Node, ...]:
    """The nodes of a pool; every GPU node if `pool` is empty."""
    if not pool:
        return tuple(node for node in await list_all(api, NODES, Node) if node_reading.is_gpu_node(node))
    found: list[Node] = []
    for label in node_reading.POOL_LABELS:
        found.extend(await list_all(api, NODES, Node, query={"labelSelector": f"{label}={pool}"}))
    return _distinct(node for node in found if node_reading.pool_of(node) == pool)


async def _claim_of(api: ApiClient, node: Node) -> tuple[NodeClaim | None, bool]:
    """The node's claim, and whether the node names one that is no more."""
    named = node_reading.claim_reference(node)
    if named is not None:
        try:
            claim = await call(api, "GET", path(NODE_CLAIMS, named.name), NodeClaim)
        except NotFoundError:
            return None, True
        return (claim, False) if claim.metadata.uid == named.uid else (None, True)
    pool = node.metadata.labels.get(node_reading.KARPENTER_POOL)
    if pool is None:
        return None, False
    selector = {"labelSelector": f"{node_reading.KARPENTER_POOL}={pool}"}
    claims = await list_all(api, NODE_CLAIMS, NodeClaim, query=selector)
    return next((claim for claim in claims if node_reading.is_claim_of(claim, node)), None), False


async def _lease_of(api: ApiClient, node: Node) -> Lease | None:
    try:
        return await call(api, "GET", path(_LEASES, f"node-{node.metadata.name}"), Lease)
    except NotFoundError:
        return None
    except KubeFinalError as error:
        # Where Medik8s is not installed, its namespace is not there to be given rights in; its taints tell as well.
        if error.refusal.code != 403:
            raise
        return None


def _distinct(nodes: Iterable[Node]) -> tuple[Node, ...]:
    return tuple({node.metadata.uid: node for node in nodes}.values())
