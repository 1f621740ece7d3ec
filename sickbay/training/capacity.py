"""Where a job's pods could run now: the scheduler's rules, as far as nodes of GPUs go, and ours on top.

Called by `activities.jobs`. A node whose health is unknown or bad takes no pod (design, 3.1), and one that the job
keeps off neither. It decides how large an attempt may be, not where each pod goes: that is the scheduler's.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Final

from sickbay.kube_objects import Node, Pod
from sickbay.model import Frozen
from sickbay.names import CONDITIONS, LABEL_JOB
from sickbay.node_faults import ready_condition
from sickbay.training.attempts import CapacityLook, Exclusion
from sickbay.training.exclusions import live

GPU: Final = "nvidia.com/gpu"
UNFIT_TOLD: Final = 50


class Need(Frozen):
    """What one pod of the job needs."""

    pod_spec: Mapping[str, Any]
    gpus: int
    job: str
    namespace: str
    exclusions: tuple[Exclusion, ...] = ()


def look(nodes: Iterable[Node], pods: Iterable[Pod], need: Need, now: datetime) -> CapacityLook:
    """Every node that could take a pod, and why others that match cannot."""
    nodes = sorted(nodes, key=lambda node: node.metadata.name)
    uids = {node.metadata.name: node.metadata.uid for node in nodes}
    hard = [each for each in live(need.exclusions, now) if not each.soft]
    renewed = [each.node for each in hard if each.node_uid and uids.get(each.node, each.node_uid) != each.node_uid]
    kept_off = {each.node: each.reason for each in hard if each.node not in renewed}
    held: dict[str, int] = {}
    for pod in pods:
        if pod.status.phase not in ("Succeeded", "Failed") and not _is_own(pod, need):
            held[pod.spec.node_name] = held.get(pod.spec.node_name, 0) + _gpus(pod)
    fitting, unfit = [], []
    for node in nodes:
        name = node.metadata.name
        if not _matches(node, need):
            continue
        if why := kept_off.get(name) or why_not(node, need, held.get(name, 0)):
            unfit.append(f"{name}: {why}")
        else:
            fitting.append(name)
    return CapacityLook(
        observed_at=now, fitting=tuple(fitting), unfit=tuple(unfit[:UNFIT_TOLD]), renewed=tuple(renewed)
    )


def why_not(node: Node, need: Need, held: int) -> str:
    """Why a node that matches cannot take a pod now, in words; empty if it can."""
    if node.metadata.deletion_timestamp is not None:
        return "it is being deleted"
    if ready_condition(node).status != "True":
        return "it is not Ready"
    if node.spec.unschedulable:
        return "it is cordoned"
    if taint := next((taint for taint in node.spec.taints if not _tolerates(need.pod_spec, taint)), None):
        return f"taint {taint.key}"
    bad = [name for name in CONDITIONS if (found := node.condition(name)) is not None and found.status != "True"]
    if bad:
        return f"{bad[0]} is not True"
    allocatable = node.status.allocatable.get(GPU, "0")
    free = (int(allocatable) if allocatable.isdecimal() else 0) - held
    return f"{free} of {need.gpus} GPUs are free" if free < need.gpus else ""


def _matches(node: Node, need: Need) -> bool:
    """Whether the pod's own selector and required affinity allow the node at all."""
    if need.gpus and GPU not in node.status.capacity:
        return False
    labels = node.metadata.labels
    selector = need.pod_spec.get("nodeSelector") or {}
    if any(labels.get(key) != value for key, value in selector.items()):
        return False
    affinity = (need.pod_spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = (affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}).get("nodeSelectorTerms")
    return required is None or any(_term(term, labels) for term in required)


def _term(term: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    return all(_expression(each, labels) for each in term.get("matchExpressions") or ())


def _expression(wanted: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    value, values = labels.get(str(wanted.get("key"))), wanted.get("values") or ()
    match wanted.get("operator"):
        case "In":
            return value in values
        case "NotIn":
            return value not in values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case _:
            # Gt and Lt: the scheduler knows; here the node only counts as possible.
            return True


def _tolerates(pod_spec: Mapping[str, Any], taint: Any) -> bool:
    if taint.effect == "PreferNoSchedule":
        return True
    for toleration in pod_spec.get("tolerations") or ():
        if toleration.get("effect") not in (None, "", taint.effect):
            continue
        if toleration.get("operator") == "Exists" and toleration.get("key") in (None, "", taint.key):
            return True
        if toleration.get("key") == taint.key and toleration.get("value", "") == (taint.value or ""):
            return True
    # Where ExtendedResourceToleration is on, a pod that asks for GPUs tolerates their taint by itself.
    return bool(taint.key == GPU)


def _is_own(pod: Pod, need: Need) -> bool:
    return pod.metadata.namespace == need.namespace and pod.metadata.labels.get(LABEL_JOB) == need.job


def _gpus(pod: Pod) -> int:
    return sum(
        int(count)
        for container in pod.spec.containers
        for name, count in container.resources.limits.items()
        if name == GPU and count.isdecimal()
    )
