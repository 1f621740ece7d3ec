"""From a Node object to what an incident knows of a node.

Used by the node activities and by the controller's watch, which thus see the same node in the same way. Pure: the claim
and the lease that belong to a node are read by the caller, and so is the clock.
"""

from datetime import UTC, datetime, timedelta
from typing import Final

from sickbay import cloud_words
from sickbay.cordons import uncordoned_by_person
from sickbay.foreign_locks import MIG_STATE, foreign_locks
from sickbay.instance_types import limits_of
from sickbay.kube_objects import Lease, Node, NodeClaim, OwnerReference
from sickbay.names import ANNOTATION_ADMITTED, ANNOTATION_HELD_BOOT, CONDITIONS, TAINT_ADMISSION
from sickbay.node_faults import HEARTBEAT_LIMIT, heartbeat, open_faults, own_conditions, ready_condition, report
from sickbay.node_marks import incident_mark, prior_unschedulable
from sickbay.nodes import NodeOwner, NodeRef, NodeSnapshot, OwnerKind, Readiness
from sickbay.other_agents.gpu_resources import GPU, LABEL_COUNT, count, counts_whole_gpus

KARPENTER_POOL: Final = "karpenter.sh/nodepool"
GROUP_LABELS: Final = ("eks.amazonaws.com/nodegroup", "alpha.eksctl.io/nodegroup-name")
"""Labels of nodes that an Auto Scaling group makes."""
POOL_LABELS: Final = (KARPENTER_POOL, *GROUP_LABELS)
"""Labels that name a node's pool, the first that is there deciding."""

GPU_COUNT_LABEL: Final = "karpenter.k8s.aws/instance-gpu-count"
GPU_LABELS: Final = ("nvidia.com/gpu.present", GPU_COUNT_LABEL)
"""Labels that GPU nodes keep while their device plugin is down."""
GPU_RESOURCES: Final = frozenset({"nvidia.com/gpu", "nvidia.com/gpu.shared", "amd.com/gpu", "aws.amazon.com/neuron"})
TYPE_LABEL: Final = "node.kubernetes.io/instance-type"
MIG_CONFIG: Final = "nvidia.com/mig.config"
"""The label that wishes for a MIG layout (facts: remediation, 5)."""
LEAVING_TAINTS: Final = ("karpenter.sh/disrupted", "ToBeDeletedByClusterAutoscaler")
"""Taints of autoscalers on nodes that they are about to take away."""


def read_node(
    node: Node,
    now: datetime,
    *,
    claim: NodeClaim | None = None,
    claim_gone: bool = False,
    lease: Lease | None = None,
    heartbeat_limit: timedelta = HEARTBEAT_LIMIT,
) -> NodeSnapshot:
    """The node as this look shows it, with its NodeClaim and its Medik8s lease as far as the caller read them.

    `claim_gone` says that the claim which the node names was looked for and is no more.
    """
    ready = ready_condition(node)
    return NodeSnapshot(
        observed_at=now,
        exists=True,
        uid=node.metadata.uid,
        provider_id=node.spec.provider_id or None,
        pool=pool_of(node),
        boot_id=node.status.node_info.boot_id,
        ready=readiness(node),
        ready_since=ready.last_transition_time,
        unschedulable=node.spec.unschedulable,
        incident_mark=incident_mark(node),
        prior_unschedulable=prior_unschedulable(node),
        uncordoned_by_person=uncordoned_by_person(node),
        deleting=node.metadata.deletion_timestamp is not None,
        owner=owner_of(node, claim, claim_gone=claim_gone),
        foreign_locks=foreign_locks(node, lease, now),
        gpu_capacity=gpus_in(node.status.capacity),
        gpu_allocatable=gpus_in(node.status.allocatable),
        gpus_promised=_gpus_promised(node),
        gpu_devices=_gpu_devices(node),
        admission_taint=awaits_admission(node),
        admitted_boot=node.metadata.annotations.get(ANNOTATION_ADMITTED, ""),
        held_boot=node.metadata.annotations.get(ANNOTATION_HELD_BOOT, ""),
        mig_config=node.metadata.labels.get(MIG_CONFIG, ""),
        mig_state=node.metadata.labels.get(MIG_STATE, ""),
        faults=open_faults(node, now, heartbeat_limit),
        cloud_told=cloud_words.of_node(node) is not None,
        conditions_fresh=_is_fresh(node, now, heartbeat_limit),
        conditions_healthy=_is_healthy(node),
    )


def gone(now: datetime) -> NodeSnapshot:
    """No node of this name has this UID any more."""
    return NodeSnapshot(observed_at=now, exists=False)


def reference(node: Node, cluster: str) -> NodeRef:
    """Who the node is."""
    return NodeRef(
        cluster=cluster,
        name=node.metadata.name,
        uid=node.metadata.uid,
        provider_id=node.spec.provider_id or None,
        pool=pool_of(node),
    )


def pool_of(node: Node) -> str:
    """The node's pool; empty if no label names one."""
    return next((node.metadata.labels[label] for label in POOL_LABELS if label in node.metadata.labels), "")


def claim_reference(node: Node) -> OwnerReference | None:
    """The NodeClaim that Karpenter made the node for."""
    return next((owner for owner in node.metadata.owner_references if owner.kind == "NodeClaim"), None)


