"""Karpenter's objects: the claim behind a node, and the mark that keeps Karpenter's hands off it.

Called by workflows from the controller's queue. A claim is deleted only while it is still the one that was meant, and
nobody else deletes it; the rest of the replacement is Karpenter's (facts: remediation, 1.2, 1.4).
"""

from typing import Final

from kubernetes.aio.client import ApiClient
from pydantic import JsonValue
from temporalio import activity

from activities.errors import FinalError, PassingError
from activities.kube import ConflictError, NotFoundError, call, path
from activities.node_marks import decide_and_write
from activities.node_reads import NODE_CLAIMS
from sickbay import node_marks
from sickbay.kube_objects import NodeClaim, Status
from sickbay.model import Frozen
from sickbay.nodes import NodeRef

DELETE_ATTEMPTS: Final = 3
"""Looks and deletes before giving up on a claim that changes each time."""


class ProtectRequest(Frozen):
    """Set or clear `karpenter.sh/do-not-disrupt` on a node, ours alone."""

    node: NodeRef
    incident_id: str


class Protection(Frozen):
    """How the node stands after the call."""

    protected: bool
    ours: bool
    node_gone: bool = False


class ClaimDeletion(Frozen):
    """Replace a node by deleting its NodeClaim, if it is still the claim we mean."""

    node: NodeRef
    incident_id: str
    claim_name: str
    claim_uid: str


class ClaimDeletionReport(Frozen):
    """What came of it; exactly one is true."""

    requested: bool = False
    already_going: bool = False
    """It is being deleted, by somebody else or by an earlier try of ours: we yield and only watch."""
    gone: bool = False


class KarpenterActivities:
    """Activities on Karpenter's objects, over one injected API client. All of them raise FinalError or PassingError."""

    def __init__(self, api: ApiClient) -> None:
        self._api = api

    @activity.defn
    async def protect_node(self, request: ProtectRequest) -> Protection:
        """Keep Karpenter from consolidating the node while it stands empty, unless somebody else does so already."""
        decision = await decide_and_write(
            self._api, request.node, lambda node: node_marks.protect(node, request.incident_id)
        )
        return _protection(decision)

    @activity.defn
    async def unprotect_node(self, request: ProtectRequest) -> Protection:
        """Give the node back to Karpenter, if it was this incident that protected it."""
        decision = await decide_and_write(
            self._api, request.node, lambda node: node_marks.unprotect(node, request.incident_id)
        )
        return _protection(decision)

    @activity.defn
    async def delete_node_claim(self, deletion: ClaimDeletion) -> ClaimDeletionReport:
        """Ask Karpenter for the end of a node, and thereby for another one."""
        resource = path(NODE_CLAIMS, deletion.claim_name)
        for _ in range(DELETE_ATTEMPTS):
            try:
                claim = await call(self._api, "GET", resource, NodeClaim)
                _refuse_other_claim(claim, deletion)
                if claim.metadata.deletion_timestamp is not None:
                    return ClaimDeletionReport(already_going=True)
                await call(self._api, "DELETE", resource, Status, body=_delete_options(deletion.claim_uid))
            except NotFoundError:
                return ClaimDeletionReport(gone=True)
            except ConflictError:
                # The precondition failed or the object moved: the next look tells which.
                continue
            return ClaimDeletionReport(requested=True)
        raise PassingError(
            f"NodeClaim {deletion.claim_name} changed under each of {DELETE_ATTEMPTS} tries to delete it"
        )


def _delete_options(uid: str) -> dict[str, JsonValue]:
    """The body of a deletion that the server refuses with 409 for any other object of that name."""
    return {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": uid}}


def _protection(decision: node_marks.ProtectDecision | None) -> Protection:
    if decision is None:
        return Protection(protected=False, ours=False, node_gone=True)
    return Protection(protected=decision.protected, ours=decision.ours)


def _refuse_other_claim(claim: NodeClaim, deletion: ClaimDeletion) -> None:
    if claim.metadata.uid != deletion.claim_uid:
        raise FinalError(
            f"NodeClaim {deletion.claim_name} is another one by now (UID {claim.metadata.uid}, "
            f"meant {deletion.claim_uid}): look at the node again before it is replaced"
        )
    machine, meant = claim.status.provider_id, deletion.node.provider_id
    if machine and meant and machine != meant:
        raise FinalError(f"NodeClaim {deletion.claim_name} stands for {machine}, not for {meant}: it is not deleted")
