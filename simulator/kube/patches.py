"""The three patch formats that change an object: JSON patch, merge patch and strategic merge patch.

Pure functions from object and patch to a new object; the operations call them and then treat the outcome like a PUT.
JSON patch is RFC 6902, merge patch RFC 7386. Raises `ApiError` 422 for a patch that does not fit the object and 400 for
one that is malformed.
"""

import copy
from typing import Any

from simulator.kube import errors
from simulator.kube.lists import MERGE_KEYS, SETS, find_entry, is_keyed
from simulator.kube.resources import Object

DIRECTIVE = "$patch"
DELETE_PRIMITIVES = "$deleteFromPrimitiveList/"
ORDER = "$setElementOrder/"
RETAIN = "$retainKeys"


def merge(target: Any, patch: Any) -> Any:
    """Merge patch: null removes, objects merge, anything else replaces, lists among them."""
    if not isinstance(patch, dict):
        return copy.deepcopy(patch)
    merged = dict(target) if isinstance(target, dict) else {}
    for field, value in patch.items():
        if value is None:
            merged.pop(field, None)
        else:
            merged[field] = merge(merged.get(field), value)
    return merged


def strategic(target: Any, patch: Any) -> Any:
    """Strategic merge patch: like `merge`, but keyed lists merge by their key, and directives are obeyed."""
    if not isinstance(patch, dict):
        return copy.deepcopy(patch)
    if patch.get(DIRECTIVE) == "replace":
        return {field: copy.deepcopy(value) for field, value in patch.items() if field != DIRECTIVE}
    if patch.get(DIRECTIVE) == "delete":
        return {}
    merged = dict(target) if isinstance(target, dict) else {}
    if RETAIN in patch:
        merged = {field: value for field, value in merged.items() if field in patch[RETAIN]}
    for field, value in patch.items():
        if field.startswith(DELETE_PRIMITIVES):
            plain = field.removeprefix(DELETE_PRIMITIVES)
            merged[plain] = [entry for entry in merged.get(plain) or () if entry not in value]
        elif field in (DIRECTIVE, RETAIN) or field.startswith(ORDER):
            continue
        elif value is None:
            merged.pop(field, None)
        else:
            merged[field] = _strategic_field(field, merged.get(field), value)
    return merged


def _strategic_field(field: str, current: Any, value: Any) -> Any:
    if isinstance(value, list) and field in SETS:
        present = list(current or ())
        return [*present, *(entry for entry in value if entry not in present)]
    if isinstance(value, list) and field in MERGE_KEYS:
        return _merge_entries(current if is_keyed(field, current) else [], value, MERGE_KEYS[field])
    return strategic(current, value)


def _merge_entries(current: list[Object], patch: list[Object], key: str) -> list[Object]:
    if not all(isinstance(entry, dict) for entry in patch):
        raise errors.bad_request(f"cannot merge by {key}: an entry of the patch is not an object")
    entries = list(current)
    if any(entry.get(DIRECTIVE) == "replace" for entry in patch):
        return [copy.deepcopy(entry) for entry in patch if entry.get(DIRECTIVE) != "replace"]
    for entry in patch:
        if key not in entry:
            raise errors.bad_request(f"map: {entry} does not contain declared merge key: {key}")
        place = find_entry(entries, key, entry[key])
        if entry.get(DIRECTIVE) == "delete":
            if place is not None:
                del entries[place]
        elif place is None:
            entries.append(strategic({}, entry))
        else:
            entries[place] = strategic(entries[place], entry)
    return entries


def json_patch(target: Object, operations: Any) -> Object:
    """JSON patch: operations in order, all or nothing."""
    if not isinstance(operations, list) or not all(isinstance(step, dict) for step in operations):
        raise errors.bad_request("error decoding patch: a JSON patch is a list of operations")
    document = copy.deepcopy(target)
    try:
        for step in operations:
            document = _apply_step(document, step)
    except (KeyError, IndexError, TypeError, ValueError) as problem:
        message = "the server rejected our request due to an error in our request"
        raise errors.ApiError(422, "Invalid", message) from problem
    return document


def _apply_step(document: Any, step: Object) -> Any:
    verb, path = step["op"], _pointer(step["path"])
    if verb == "test":
        if _read(document, path) != step.get("value"):
            raise ValueError(f"testing value {step['path']} failed")
    elif verb == "remove":
        _remove(document, path)
    elif verb == "replace":
        _read(document, path)
        document = _write(document, path, copy.deepcopy(step["value"]), insert=False)
    elif verb == "add":
        document = _write(document, path, copy.deepcopy(step["value"]), insert=True)
    elif verb in ("copy", "move"):
        source = _pointer(step["from"])
        value = copy.deepcopy(_read(document, source))
        if verb == "move":
            _remove(document, source)
        document = _write(document, path, value, insert=True)
    else:
        raise ValueError(f"unexpected kind: {verb}")
    return document


def _pointer(text: str) -> list[str]:
    if text and not text.startswith("/"):
        raise ValueError(f"pointer does not start with a slash: {text}")
    return [part.replace("~1", "/").replace("~0", "~") for part in text.split("/")[1:]]


def _read(document: Any, path: list[str]) -> Any:
    for step in path:
        document = document[_index(document, step)] if isinstance(document, list) else document[step]
    return document


def _remove(document: Any, path: list[str]) -> None:
    parent = _read(document, path[:-1])
    del parent[_index(parent, path[-1]) if isinstance(parent, list) else path[-1]]


def _write(document: Any, path: list[str], value: Any, *, insert: bool) -> Any:
    if not path:
        return value
    parent, last = _read(document, path[:-1]), path[-1]
    if isinstance(parent, list) and insert:
        parent.insert(len(parent) if last == "-" else _index(parent, last, past_end=True), value)
    elif isinstance(parent, list):
        parent[_index(parent, last)] = value
    else:
        parent[last] = value
    return document


def _index(entries: list[Any], step: str, *, past_end: bool = False) -> int:
    place = int(step)
    if not 0 <= place < len(entries) + past_end:
        raise IndexError(f"no entry {step}")
    return place
