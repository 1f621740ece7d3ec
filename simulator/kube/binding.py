"""Binding a pod to a node: what a scheduler does with POST on `/pods/NAME/binding`."""

import copy
from datetime import UTC, datetime

from simulator.kube import errors
from simulator.kube.operations import Operations, timestamp
from simulator.kube.requests import Target
from simulator.kube.resources import Object


def bind(operations: Operations, target: Target, body: Object) -> Object:
    """Put the pod on the node that the body names. Raises `ApiError` 400, 404, or 409 if it has a node already."""
    node = body.get("target", {}).get("name")
    if not node:
        raise errors.bad_request("Binding: target.name: Required value")
    pod = operations.read(target)
    if "deletionTimestamp" in pod["metadata"]:
        raise errors.conflict(
            target.resource, target.name, f"pod {target.name} is being deleted, cannot be assigned to a host"
        )
    taken = pod["spec"].get("nodeName")
    if taken:
        why = f'pod {target.name} is already assigned to node "{taken}"'
        raise errors.conflict(target.resource, target.name, why)
    bound = copy.deepcopy(pod)
    bound["spec"]["nodeName"] = node
    bound["status"]["conditions"] = [
        *(entry for entry in bound["status"].get("conditions", ()) if entry["type"] != "PodScheduled"),
        {"type": "PodScheduled", "status": "True", "lastTransitionTime": timestamp(datetime.now(UTC))},
    ]
    operations.store.put(target.key, bound)
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}
