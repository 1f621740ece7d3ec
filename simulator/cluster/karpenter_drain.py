"""Karpenter's drain: which pods of a leaving node go next, and by which force (facts: remediation, 1.2)."""

from datetime import datetime, timedelta

from simulator.cluster.karpenter_objects import ANNOTATION_DO_NOT_DISRUPT, DISRUPTED
from simulator.cluster.objects import Pod
from simulator.cluster.taints import bears

CRITICAL = frozenset({"system-cluster-critical", "system-node-critical"})
STUCK_AFTER = timedelta(minutes=1)
"""A pod so long past its deletion timestamp is no longer waited for."""


def holds_drain(pod: Pod, stuck_after: timedelta, now: datetime) -> bool:
    """Whether the drain waits for this pod."""
    mirror = any(owner.kind == "Node" for owner in pod.metadata.owner_references)
    ended_at = pod.metadata.deletion_timestamp
    stuck = ended_at is not None and now - ended_at > stuck_after
    return not (pod.finished or mirror or stuck or bears(pod, DISRUPTED))


def next_group(pods: list[Pod]) -> list[Pod]:
    """The pods whose turn it is: ordinary before critical ones, and in each others before those of DaemonSets."""
    if not pods:
        return []
    first = min(map(_turn, pods))
    return [pod for pod in pods if _turn(pod) == first]


def asks_to_stay(pod: Pod) -> bool:
    """Whether the pod is not to be disrupted. A duration instead of `true` is not simulated."""
    return pod.metadata.annotations.get(ANNOTATION_DO_NOT_DISRUPT) == "true"


def forced_grace(pod: Pod, seconds_left: float) -> int | None:
    """Once the node's time runs out: the grace of a plain delete, at least 1 s; None while there is time."""
    own = pod.spec.termination_grace_period_seconds or 0
    return max(int(min(own, seconds_left)), 1) if seconds_left < own else None


def _turn(pod: Pod) -> tuple[bool, bool]:
    daemon = pod.controller is not None and pod.controller.kind == "DaemonSet"
    return pod.spec.priority_class_name in CRITICAL, daemon
