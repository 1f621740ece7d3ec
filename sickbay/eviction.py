"""The rules of a drain: what is to be done with each pod on a node, and what the answer to an eviction means.

Used by `activities.drain`, which lists, evicts and waits. Semantics of the Eviction API and of the pods that keep a
node from being drained: facts, remediation 2.2 and 2.3. Nothing here deletes a pod past its disruption budget; there is
no such rung.
"""

import re
from collections.abc import Iterable
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

from sickbay.kube_objects import Node, Pod, Status
from sickbay.model import Frozen
from sickbay.names import LABEL_JOB
from sickbay.node_faults import ready_condition
from sickbay.nodes import DrainGoal
from sickbay.pod_needs import may_hold_gpu
from sickbay.policy.model import DrainPolicy, HoldChoice

TERMINATING_MARGIN: Final = timedelta(seconds=30)
"""Beyond its grace period, before a pod that still stands counts as hanging: for the kubelet's clean-up and sync."""
MOST_RETURNS: Final = 3
"""Evictions of one controller's newcomers before they count as coming back for ever."""

CRITICAL_CLASSES: Final = frozenset({"system-cluster-critical", "system-node-critical"})
CRITICAL_PRIORITY: Final = 2_000_000_000
"""Priority of system-cluster-critical, the lower of the two classes."""

KARPENTER_HOLD: Final = "karpenter.sh/do-not-disrupt"
AUTOSCALER_HOLD: Final = "cluster-autoscaler.kubernetes.io/safe-to-evict"
MIRROR: Final = "kubernetes.io/config.mirror"

_GO_DURATION = re.compile(r"(?:(\d+(?:\.\d+)?)h)?(?:(\d+(?:\.\d+)?)m)?(?:(\d+(?:\.\d+)?)s)?")


class Handling(StrEnum):
    """What a drain does with one pod."""

    IGNORE = "ignore"
    """It does not stand in the way of the goal."""
    WAIT = "wait"
    """It is on its way out within its time."""
    HANG = "hang"
    """It is on its way out, and over its time."""
    HOLD = "hold"
    """It must not be evicted; only its own end or a person helps."""
    EVICT = "evict"


class PodPlan(Frozen):
    """What is to be done with one pod, and why, in words for people."""

    pod: Pod
    handling: Handling
    reason: str
    critical: bool = False


class EvictionAnswer(StrEnum):
    """What it means that an eviction was not accepted."""

    GONE = "gone"
    """It is gone already, or another pod has its name."""
    BUDGET = "budget"
    """A disruption budget forbids it now."""
    TWO_BUDGETS = "two_budgets"
    """More than one budget guards the pod: a configuration that no waiting cures."""
    NAMESPACE_ENDING = "namespace_ending"
    """Its namespace is being deleted, which deletes the pod too."""
    THROTTLED = "throttled"
    """The server is busy or in trouble; the pod was not judged."""
    FORBIDDEN = "forbidden"
    """We may not, or the call is wrong: no retry helps."""


def plan_pod(pod: Pod, goal: DrainGoal, policy: DrainPolicy, node: Node, now: datetime) -> PodPlan:
    """What a drain to this goal does with one pod on this node now."""
    handling, reason = _handling(pod, goal, policy, node, now)
    spec = pod.spec
    critical = spec.priority_class_name in CRITICAL_CLASSES or spec.priority >= CRITICAL_PRIORITY
    return PodPlan(pod=pod, handling=handling, reason=reason, critical=critical)


def evictable(plans: Iterable[PodPlan]) -> tuple[PodPlan, ...]:
    """The pods to evict next: critical ones only when no other pod stands in the way any more."""
    open_plans = [plan for plan in plans if plan.handling is not Handling.IGNORE]
    evict = [plan for plan in open_plans if plan.handling is Handling.EVICT]
    if any(not plan.critical for plan in open_plans):
        evict = [plan for plan in evict if not plan.critical]
    return tuple(sorted(evict, key=lambda plan: plan.pod.full_name))


def judge(code: int, status: Status) -> EvictionAnswer:
    """What the HTTP code and Status of an eviction that was not accepted mean (facts: remediation, 2.2)."""
    causes = {cause.reason for cause in status.details.causes}
    match code:
        case 404 if status.misses_object:
            return EvictionAnswer.GONE
        case 409:
            return EvictionAnswer.GONE
        case 429 if "DisruptionBudget" in causes:
            return EvictionAnswer.BUDGET
        case 403 if "NamespaceTerminating" in causes:
            return EvictionAnswer.NAMESPACE_ENDING
        case 403 if status.details.kind.lower().startswith("poddisruptionbudget"):
            # A budget whose own accounting is broken (negative, or too many pods in it); its controller mends that.
            return EvictionAnswer.BUDGET
        case 500 if "more than one PodDisruptionBudget" in status.message:
            return EvictionAnswer.TWO_BUDGETS
        case 429 | 408 | 500 | 502 | 503 | 504:
            return EvictionAnswer.THROTTLED
        case _:
            return EvictionAnswer.FORBIDDEN


