"""By whom a node is replaced, and what proves that it was."""

import pytest

from sickbay.nodes import NodeOwner, NodeRef, OwnerKind
from sickbay.replacement import proof_of_replacement, route_to_replace

CLAIM = NodeOwner(kind=OwnerKind.KARPENTER, name="claim-1", uid="claim-uid-1")
LABELLED = NodeOwner(kind=OwnerKind.AUTOSCALING_GROUP, name="eks-node-group")
NOBODY = NodeOwner(kind=OwnerKind.NOBODY)
SUCCESSOR = NodeRef(cluster="c1", name="node-2", uid="uid-2")


def test_a_claim_is_replaced_by_karpenter_whatever_a_group_says() -> None:
    assert route_to_replace(CLAIM, "group-1") == CLAIM


@pytest.mark.parametrize("owner", [LABELLED, NOBODY])
def test_the_word_of_auto_scaling_outranks_a_label(owner: NodeOwner) -> None:
    assert route_to_replace(owner, "group-1") == NodeOwner(kind=OwnerKind.AUTOSCALING_GROUP, name="group-1")
    assert route_to_replace(owner, "") == NOBODY


@pytest.mark.parametrize("old_instance", [None, "terminated", "gone"])
def test_a_replacement_is_proven_by_the_end_of_the_old_and_the_work_of_the_new(old_instance: str | None) -> None:
    assert proof_of_replacement(
        old_node_gone=True, old_instance=old_instance, successor=SUCCESSOR, waiting_for=""
    ).passed


@pytest.mark.parametrize(
    ("old_node_gone", "old_instance", "successor", "waiting_for", "missing"),
    [
        (False, None, SUCCESSOR, "", "the old node is still there"),
        (True, "shutting-down", SUCCESSOR, "", "the old instance is shutting-down"),
        (True, None, None, "", "no successor yet"),
        (True, None, None, "node-2 is not Ready", "node-2 is not Ready"),
        (False, "running", None, "node-1 is still there", "node-1 is still there; the old instance is running"),
    ],
)
def test_anything_else_proves_none(
    old_node_gone: bool, old_instance: str | None, successor: NodeRef | None, waiting_for: str, missing: str
) -> None:
    judgement = proof_of_replacement(
        old_node_gone=old_node_gone, old_instance=old_instance, successor=successor, waiting_for=waiting_for
    )
    assert str(judgement) == missing
