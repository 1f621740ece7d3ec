"""Who wrote which field: `metadata.managedFields`, and server-side apply that is built on it.

Called by the operations on every write. An object is seen as a flat map from field paths (in the notation of FieldsV1)
to values; who writes a value owns its path, and a removed field has no owner at all (apimachinery `managedfields`).
Conflicts and removals of apply follow from set arithmetic on paths.
"""

import copy
import json
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from simulator.kube import errors
from simulator.kube.lists import MERGE_KEYS, SETS, find_entry, is_keyed
from simulator.kube.resources import Object

Path = tuple[str, ...]
_UNOWNED = frozenset(
    {
        "apiVersion",
        "kind",
        "name",
        "namespace",
        "uid",
        "resourceVersion",
        "creationTimestamp",
        "generation",
        "managedFields",
        "selfLink",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
    }
)
"""Fields without an owner: type and name of the object, and what only the server sets."""
_ITEM = "."


@dataclass(frozen=True)
class Writer:
    """Who writes, and how."""

    manager: str
    operation: str
    """`Update` or `Apply`."""
    api_version: str
    subresource: str
    at: datetime


def flatten(item: Object) -> dict[Path, Any]:
    """Every ownable field with its value."""
    flat: dict[Path, Any] = {}
    for field, value in item.items():
        if field == "metadata":
            for inner, content in value.items():
                if inner not in _UNOWNED:
                    _flatten(("f:metadata", f"f:{inner}"), inner, content, flat)
        elif field not in _UNOWNED:
            _flatten((f"f:{field}",), field, value, flat)
    return flat


def _flatten(path: Path, field: str, value: Any, flat: dict[Path, Any]) -> None:
    if isinstance(value, dict) and value:
        for inner, content in value.items():
            _flatten((*path, f"f:{inner}"), inner, content, flat)
    elif is_keyed(field, value):
        for entry in value:
            place = (*path, "k:" + json.dumps({MERGE_KEYS[field]: entry[MERGE_KEYS[field]]}, separators=(",", ":")))
            flat[(*place, _ITEM)] = None
            _flatten(place, "", entry, flat)
    elif isinstance(value, list) and field in SETS:
        for entry in value:
            flat[(*path, "v:" + json.dumps(entry))] = entry
    else:
        flat[path] = value


def record_update(before: Object | None, after: Object, writer: Writer) -> None:
    """Set `after`'s managedFields: the writer owns what it changed; what is gone belongs to nobody."""
    old, new = flatten(before or {}), flatten(after)
    changed = {path for path, value in new.items() if path not in old or old[path] != value}
    entries = [] if before is None else _load(before)
    mine = _own(entries, writer)
    for entry in entries:
        if entry is not mine:
            entry.paths -= changed
        entry.paths &= new.keys()
    if changed:
        mine.paths |= changed
        mine.time = _stamp(writer.at)
    _save(after, entries)


def apply(live: Object, wanted: Object, writer: Writer, *, force: bool) -> Object:
    """Server-side apply of `wanted` onto `live`.

    Raises `ApiError` 409, naming managers and fields, where another manager owns a field with another value and
    `force` is not set.
    """
    entries = _load(live)
    mine = _own(entries, writer)
    now, asked = flatten(live), flatten(wanted)
    contested = {path for path, value in asked.items() if path in now and now[path] != value}
    losers = [(entry, entry.paths & contested) for entry in entries if entry is not mine and entry.paths & contested]
    if losers and not force:
        raise _conflicts(losers)
    for entry, lost in losers:
        entry.paths -= lost
    merged: Object = _overlay(copy.deepcopy(live), wanted)
    others = set().union(*(entry.paths for entry in entries if entry is not mine))
    for path in sorted(mine.paths - asked.keys() - others, key=len, reverse=True):
        _drop(merged, path)
    if mine.paths != asked.keys() or contested:
        mine.time = _stamp(writer.at)
    mine.paths = set(asked)
    _save(merged, entries)
    return merged


