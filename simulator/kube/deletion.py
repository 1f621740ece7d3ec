"""Deletion: preconditions, grace, finalizers and propagation (apiserver `registry/rest/delete.go`).

Called for DELETE and by evictions. The API server only marks what must still be waited for: a pod on a node goes when
its kubelet deletes it with grace 0, a finalizer when its owner takes it off, and dependants when the garbage collector
comes by. Kubelet and collector are behaviours of the cluster, not of this server.
"""

import copy
from datetime import UTC, datetime, timedelta

from simulator.kube import errors
from simulator.kube.operations import Operations, timestamp
from simulator.kube.requests import DeleteOptions, Target
from simulator.kube.resources import NAMESPACES, PODS, Object

_TERMINAL = ("Succeeded", "Failed")
_PROPAGATION_FINALIZERS = {"Foreground": "foregroundDeletion", "Orphan": "orphan"}


def delete(operations: Operations, target: Target, options: DeleteOptions) -> tuple[Object, bool]:
    """The object's last state, and whether it is gone. Raises `ApiError` 404, or 409 if a precondition fails."""
    before = operations.read(target)
    _check_preconditions(target, before, options)
    after = copy.deepcopy(before)
    grace = _grace_period(target, before, options)
    pending = before["metadata"].get("deletionGracePeriodSeconds")
    if grace and pending is not None and grace >= pending:
        return before, False
    _add_finalizer(after, options)
    if target.resource is NAMESPACES:
        after["status"]["phase"] = "Terminating"
    stays = bool(grace or after["metadata"].get("finalizers") or target.resource is NAMESPACES)
    if stays:
        _mark(after, grace)
    if options.dry_run or (stays and after == before):
        return after, not stays
    if stays:
        return operations.store.put(target.key, after), False
    return operations.store.remove(target.key, after), True


def deletion_status(target: Target, item: Object) -> Object:
    """The Status that answers a deletion after which the object is gone."""
    details = {"name": target.name, "kind": target.resource.plural, "uid": item["metadata"]["uid"]}
    if target.resource.group:
        details["group"] = target.resource.group
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}


def _check_preconditions(target: Target, before: Object, options: DeleteOptions) -> None:
    wanted, metadata = options.preconditions, before["metadata"]
    if wanted is None:
        return
    if wanted.uid is not None and wanted.uid != metadata["uid"]:
        why = f"the UID in the precondition ({wanted.uid}) does not match the UID in record ({metadata['uid']})"
        raise errors.conflict(
            target.resource, target.name, f"{why}. The object might have been deleted and then recreated"
        )
    version = metadata["resourceVersion"]
    if wanted.resource_version is not None and wanted.resource_version != version:
        why = f"the ResourceVersion in the precondition ({wanted.resource_version}) does not match"
        raise errors.conflict(
            target.resource,
            target.name,
            f"{why} the ResourceVersion in record ({version}). The object might have been modified",
        )


def _grace_period(target: Target, before: Object, options: DeleteOptions) -> int:
    """Seconds that the object may still live: only pods that sit on a node and still run have any."""
    if target.resource is not PODS:
        return 0
    if not before["spec"].get("nodeName") or before.get("status", {}).get("phase") in _TERMINAL:
        return 0
    asked = options.grace_period_seconds
    grace = before["spec"]["terminationGracePeriodSeconds"] if asked is None else asked
    return int(grace) if grace >= 0 else 1


def _add_finalizer(after: Object, options: DeleteOptions) -> None:
    finalizer = _PROPAGATION_FINALIZERS.get(options.propagation_policy or "")
    if finalizer and finalizer not in after["metadata"].get("finalizers", ()):
        after["metadata"].setdefault("finalizers", []).append(finalizer)


def _mark(after: Object, grace: int) -> None:
    metadata = after["metadata"]
    if "deletionTimestamp" not in metadata and "generation" in metadata:
        metadata["generation"] += 1
    if grace or "deletionTimestamp" not in metadata:
        metadata["deletionTimestamp"] = timestamp(datetime.now(UTC) + timedelta(seconds=grace))
    metadata["deletionGracePeriodSeconds"] = grace
