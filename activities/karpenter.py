"""Karpenter's objects: the claim behind a node, and the mark that keeps Karpenter's hands off it."""

from sickbay.model import Frozen
from sickbay.nodes import NodeRef


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
    """Somebody else deletes it: we yield and only watch."""
    gone: bool = False
