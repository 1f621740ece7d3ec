"""The Eviction API: a deletion that asks the pod's PodDisruptionBudget first.

Decides as the real one does (kubernetes `pkg/registry/core/pod/storage/eviction.go`; facts: remediation, 2.2), out of
the budget's status, which the cluster's disruption controller keeps. A granted eviction counts the budget down before
the pod goes, so that of several at once only as many pass as the budget allows.
"""

import copy
from datetime import UTC, datetime

from simulator.kube import errors
from simulator.kube.deletion import delete
from simulator.kube.operations import Operations, timestamp
from simulator.kube.requests import DeleteOptions, Target, WriteOptions, parse_delete_options
from simulator.kube.resources import BUDGETS, Object
from simulator.kube.selectors import selector_matches

MANAGER = "kube-apiserver"
MOST_DISRUPTED_PODS = 2_000
RETRY_STALE_AFTER = 10
"""Seconds that a client is told to wait for a budget whose status is behind its spec."""
_REFUSED = "Cannot evict pod as it would violate the pod's disruption budget."
_CAUSE = "DisruptionBudget"


def evict(operations: Operations, target: Target, body: Object, options: WriteOptions) -> Object:
    """Evict the pod that `target` names. Raises `ApiError` 400, 403, 404, 409, 429, or 500 for two budgets."""
    metadata = body.get("metadata")
    if not isinstance(metadata, dict) or metadata.get("name") != target.name:
        raise errors.bad_request("name in URL does not match name in Eviction object")
    asked = parse_delete_options({}, body.get("deleteOptions") or {})
    if options.dry_run:
        asked = asked.model_copy(update={"dry_run": (options.dry_run,)})
    pod = operations.read(target)
    if not _needs_no_budget(pod):
        budget = _budget_of(operations, pod)
        if budget is not None and not _unhealthy_pod_may_go(pod, budget):
            _take_disruption(operations, budget, pod, dry_run=bool(asked.dry_run))
    _delete_evicted(operations, target, pod, asked)
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}


def _needs_no_budget(pod: Object) -> bool:
    ended = pod["status"].get("phase") in ("Succeeded", "Failed", "Pending")
    return ended or "deletionTimestamp" in pod["metadata"]


def _budget_of(operations: Operations, pod: Object) -> Object | None:
    labels = pod["metadata"].get("labels", {})
    matching = [
        budget
        for budget in operations.store.snapshot(BUDGETS)
        if budget["metadata"]["namespace"] == pod["metadata"]["namespace"]
        and "selector" in budget.get("spec", {})
        and selector_matches(budget["spec"]["selector"], labels)
    ]
    if len(matching) > 1:
        message = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
        raise errors.ApiError(500, "", message)
    return matching[0] if matching else None


def _unhealthy_pod_may_go(pod: Object, budget: Object) -> bool:
    """A pod that is not Ready does not count as healthy, so that its loss costs the budget nothing."""
    conditions = pod["status"].get("conditions", ())
    if any(condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions):
        return False
    if budget["spec"].get("unhealthyPodEvictionPolicy") == "AlwaysAllow":
        return True
    status = budget.get("status", {})
    return bool(status.get("currentHealthy", 0) >= status.get("desiredHealthy", 0) > 0)


def _take_disruption(operations: Operations, budget: Object, pod: Object, *, dry_run: bool) -> None:
    metadata, status = budget["metadata"], copy.deepcopy(budget.get("status", {}))
    name, allowed = metadata["name"], status.get("disruptionsAllowed", 0)
    if status.get("observedGeneration", 0) < metadata["generation"]:
        why = f"The disruption budget {name} is still being processed by the server."
        raise _too_many(why, retry_after=RETRY_STALE_AFTER)
    if allowed < 0:
        raise errors.forbidden(BUDGETS, name, "pdb disruptions allowed is negative")
    if len(status.get("disruptedPods", ())) > MOST_DISRUPTED_PODS:
        why = "DisruptedPods map too big - too many evictions not confirmed by PDB controller"
        raise errors.forbidden(BUDGETS, name, why)
    if allowed == 0:
        needs, has = status.get("desiredHealthy", 0), status.get("currentHealthy", 0)
        raise _too_many(f"The disruption budget {name} needs {needs} healthy pods and has {has} currently")
    if dry_run:
        return
    status["disruptionsAllowed"] = allowed - 1
    status.setdefault("disruptedPods", {})[pod["metadata"]["name"]] = timestamp(datetime.now(UTC))
    place = Target(BUDGETS, metadata["namespace"], name, "status")
    operations.update(place, budget, {**budget, "status": status}, WriteOptions(field_manager=MANAGER))


def _delete_evicted(operations: Operations, target: Target, pod: Object, asked: DeleteOptions) -> None:
    """Delete the pod; one that still lives also carries the condition that tells why it goes."""
    if not asked.dry_run and "deletionTimestamp" not in pod["metadata"] and _is_meant(pod, asked):
        status = copy.deepcopy(pod["status"])
        status["conditions"] = [
            *(entry for entry in status.get("conditions", ()) if entry["type"] != "DisruptionTarget"),
            {
                "type": "DisruptionTarget",
                "status": "True",
                "reason": "EvictionByEvictionAPI",
                "message": "Eviction API: evicting",
                "lastTransitionTime": timestamp(datetime.now(UTC)),
            },
        ]
        place = Target(target.resource, target.namespace, target.name, "status")
        operations.update(place, pod, {**pod, "status": status}, WriteOptions(field_manager=MANAGER))
        asked = asked.model_copy(update={"preconditions": None})
    delete(operations, Target(target.resource, target.namespace, target.name), asked)


def _is_meant(pod: Object, asked: DeleteOptions) -> bool:
    wanted = asked.preconditions
    if wanted is None:
        return True
    metadata = pod["metadata"]
    return wanted.uid in (None, metadata["uid"]) and wanted.resource_version in (None, metadata["resourceVersion"])


def _too_many(cause: str, *, retry_after: int = 0) -> errors.ApiError:
    details = {"causes": [{"reason": _CAUSE, "message": cause}]}
    return errors.ApiError(429, "TooManyRequests", _REFUSED, details=details, retry_after=retry_after)
