"""How the lists of built-in kinds merge: by key, as sets, or as a whole.

Read by strategic merge patches and by field ownership. From the `patchMergeKey` and `listMapKey` tags of the real API
types, for the kinds served here. `spec.taints` of a node is absent on purpose: despite what is often said, it has no
merge key and is replaced as a whole by every patch format (kubernetes `core/v1/types.go`, NodeSpec).
"""

from simulator.kube.resources import Object

MERGE_KEYS: dict[str, str] = {
    "conditions": "type",
    "addresses": "type",
    "containers": "name",
    "initContainers": "name",
    "ephemeralContainers": "name",
    "volumes": "name",
    "imagePullSecrets": "name",
    "env": "name",
    "ports": "containerPort",
    "volumeMounts": "mountPath",
    "ownerReferences": "uid",
    "topologySpreadConstraints": "topologyKey",
    "podIPs": "ip",
    "hostIPs": "ip",
}
"""Field name to the key of its entries."""
SETS = frozenset({"finalizers", "podCIDRs"})
"""Lists of plain values that merge as sets."""


def is_keyed(field: str, entries: object) -> bool:
    """Whether this list merges by key: its field has one, and every entry carries it."""
    if field not in MERGE_KEYS or not isinstance(entries, list):
        return False
    return all(isinstance(entry, dict) and MERGE_KEYS[field] in entry for entry in entries)


def find_entry(entries: list[Object], key: str, value: object) -> int | None:
    """Position of the entry whose `key` has this value."""
    return next((place for place, entry in enumerate(entries) if entry.get(key) == value), None)
