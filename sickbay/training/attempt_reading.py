"""From the objects of an attempt to how it stands: running, failed, ended, or waiting for what.

Called by `activities.jobs` and `activities.job_watch` with what one look at the API server showed. Rules: facts,
training 2.5. A pod's own word counts least: one that says Running on a node that is lost runs no more, and one that is
marked for disruption has not been disrupted before it ends.
"""

import re
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any, Final

from sickbay.kube_objects import Node, Pod
from sickbay.names import ANNOTATION_FENCE
from sickbay.node_faults import ready_condition
from sickbay.node_reading import reference
from sickbay.training.attempts import AttemptLook, AttemptState, Placement, PodWait
from sickbay.training.manifests.adapter import Adapter
from sickbay.training.manifests.attempt import ANNOTATION_NODES, ANNOTATION_RANK_OFFSET, ANNOTATION_RANK_STRIDE

CAPACITY: Final = frozenset({"Unschedulable", "SchedulingGated", "OutOfcpu", "OutOfmemory", "OutOfnvidia.com/gpu"})
"""Reasons of a pod that waits for room: not a failure (facts: training, 9.11)."""
NOT_READY_GRACE: Final = timedelta(seconds=60)
"""How long a node may not be Ready under a running pod: a kubelet's restart takes seconds, and hurts no rank."""
QUOTA: Final = "exceeded quota"
"""In the words by which the API server refuses what would go over a namespace's quota: room comes back by itself."""
WAITS_TOLD: Final = 50
SUSPENDED: Final = "Suspended"
TAKEN_BACK: Final = "it was suspended: its queue took the nodes back"
JOB_INDEX: Final = "jobset.sigs.k8s.io/job-index"
"""Label of a JobSet's pod: the number of its job among those of one kind."""
DIGITS: Final = re.compile(r"[0-9]{1,9}")
LEAF: Final = ("topology.k8s.aws/network-node-layer-3", "topology.kubernetes.io/rack")
"""Labels that name the switch or rack behind which a node is, the first that is there."""


def read_attempt(
    manifest: Mapping[str, Any] | None,
    pods: Iterable[Pod],
    nodes: Mapping[str, Node | None],
    adapter: Adapter,
    cluster: str,
    now: datetime,
    *,
    refused: str = "",
) -> AttemptLook:
    """How an attempt stands, by its object (None if there is none), its pods and their nodes (None for one that is
    gone). `refused` is what the object's controller last heard when it could not make a pod."""
    pods = sorted(pods, key=lambda pod: (rank_of(pod, adapter), pod.metadata.name))
    running = [pod for pod in pods if pod.status.phase == "Running"]
    common = {
        "observed_at": now,
        "uid": str(_part(manifest, "metadata").get("uid", "")),
        "pods": len(pods),
        "running": len(running),
        "placements": tuple(placement_of(pod, nodes, adapter, cluster) for pod in pods),
    }
    wanted = wanted_pods(manifest, len(pods))
    if len(pods) >= wanted:
        common["placed_since"] = _placed_since(pods)
    if (over := _over(manifest, pods, nodes, wanted, now)) is not None:
        state, why = over
        return AttemptLook(state=state, why=why, **common)
    waits = [wait for pod in pods if (wait := wait_of(pod)) is not None]
    if len(pods) < wanted:
        waits.append(_of_missing(manifest, len(pods), wanted, refused))
    if running and not waits:
        return AttemptLook(state=AttemptState.RUNNING, running_since=_running_since(pods), **common)
    why = "; ".join(f"{wait.pod}: {wait.reason}" for wait in waits[:5]) or f"{len(running)} of {wanted} pods run"
    return AttemptLook(state=AttemptState.PENDING, why=why, waits=tuple(waits[:WAITS_TOLD]), **common)


def _over(
    manifest: Mapping[str, Any] | None,
    pods: list[Pod],
    nodes: Mapping[str, Node | None],
    wanted: int,
    now: datetime,
) -> tuple[AttemptState, str] | None:
    """Whether the attempt is over, and by what; None while it is not."""
    ended = [pod for pod in pods if pod.status.phase in ("Succeeded", "Failed")]
    if manifest is None and len(ended) < max(len(pods), 1):
        return AttemptState.ABSENT, "its object is gone" + (f", and {len(pods)} of its pods are left" if pods else "")
    if taken_back := _taken_back(manifest, pods):
        return AttemptState.EVICTED, taken_back
    if failed := [words for pod in pods if (words := why_failed(pod, nodes, now))]:
        return AttemptState.FAILED, "; ".join(failed[:5])
    if object_failed := _object_failed(manifest):
        return AttemptState.FAILED, object_failed
    if len(pods) >= wanted and all(pod.status.phase == "Succeeded" for pod in pods):
        return AttemptState.ENDED, "every pod ended with exit code 0"
    return None


