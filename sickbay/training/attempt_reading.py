"""From the objects of an attempt to how it stands: running, failed, ended, or waiting for what.

Called by `activities.jobs` and `activities.job_watch` with what one look at the API server showed. Rules: facts,
training 2.5. A pod's own word counts least: one that says Running on a node that is lost runs no more, and one that is
marked for disruption has not been disrupted before it ends.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any, Final

from sickbay.kube_objects import Node, Pod
from sickbay.node_faults import ready_condition
from sickbay.node_reading import reference
from sickbay.training.attempts import AttemptLook, AttemptState, Placement, PodWait
from sickbay.training.manifests.adapter import Adapter
from sickbay.training.manifests.attempt import ANNOTATION_NODES, ANNOTATION_RANK_OFFSET

CAPACITY: Final = frozenset({"Unschedulable", "SchedulingGated", "OutOfcpu", "OutOfmemory", "OutOfnvidia.com/gpu"})
"""Reasons of a pod that waits for room: not a failure (facts: training, 9.11)."""
NOT_READY_GRACE: Final = timedelta(seconds=60)
"""How long a node may not be Ready under a running pod: a kubelet's restart takes seconds, and hurts no rank."""
LEAF: Final = ("topology.k8s.aws/network-node-layer-3", "topology.kubernetes.io/rack")
"""Labels that name the switch or rack behind which a node is, the first that is there."""


def read_attempt(
    manifest: Mapping[str, Any] | None,
    pods: Iterable[Pod],
    nodes: Mapping[str, Node | None],
    adapter: Adapter,
    cluster: str,
    now: datetime,
) -> AttemptLook:
    """How an attempt stands, by its object (None if there is none), its pods and their nodes (None for one that is
    gone)."""
    pods = sorted(pods, key=lambda pod: (rank_of(pod, adapter), pod.metadata.name))
    placements = tuple(placement_of(pod, nodes, adapter, cluster) for pod in pods)
    failed = [words for pod in pods if (words := why_failed(pod, nodes, now))]
    uid = str(_part(manifest, "metadata").get("uid", ""))
    common = {"observed_at": now, "uid": uid, "pods": len(pods), "placements": placements}
    if manifest is None and not pods:
        return AttemptLook(state=AttemptState.ABSENT, why="its object is gone", **common)
    if suspended := _taken_back(manifest, pods):
        return AttemptLook(state=AttemptState.EVICTED, why=suspended, **common)
    if failed:
        return AttemptLook(state=AttemptState.FAILED, why="; ".join(failed[:5]), **common)
    if object_failed := _object_failed(manifest):
        return AttemptLook(state=AttemptState.FAILED, why=object_failed, **common)
    wanted = wanted_pods(manifest, len(pods))
    if pods and len(pods) >= wanted and all(pod.status.phase == "Succeeded" for pod in pods):
        return AttemptLook(state=AttemptState.ENDED, why="every pod ended with exit code 0", **common)
    running = [pod for pod in pods if pod.status.phase == "Running"]
    waits = tuple(wait for pod in pods if (wait := wait_of(pod)) is not None)
    if len(pods) >= wanted and running and not waits:
        return AttemptLook(
            state=AttemptState.RUNNING, running=len(running), running_since=_running_since(pods), **common
        )
    why = "; ".join(f"{wait.pod}: {wait.reason}" for wait in waits[:5]) or f"{len(running)} of {wanted} pods run"
    return AttemptLook(state=AttemptState.PENDING, why=why, running=len(running), waits=waits, **common)


def rank_of(pod: Pod, adapter: Adapter) -> int:
    """The pod's index, behind those that come before its kind; 0 where nothing tells it."""
    words = {**pod.metadata.labels, **pod.metadata.annotations}
    index = next((words[label] for label in adapter.rank_labels if words.get(label, "").isdecimal()), "0")
    offset = words.get(ANNOTATION_RANK_OFFSET, "0")
    return int(index) + (int(offset) if offset.isdecimal() else 0)


def placement_of(pod: Pod, nodes: Mapping[str, Node | None], adapter: Adapter, cluster: str) -> Placement:
    """Where a pod runs."""
    node = nodes.get(pod.spec.node_name)
    labels = node.metadata.labels if node else {}
    return Placement(
        rank=rank_of(pod, adapter),
        pod=pod.metadata.name,
        pod_uid=pod.metadata.uid,
        node=pod.spec.node_name,
        node_uid=node.metadata.uid if node else "",
        machine=reference(node, cluster).machine if node else "",
        leaf=next((labels[label] for label in LEAF if labels.get(label)), ""),
    )