def owner_of(node: Node, claim: NodeClaim | None, *, claim_gone: bool = False) -> NodeOwner:
    """Who makes nodes like this one. A node whose claim is gone is on its way out, which counts as deleting."""
    named = claim_reference(node)
    if claim is not None:
        meta = claim.metadata
        deleting = meta.deletion_timestamp is not None
        return NodeOwner(kind=OwnerKind.KARPENTER, name=meta.name, uid=meta.uid, deleting=deleting)
    if named is not None:
        return NodeOwner(kind=OwnerKind.KARPENTER, name=named.name, uid=named.uid, deleting=claim_gone)
    if any(label in node.metadata.labels for label in GROUP_LABELS):
        return NodeOwner(kind=OwnerKind.AUTOSCALING_GROUP)
    return NodeOwner(kind=OwnerKind.NOBODY)


def is_gpu_node(node: Node) -> bool:
    """Whether the node has, had or should have GPUs: one that lost its device plugin still counts."""
    labelled = any(node.metadata.labels.get(label, "false") not in ("false", "0") for label in GPU_LABELS)
    return labelled or gpus_in(node.status.capacity) > 0 or bool(own_conditions(node))


def awaits_admission(node: Node) -> bool:
    """Whether the node bears our startup taint."""
    return any(taint.key == TAINT_ADMISSION for taint in node.spec.taints)


def gpus_in(resources: dict[str, str]) -> int:
    """How many accelerators a list of resources holds; a MIG instance counts as one."""
    return sum(int(count) for name, count in resources.items() if is_gpu_resource(name) and count.isdecimal())


def is_gpu_resource(name: str) -> bool:
    """Whether an extended resource is an accelerator, whole, shared or a part of one."""
    return name in GPU_RESOURCES or name.startswith("nvidia.com/mig-")


def why_unavailable(node: Node) -> str:
    """Why the node takes no work now, in words; empty if it does."""
    if node.metadata.deletion_timestamp is not None:
        return "it is being deleted"
    leaving = [taint.key for taint in node.spec.taints if taint.key in LEAVING_TAINTS]
    if leaving:
        return f"it is leaving (taint {leaving[0]})"
    ready = ready_condition(node)
    if ready.status != "True":
        return f"Ready is {ready.status}"
    if awaits_admission(node):
        return "it is not admitted yet"
    return "it is cordoned" if node.spec.unschedulable else ""


def missing_after_boot(snapshot: NodeSnapshot, previous_boot_id: str, expected_gpus: int | None) -> str:
    """What is still missing for a proven reboot, in words; empty if the node is back (facts: remediation, 3.1)."""
    if not snapshot.exists:
        return "the node is gone"
    # An empty boot id differs from the old one and proves nothing.
    if snapshot.boot_id in ("", previous_boot_id):
        return "no new boot id yet"
    expected = expected_gpus if expected_gpus is not None else snapshot.gpu_capacity
    return _missing_to_work(snapshot.ready, snapshot.gpu_allocatable, expected)


def missing_to_serve(node: Node, expected_gpus: int | None) -> str:
    """What a new node still lacks to take a lost one's work, in words; empty if nothing.

    Where nobody knows how many GPUs it should have, it must have at least one: its device plugin comes up last.
    """
    if node.metadata.deletion_timestamp is not None:
        return "it is being deleted"
    expected = expected_gpus if expected_gpus is not None else max(1, gpus_in(node.status.capacity))
    missing = _missing_to_work(readiness(node), gpus_in(node.status.allocatable), expected)
    return missing or ("it is not admitted yet" if awaits_admission(node) else "")


def readiness(node: Node) -> Readiness:
    """The kubelet's Ready, Unknown for any word that is none of its three."""
    status = ready_condition(node).status
    return Readiness(status) if status in set(Readiness) else Readiness.UNKNOWN


def created_at(node: Node) -> datetime:
    """When the node was registered; the beginning of time if the server does not say."""
    return node.metadata.creation_timestamp or datetime.fromtimestamp(0, UTC)


def is_claim_of(claim: NodeClaim, node: Node) -> bool:
    """Whether a claim stands for this node's machine."""
    same_machine = bool(claim.status.provider_id) and claim.status.provider_id == node.spec.provider_id
    return same_machine or claim.status.node_name == node.metadata.name


def _gpus_promised(node: Node) -> int:
    labels = node.metadata.labels
    limits = limits_of(labels.get(TYPE_LABEL, ""))
    return count(labels, GPU_COUNT_LABEL) or (limits.gpus if limits else None) or 0


def _gpu_devices(node: Node) -> int:
    if counts_whole_gpus(node):
        return count(node.status.capacity, GPU) or 0
    return count(node.metadata.labels, LABEL_COUNT) or 0


def _missing_to_work(ready: Readiness, allocatable: int, expected: int) -> str:
    if ready is not Readiness.TRUE:
        return f"Ready is {ready}"
    return "" if allocatable >= expected else f"{allocatable} of {expected} GPUs are allocatable"


def _is_fresh(node: Node, now: datetime, limit: timedelta) -> bool:
    told, beat, boot_id = report(node), heartbeat(node), node.status.node_info.boot_id
    return (
        told is not None and bool(boot_id) and told.boot_id == boot_id and beat is not None and abs(now - beat) <= limit
    )


def _is_healthy(node: Node) -> bool:
    conditions = own_conditions(node)
    return {condition.type for condition in conditions} == set(CONDITIONS) and all(
        condition.status == "True" for condition in conditions
    )
