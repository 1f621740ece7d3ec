"""What the server tells clients of itself: version, groups, resources, health.

Answers for fixed paths, called by the server before anything else. Only the plain form of discovery is served; clients
that ask for the aggregated form fall back to it.
"""

from simulator.kube.resources import RESOURCES, Object, Resource

VERSION = {"major": "1", "minor": "37", "gitVersion": "v1.37.0-sickbay-simulator", "platform": "linux/amd64"}
HEALTH_PATHS = ("/healthz", "/livez", "/readyz")
_VERBS = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]
_SUBRESOURCE_KINDS = {"eviction": ("policy", "v1", "Eviction"), "binding": ("", "v1", "Binding")}


def discover(path: str) -> Object | None:
    """The discovery document of this path, if it has one."""
    match path.strip("/").split("/"):
        case ["version"]:
            return dict(VERSION)
        case ["api"]:
            return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}
        case ["apis"]:
            groups = sorted({(known.group, known.version) for known in RESOURCES if known.group})
            return {"kind": "APIGroupList", "apiVersion": "v1", "groups": [_group(*entry) for entry in groups]}
        case ["api", version]:
            return _resources("", version)
        case ["apis", group]:
            versions = [known.version for known in RESOURCES if known.group == group]
            return {"kind": "APIGroup", "apiVersion": "v1", **_group(group, versions[0])} if versions else None
        case ["apis", group, version]:
            return _resources(group, version)
    return None


def _group(group: str, version: str) -> Object:
    entry = {"groupVersion": f"{group}/{version}", "version": version}
    return {"name": group, "versions": [entry], "preferredVersion": entry}


def _resources(group: str, version: str) -> Object | None:
    served = [known for known in RESOURCES if (known.group, known.version) == (group, version)]
    if not served:
        return None
    entries = [entry for resource in served for entry in _entries(resource)]
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": served[0].api_version,
        "resources": entries,
    }


def _entries(resource: Resource) -> list[Object]:
    main: Object = {
        "name": resource.plural,
        "singularName": resource.kind.lower(),
        "namespaced": resource.namespaced,
        "kind": resource.kind,
        "verbs": _VERBS,
    }
    if resource.short_names:
        main["shortNames"] = list(resource.short_names)
    return [main, *(_subresource(resource, name) for name in resource.subresources)]


def _subresource(resource: Resource, name: str) -> Object:
    group, version, kind = _SUBRESOURCE_KINDS.get(name, ("", "", resource.kind))
    entry: Object = {
        "name": f"{resource.plural}/{name}",
        "singularName": "",
        "namespaced": resource.namespaced,
        "kind": kind,
        "verbs": ["create"] if version else ["get", "patch", "update"],
    }
    return {**entry, "group": group, "version": version} if group else entry