def budget_named(status: Status) -> str | None:
    """The budget that a refusal names, if it does."""
    if status.details.kind.lower().startswith("poddisruptionbudget"):
        return status.details.name or None
    messages = (cause.message for cause in status.details.causes if cause.reason == "DisruptionBudget")
    found = (re.search(r"disruption budget (\S+)", message) for message in messages)
    return next((match.group(1) for match in found if match), None)


def _handling(pod: Pod, goal: DrainGoal, policy: DrainPolicy, node: Node, now: datetime) -> tuple[Handling, str]:
    controller = pod.metadata.controller
    if MIRROR in pod.metadata.annotations or any(owner.kind == "Node" for owner in pod.metadata.owner_references):
        return Handling.IGNORE, "a static pod cannot be evicted"
    if controller is not None and controller.kind == "DaemonSet":
        return Handling.IGNORE, "a DaemonSet's pod belongs to the node"
    if pod.status.phase in ("Succeeded", "Failed"):
        return Handling.IGNORE, "it has ended"
    if goal is DrainGoal.GPU_PODS and not may_hold_gpu(pod):
        return Handling.IGNORE, "it holds no GPU"
    if pod.metadata.deletion_timestamp is not None:
        return _handle_terminating(pod, pod.metadata.deletion_timestamp, goal, policy, node, now)
    held = _asked_not_to_move(pod, now)
    if held and policy.do_not_disrupt is HoldChoice.HOLD:
        return Handling.HOLD, held
    if controller is None and policy.unmanaged_pods is HoldChoice.HOLD:
        return Handling.HOLD, "it has no controller and would be lost; delete it, or set unmanaged_pods to evict"
    return Handling.EVICT, "it stands in the way"


def _handle_terminating(
    pod: Pod, due: datetime, goal: DrainGoal, policy: DrainPolicy, node: Node, now: datetime
) -> tuple[Handling, str]:
    states = [status.state for status in pod.status.container_statuses]
    kubelet_alive = ready_condition(node).status == "True"
    if kubelet_alive and states and all(state.terminated is not None for state in states):
        return Handling.IGNORE, "its containers have ended; a finalizer keeps the object"
    # Without its kubelet nobody ends the pod or its object; its processes may live on, and hold a GPU.
    if not kubelet_alive and goal is DrainGoal.WORKLOAD and now >= due + policy.dead_kubelet_grace:
        return Handling.IGNORE, "it hangs Terminating on a node whose kubelet is dead"
    if now < due + TERMINATING_MARGIN:
        return Handling.WAIT, f"it is terminating, due by {due.isoformat()}"
    where = "" if kubelet_alive else " on a node whose kubelet is dead, so that its processes may still run"
    return Handling.HANG, f"it hangs Terminating since {due.isoformat()}{where}; finalizers: {_finalizers(pod)}"


def _finalizers(pod: Pod) -> str:
    return ", ".join(pod.metadata.finalizers) or "none"


def _asked_not_to_move(pod: Pod, now: datetime) -> str:
    """In what words the pod asks not to be moved; empty if it does not, or no longer does.

    A pod of a training job that we run bears our own wish, by which nobody else moves it: its job was asked before.
    """
    if LABEL_JOB in pod.metadata.labels:
        return ""
    annotations = pod.metadata.annotations
    if annotations.get(AUTOSCALER_HOLD) == "false":
        return f"it bears {AUTOSCALER_HOLD}=false; remove that, or set do_not_disrupt to evict"
    wish = annotations.get(KARPENTER_HOLD, "")
    if wish == "true":
        return f"it bears {KARPENTER_HOLD}=true; remove that, or set do_not_disrupt to evict"
    lasts, since = _go_duration(wish), pod.status.start_time
    if lasts is None or (since is not None and now >= since + lasts):
        return ""
    return f"it bears {KARPENTER_HOLD}={wish} from its start; wait, remove that, or set do_not_disrupt to evict"


def _go_duration(text: str) -> timedelta | None:
    """`4h`, `1h30m`: what Karpenter takes beside `true`. None for anything else, which Karpenter ignores too."""
    match = _GO_DURATION.fullmatch(text)
    if not text or match is None:
        return None
    hours, minutes, seconds = (float(part or 0) for part in match.groups())
    return timedelta(hours=hours, minutes=minutes, seconds=seconds)
