"""Rules of the served kinds that a client can break, each answered with 422 as the real server does.

Called by the operations before an object is stored. Not a full schema: what is here guards against mistakes that would
otherwise pass in the simulator and fail in a real cluster.
"""

import re

from simulator.kube import errors
from simulator.kube.resources import EVENTS, JOBS, NODES, PODS, Object, Resource

_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_LABEL_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_CHANGEABLE_IN_PODS = ("tolerations", "activeDeadlineSeconds", "schedulingGates")


def check(resource: Resource, item: Object) -> None:
    """Raises `ApiError` 422 if the object breaks a rule by itself."""
    name = item["metadata"].get("name", "")
    if len(name) > 253 or not _SUBDOMAIN.fullmatch(name):
        raise errors.invalid(
            resource, name, "metadata.name", f'Invalid value: "{name}": a lowercase RFC 1123 subdomain'
        )
    labels = item["metadata"].get("labels", {})
    if not isinstance(labels, dict):
        raise errors.bad_request(f"{resource.kind} in version {resource.version}: metadata.labels is not an object")
    for key, value in labels.items():
        if not isinstance(value, str) or not _LABEL_VALUE.fullmatch(value):
            raise errors.invalid(resource, name, "metadata.labels", f'Invalid value: "{value}" of label {key}')
    if resource is NODES:
        _check_taints(item)
    elif resource is PODS and not item.get("spec", {}).get("containers"):
        raise errors.invalid(resource, name, "spec.containers", "Required value")
    elif resource is JOBS and not isinstance(item.get("spec", {}).get("template"), dict):
        raise errors.invalid(resource, name, "spec.template", "Required value")
    elif resource is EVENTS:
        about = item.get("involvedObject", {}).get("namespace") or "default"
        if about != item["metadata"]["namespace"]:
            why = f'Invalid value: "{about}": does not match event.namespace'
            raise errors.invalid(resource, name, "involvedObject.namespace", why)


def check_change(resource: Resource, before: Object, after: Object) -> None:
    """Raises `ApiError` 422 if the change itself is forbidden."""
    name = after["metadata"]["name"]
    if resource is NODES:
        known = before.get("spec", {}).get("providerID")
        if known and after.get("spec", {}).get("providerID") != known:
            why = "Forbidden: node updates may not change providerID except from empty to valid"
            raise errors.invalid(resource, name, "spec.providerID", why)
    elif resource is PODS and _fixed_part(before["spec"]) != _fixed_part(after["spec"]):
        why = "Forbidden: pod updates may not change fields other than images, activeDeadlineSeconds and tolerations"
        raise errors.invalid(resource, name, "spec", why)


def _check_taints(node: Object) -> None:
    seen: set[tuple[str, str]] = set()
    taints = node.get("spec", {}).get("taints", [])
    if not isinstance(taints, list) or not all(isinstance(taint, dict) for taint in taints):
        raise errors.bad_request("Node in version v1: spec.taints is not a list of objects")
    for place, taint in enumerate(taints):
        name, field = node["metadata"]["name"], f"spec.taints[{place}]"
        identity = (taint.get("key", ""), taint.get("effect", ""))
        if not identity[0]:
            raise errors.invalid(NODES, name, f"{field}.key", "Required value: taint key must not be empty")
        if identity[1] not in _EFFECTS:
            raise errors.invalid(NODES, name, f"{field}.effect", f'Unsupported value: "{identity[1]}"')
        if identity in seen:
            raise errors.invalid(NODES, name, field, "Duplicate value: taints must be unique by key and effect pair")
        seen.add(identity)


def _fixed_part(spec: Object) -> Object:
    fixed = {field: value for field, value in spec.items() if field not in _CHANGEABLE_IN_PODS}
    for group in ("containers", "initContainers"):
        if group in fixed:
            fixed[group] = [{**container, "image": ""} for container in fixed[group]]
    return fixed