@dataclass
class _Entry:
    """One managedFields entry while it is being worked on."""

    manager: str
    operation: str
    api_version: str
    subresource: str
    time: str
    paths: set[Path]


def _own(entries: list[_Entry], writer: Writer) -> _Entry:
    for entry in entries:
        who = (entry.manager, entry.operation, entry.subresource, entry.api_version)
        if who == (writer.manager, writer.operation, writer.subresource, writer.api_version):
            return entry
    new = _Entry(
        writer.manager, writer.operation, writer.api_version, writer.subresource, _stamp(writer.at), paths=set()
    )
    entries.append(new)
    return new


def _load(item: Object) -> list[_Entry]:
    return [
        _Entry(
            entry["manager"],
            entry["operation"],
            entry["apiVersion"],
            entry.get("subresource", ""),
            entry["time"],
            _paths((), entry["fieldsV1"]),
        )
        for entry in item["metadata"].get("managedFields", ())
    ]


def _save(item: Object, entries: list[_Entry]) -> None:
    item["metadata"]["managedFields"] = [
        {
            "manager": entry.manager,
            "operation": entry.operation,
            "apiVersion": entry.api_version,
            "time": entry.time,
            "fieldsType": "FieldsV1",
            "fieldsV1": _fields_v1(entry.paths),
            **({"subresource": entry.subresource} if entry.subresource else {}),
        }
        for entry in entries
        if entry.paths
    ]


def _paths(prefix: Path, fields: Object) -> set[Path]:
    found: set[Path] = set()
    for step, inner in fields.items():
        found |= _paths((*prefix, step), inner) if inner else {(*prefix, step)}
    return found


def _fields_v1(paths: set[Path]) -> Object:
    tree: Object = {}
    for path in sorted(paths):
        branch = tree
        for step in path:
            branch = branch.setdefault(step, {})
    return tree


def _overlay(live: Any, wanted: Any, field: str = "") -> Any:
    if isinstance(wanted, dict):
        merged = dict(live) if isinstance(live, dict) else {}
        return {**merged, **{name: _overlay(merged.get(name), value, name) for name, value in wanted.items()}}
    if isinstance(wanted, list) and field in SETS:
        return [*(live or ()), *(entry for entry in wanted if entry not in (live or ()))]
    if is_keyed(field, wanted):
        entries, key = list(live or ()), MERGE_KEYS[field]
        for entry in wanted:
            place = find_entry(entries, key, entry.get(key))
            if place is None:
                entries.append(copy.deepcopy(entry))
            else:
                entries[place] = _overlay(entries[place], entry)
        return entries
    return copy.deepcopy(wanted)


def _drop(item: Object, path: Path) -> None:
    """Remove one field, or a whole list entry; nothing, if it went with its parent."""
    holder: Any = item
    *parents, last = path[:-1] if path[-1] == _ITEM else path
    for step in parents:
        place = _locate(holder, step)
        if place is None:
            return
        holder = holder[place]
    place = _locate(holder, last)
    if place is not None:
        del holder[place]


def _locate(holder: Any, step: str) -> Any:
    kind, name = step[0], step[2:]
    if kind == "f":
        return name if name in holder else None
    value = json.loads(name)
    if kind == "v":
        return holder.index(value) if value in holder else None
    ((key, wanted),) = value.items()
    return find_entry(holder, key, wanted)


def _conflicts(losers: list[tuple[_Entry, set[Path]]]) -> errors.ApiError:
    causes = [
        {
            "reason": "FieldManagerConflict",
            "message": f'conflict with "{entry.manager}"',
            "field": "".join(f".{step[2:]}" for step in path),
        }
        for entry, paths in losers
        for path in sorted(paths)
    ]
    count = len(causes)
    message = f"Apply failed with {count} conflict{'s' if count > 1 else ''}: " + "; ".join(
        f"{cause['message']}: {cause['field']}" for cause in causes
    )
    return errors.ApiError(409, "Conflict", message, details={"causes": causes})


def _stamp(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")
