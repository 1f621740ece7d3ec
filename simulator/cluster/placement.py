"""Where a pod fits: the scheduler's rules, as far as GPUs, selectors and taints go.

Pure; asked by the scheduler for nodes that exist and by Karpenter for nodes that might.
"""

from collections.abc import Iterable

from simulator.cluster.objects import Node, Pod, Taint
from simulator.cluster.taints import UNSCHEDULABLE, bears


def is_waiting(pod: Pod) -> bool:
    """Whether a pod waits for a node."""
    return not pod.spec.node_name and not pod.deleting and not pod.finished


def free_gpus(node: Node, pods: Iterable[Pod]) -> int:
    """Allocatable GPUs that no unfinished pod of the node holds."""
    held = sum(pod.gpus for pod in pods if pod.spec.node_name == node.name and not pod.finished)
    return node.allocatable_gpus - held


def selects(pod: Pod, labels: dict[str, str]) -> bool:
    """Whether the pod's node selector and its required affinity allow nodes with these labels."""
    if not pod.spec.node_selector.items() <= labels.items():
        return False
    required = pod.spec.affinity.node_affinity.required_during_scheduling_ignored_during_execution
    if required is None:
        return True
    return any(all(wanted.allows(labels) for wanted in term.match_expressions) for term in required.node_selector_terms)


def bears_all(pod: Pod, taints: Iterable[Taint]) -> bool:
    """Whether no taint keeps the pod off."""
    return all(taint.effect == "PreferNoSchedule" or bears(pod, taint) for taint in taints)


def fits(pod: Pod, node: Node, gpus_free: int) -> bool:
    """Whether a pod may be bound to a node now."""
    if not node.ready or node.deleting or not selects(pod, node.metadata.labels):
        return False
    if node.spec.unschedulable and not bears(pod, Taint(key=UNSCHEDULABLE, effect="NoSchedule")):
        return False
    return bears_all(pod, node.spec.taints) and pod.gpus <= gpus_free