def _of_missing(manifest: Mapping[str, Any] | None, there: int, wanted: int, refused: str) -> PodWait:
    """What the pods wait for that nobody has made yet."""
    if _is_suspended(manifest):
        return PodWait(pod="all pods", reason=SUSPENDED, message="its queue has not let it in", capacity=True)
    message = refused[:400] or f"{there} of {wanted} pods are made"
    return PodWait(
        pod=f"{wanted - there} of {wanted} pods", reason="NotCreated", message=message, capacity=QUOTA in refused
    )


def compared(look: AttemptLook, before: Iterable[Placement]) -> AttemptLook:
    """A look beside where pods were seen to run earlier: a pod that is gone without a word was not ended by itself, and
    one that came in its place has no part in what the others compute."""
    if look.state not in (AttemptState.PENDING, AttemptState.RUNNING):
        return look
    here = {place.pod_uid for place in look.placements}
    lost = [place for place in before if place.node and place.pod_uid and place.pod_uid not in here]
    if not lost:
        return look
    if any(wait.reason == SUSPENDED for wait in look.waits):
        return look.model_copy(update={"state": AttemptState.EVICTED, "why": TAKEN_BACK, "waits": ()})
    why = "; ".join(f"{place.pod} is gone from {place.node} without a word" for place in lost[:5])
    return look.model_copy(update={"state": AttemptState.FAILED, "why": why})


def rank_of(pod: Pod, adapter: Adapter) -> int:
    """The pod's index, behind those that come before its kind; 0 where nothing tells it."""
    words = {**pod.metadata.labels, **pod.metadata.annotations}

    def number(*keys: str) -> int:
        return next((int(words[key]) for key in keys if DIGITS.fullmatch(words.get(key, ""))), 0)

    before = number(ANNOTATION_RANK_STRIDE) * number(JOB_INDEX)
    return number(*adapter.rank_labels) + number(ANNOTATION_RANK_OFFSET) + before


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
        boot_id=node.status.node_info.boot_id if node else "",
        machine=reference(node, cluster).machine if node else "",
        leaf=next((labels[label] for label in LEAF if labels.get(label)), ""),
    )


def why_failed(pod: Pod, nodes: Mapping[str, Node | None], now: datetime) -> str:
    """Why a pod counts as failed, in words; empty if it does not."""
    name, status = pod.metadata.name, pod.status
    codes = [
        f"exit code {container.state.terminated.exit_code} {container.state.terminated.reason}".strip()
        for container in status.container_statuses
        if container.state.terminated is not None and container.state.terminated.exit_code != 0
    ]
    if status.phase == "Failed":
        disrupted = next((each for each in status.conditions if each.type == "DisruptionTarget"), None)
        told = status.reason or (disrupted.reason if disrupted and disrupted.status == "True" else "")
        return f"{name} failed: {', '.join(filter(None, (told, *codes))) or 'no reason is told'}"
    if pod.metadata.deletion_timestamp is not None and status.phase != "Succeeded":
        return f"{name} is being deleted"
    if status.phase == "Running" and codes:
        # Nothing restarts it; a container beside it can keep the pod up for ever.
        return f"{name} failed: {', '.join(codes)}"
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


def _placed_since(pods: Iterable[Pod]) -> datetime | None:
    """When the last of the pods was given a node; None while one has none, or where nobody tells."""
    bound = []
    for pod in pods:
        condition = next((each for each in pod.status.conditions if each.type == "PodScheduled"), None)
        if not pod.spec.node_name or condition is None or condition.last_transition_time is None:
            return None
        bound.append(condition.last_transition_time)
    return max(bound, default=None)


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
    if not _is_suspended(manifest):
        return ""
    # A Job that is suspended loses its start time; one that never ran has no pod that began.
    began = any(pod.status.phase not in ("Pending", "") for pod in pods)
    return TAKEN_BACK if began or _part(manifest, "status").get("startTime") else ""


def _is_suspended(manifest: Mapping[str, Any] | None) -> bool:
    spec = _part(manifest, "spec")
    policy = spec.get("runPolicy")
    return spec.get("suspend") is True or (isinstance(policy, Mapping) and policy.get("suspend") is True)


def _part(manifest: Mapping[str, Any] | None, name: str) -> Mapping[str, Any]:
    part = manifest.get(name) if manifest is not None else None
    return part if isinstance(part, Mapping) else {}


def cannot_write(place: Placement, ran: Placement | None, nodes: Mapping[str, Node | None]) -> bool:
    """Whether a pod can surely write no more although nobody saw it end: it never ran, or its machine is gone or was
    started anew since it ran.

    A node that is merely not Ready proves nothing: its processes go on writing (design, 3.15).
    """
    if not place.node or nodes.get(place.node) is None:
        return True
    if ran is None or ran.node != place.node:
        return False
    other_node = bool(ran.node_uid and place.node_uid) and ran.node_uid != place.node_uid
    other_boot = bool(ran.boot_id and place.boot_id) and ran.boot_id != place.boot_id
    return other_node or other_boot


def is_foreign(pod: Pod, fence: str) -> bool:
    """Whether a pod with an attempt's labels was made by another run of a job of that name.

    One that bears no fence at all may be ours: a controller between us and it may drop annotations.
    """
    return pod.metadata.annotations.get(ANNOTATION_FENCE, fence) != fence
