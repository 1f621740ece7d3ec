"""What the API server makes of an object before it stores it: absent where Go would omit, filled in where it defaults.

Called by the operations on every object that comes in. Only defaults that a client of ours can see are here; the
admission plugins that need other controllers (service accounts, taints on nodes that are not ready) are left out, as
the contract suite starts the real server without them.
"""

from typing import Any

from simulator.kube import errors
from simulator.kube.resources import JOBS, NAMESPACES, NODES, PODS, Object, Resource

_OMITTED_WHEN_EMPTY = {
    "metadata": ("labels", "annotations", "finalizers", "ownerReferences", "managedFields"),
    "spec": ("taints", "tolerations", "unschedulable", "suspend"),
}
"""Fields with `omitempty`: an empty or false value cannot be told from none, and is not stored."""
_EVICTABLE_AFTER = 300
"""Seconds, from the admission plugin DefaultTolerationSeconds."""


def settle(resource: Resource, item: Object) -> Object:
    """A copy of `item` as the server stores it: named by its kind, without nulls and empty fields, with defaults.

    Raises `ApiError` 400 for an object of another kind, or where metadata, spec or status is not an object.
    """
    for field, expected in (("kind", resource.kind), ("apiVersion", resource.api_version)):
        if item.get(field, expected) != expected:
            raise errors.bad_request(
                f"the {field} in the data ({item[field]}) does not match the expected ({expected})"
            )
    settled: Object = {**_without_nulls(item), "apiVersion": resource.api_version, "kind": resource.kind}
    settled.setdefault("metadata", {})
    for section in ("metadata", "spec", "status"):
        if not isinstance(settled.get(section, {}), dict):
            raise errors.bad_request(f"{resource.kind} in version {resource.version}: {section} is not an object")
    if not resource.custom:
        for section, fields in _OMITTED_WHEN_EMPTY.items():
            holder = settled.get(section, {})
            for field in fields:
                if field in holder and not holder[field]:
                    del holder[field]
    if resource is PODS:
        _default_pod_spec(settled.get("spec", {}))
    elif resource is JOBS:
        _default_job(settled.get("spec", {}))
    return settled


def complete(resource: Resource, item: Object) -> None:
    """Fill in what a new object gets once, at its creation."""
    if resource is PODS:
        item["status"] = {"phase": "Pending", "qosClass": "BestEffort"}
        _tolerate_dead_nodes(item["spec"])
    elif resource is JOBS:
        _select_own_pods(item)
        item["status"] = {}
    elif resource is NAMESPACES:
        item.setdefault("spec", {})["finalizers"] = ["kubernetes"]
        item["status"] = {"phase": "Active"}
        item["metadata"].setdefault("labels", {})["kubernetes.io/metadata.name"] = item["metadata"]["name"]
    elif resource is NODES:
        item.setdefault("spec", {})
        item.setdefault("status", {})
    elif resource.has_status:
        item.pop("status", None)


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {field: _without_nulls(inner) for field, inner in value.items() if inner is not None}
    if isinstance(value, list):
        return [_without_nulls(entry) for entry in value]
    return value


def _default_pod_spec(spec: Object) -> None:
    spec.setdefault("restartPolicy", "Always")
    spec.setdefault("terminationGracePeriodSeconds", 30)
    spec.setdefault("dnsPolicy", "ClusterFirst")
    spec.setdefault("schedulerName", "default-scheduler")
    for container in (*spec.get("initContainers", ()), *spec.get("containers", ())):
        _default_resources(container.get("resources", {}))


def _default_resources(resources: Object) -> None:
    """Quantities are text once stored, whatever they were sent as; what is limited is requested."""
    for kind in ("limits", "requests"):
        if kind in resources:
            resources[kind] = {name: str(quantity) for name, quantity in resources[kind].items()}
    if "limits" in resources:
        resources["requests"] = {**resources["limits"], **resources.get("requests", {})}


def _tolerate_dead_nodes(spec: Object) -> None:
    tolerations = spec.setdefault("tolerations", [])
    for key in ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"):
        if not any(entry.get("key") in (None, key) for entry in tolerations):
            tolerations.append(
                {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": _EVICTABLE_AFTER}
            )


def _default_job(spec: Object) -> None:
    spec.setdefault("parallelism", 1)
    spec.setdefault("completions", spec["parallelism"])
    spec.setdefault("backoffLimit", 6)
    spec.setdefault("completionMode", "NonIndexed")
    template = spec.get("template")
    if isinstance(template, dict) and isinstance(template.get("spec"), dict):
        _default_pod_spec(template["spec"])


def _select_own_pods(job: Object) -> None:
    """A job's selector is made by the server out of its UID, and its pod template carries the same labels."""
    uid, name = job["metadata"]["uid"], job["metadata"]["name"]
    labels = {
        "batch.kubernetes.io/controller-uid": uid,
        "controller-uid": uid,
        "batch.kubernetes.io/job-name": name,
        "job-name": name,
    }
    metadata = job["spec"].setdefault("template", {}).setdefault("metadata", {})
    metadata["labels"] = {**metadata.get("labels", {}), **labels}
    job["spec"]["selector"] = {"matchLabels": {"batch.kubernetes.io/controller-uid": uid}}