def why_failed(pod: Pod, nodes: Mapping[str, Node | None], now: datetime) -> str:
    """Why a pod counts as failed, in words; empty if it does not."""
    name, status = pod.metadata.name, pod.status
    if status.phase == "Failed":
        disrupted = next((each for each in status.conditions if each.type == "DisruptionTarget"), None)
        told = status.reason or (disrupted.reason if disrupted and disrupted.status == "True" else "")
        codes = [
            f"exit code {container.state.terminated.exit_code} {container.state.terminated.reason}".strip()
            for container in status.container_statuses
            if container.state.terminated is not None and container.state.terminated.exit_code != 0
        ]
        return f"{name} failed: {', '.join(filter(None, (told, *codes))) or 'no reason is told'}"
    if pod.metadata.deletion_timestamp is not None and status.phase != "Succeeded":
        return f"{name} is being deleted"
    if status.phase != "Running" or not pod.spec.node_name or pod.spec.node_name not in nodes:
        return ""
    node = nodes[pod.spec.node_name]
    if node is None:
        return f"{name}: its node {pod.spec.node_name} is gone"
    ready = ready_condition(node)
    if ready.status != "True" and (ready.last_transition_time or now) <= now - NOT_READY_GRACE:
        return f"{name}: its node {pod.spec.node_name} is not Ready for more than {NOT_READY_GRACE.seconds} s"
    return ""


def wait_of(pod: Pod) -> PodWait | None:
    """What a pod waits for; None if it waits for nothing."""
    name, node = pod.metadata.name, pod.spec.node_name
    if pod.status.phase not in ("Pending", ""):
        return None
    for container in (*pod.status.init_container_statuses, *pod.status.container_statuses):
        waiting = container.state.waiting
        if waiting is not None and waiting.reason not in ("", "ContainerCreating", "PodInitializing"):
            return PodWait(pod=name, node=node, reason=waiting.reason, message=waiting.message[:400])
    scheduled = next((each for each in pod.status.conditions if each.type == "PodScheduled"), None)
    if not node:
        reason = (scheduled.reason if scheduled and scheduled.status != "True" else "") or "Unschedulable"
        message = scheduled.message[:400] if scheduled else ""
        return PodWait(pod=name, reason=reason, message=message, capacity=reason in CAPACITY)
    return PodWait(pod=name, node=node, reason="ContainerCreating")


def wanted_pods(manifest: Mapping[str, Any] | None, otherwise: int) -> int:
    """How many pods the attempt's own label of its size says; else as many as there are."""
    annotations = _part(manifest, "metadata").get("annotations")
    size = annotations.get(ANNOTATION_NODES) if isinstance(annotations, Mapping) else None
    return int(size) if isinstance(size, str) and size.isdecimal() else max(otherwise, 1)


def _running_since(pods: Iterable[Pod]) -> datetime | None:
    begun = [
        container.state.running.started_at
        for pod in pods
        for container in pod.status.container_statuses
        if container.state.running is not None and container.state.running.started_at is not None
    ]
    return max(begun, default=None)


def _object_failed(manifest: Mapping[str, Any] | None) -> str:
    """What the object's own conditions say of a failure that no pod shows."""
    conditions = _part(manifest, "status").get("conditions")
    for condition in conditions if isinstance(conditions, list) else ():
        if isinstance(condition, Mapping) and condition.get("type") == "Failed" and condition.get("status") == "True":
            return f"{condition.get('reason', 'Failed')}: {condition.get('message', '')}".strip(": ")
    return ""


def _taken_back(manifest: Mapping[str, Any] | None, pods: Iterable[Pod]) -> str:
    """Whether a queue has suspended the object, in words: then it has not failed (facts: training, 7)."""
    spec = _part(manifest, "spec")
    policy = spec.get("runPolicy")
    suspended = spec.get("suspend") is True or (isinstance(policy, Mapping) and policy.get("suspend") is True)
    began = any(pod.status.phase != "Pending" for pod in pods)
    if not suspended or not (began or _part(manifest, "status").get("startTime") or _was_suspended(manifest)):
        return ""
    return "it was suspended: its queue took the nodes back"


def _was_suspended(manifest: Mapping[str, Any] | None) -> bool:
    conditions = _part(manifest, "status").get("conditions")
    return any(
        isinstance(one, Mapping)
        and one.get("type") in ("Suspended", "Evicted", "Requeued")
        and one.get("status") == "True"
        and one.get("reason") not in ("JobSuspended", "Suspended")
        for one in (conditions if isinstance(conditions, list) else ())
    )


def _part(manifest: Mapping[str, Any] | None, name: str) -> Mapping[str, Any]:
    part = manifest.get(name) if manifest is not None else None
    return part if isinstance(part, Mapping) else {}


def cannot_write(pod: Pod, placement: Placement, ran: Placement | None, nodes: Mapping[str, Node | None]) -> bool:
    """Whether a pod that is still listed can surely write no more: it never ran, or its machine is gone.

    A node that is merely not Ready proves nothing: its processes go on writing (design, 3.15).
    """
    if not pod.spec.node_name:
        return True
    if nodes.get(pod.spec.node_name) is None:
        return True
    return ran is not None and bool(ran.node_uid) and ran.node_uid != placement.node_uid
