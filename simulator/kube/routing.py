"""From a parsed request to the operation that it asks for, and the code of its answer.

Called by `simulator.kube.server` for everything but discovery and watches.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from simulator.kube import errors
from simulator.kube.binding import bind
from simulator.kube.deletion import delete, deletion_status
from simulator.kube.eviction import evict
from simulator.kube.listing import as_list, list_objects, selection
from simulator.kube.operations import Operations, Written
from simulator.kube.requests import (
    Target,
    parse_delete_options,
    parse_list_options,
    parse_write_options,
)
from simulator.kube.resources import Object

_ACTIONS = ("eviction", "binding")
"""Subresources that can only be posted to."""


@dataclass(frozen=True)
class Call:
    """One request, free of HTTP's details."""

    method: str
    target: Target
    query: Mapping[str, str]
    content_type: str
    user_agent: str
    body: Any


@dataclass(frozen=True)
class Answer:
    """Code and body of the response."""

    code: int
    body: Object


def perform(operations: Operations, call: Call) -> Answer:
    """Do what the call asks. Raises `ApiError`."""
    if call.target.subresource in _ACTIONS and call.method != "POST":
        raise errors.method_not_allowed()
    if call.method == "GET":
        return _get(operations, call)
    if call.method == "DELETE":
        return _delete(operations, call)
    if call.method == "PATCH" and call.target.name:
        options = parse_write_options(call.query, call.user_agent)
        return _written(operations.patch(call.target, call.content_type, call.body, options))
    if not isinstance(call.body, dict):
        raise errors.bad_request("the object provided is unrecognized: the body is not a JSON object")
    if call.method == "PUT" and call.target.name:
        options = parse_write_options(call.query, call.user_agent)
        return _written(operations.replace(call.target, call.body, options))
    if call.method == "POST":
        return _post(operations, call)
    raise errors.method_not_allowed()


def _get(operations: Operations, call: Call) -> Answer:
    if call.target.name:
        return Answer(200, operations.read(call.target))
    return Answer(200, list_objects(operations.store, call.target, parse_list_options(call.query)))


def _post(operations: Operations, call: Call) -> Answer:
    options = parse_write_options(call.query, call.user_agent)
    if call.target.subresource == "eviction":
        return Answer(201, evict(operations, call.target, call.body, options))
    if call.target.subresource == "binding":
        return Answer(201, bind(operations, call.target, call.body))
    if call.target.name or (call.target.resource.namespaced and not call.target.namespace):
        raise errors.method_not_allowed()
    return _written(operations.create(call.target, call.body, options))


def _delete(operations: Operations, call: Call) -> Answer:
    target, body = call.target, call.body if isinstance(call.body, dict) else {}
    if target.subresource:
        raise errors.method_not_allowed()
    options = parse_delete_options(call.query, body)
    if not target.name:
        return _delete_collection(operations, call)
    item, gone = delete(operations, target, options)
    if gone and not target.resource.returns_deleted:
        return Answer(200, deletion_status(target, item))
    return Answer(200, item)


def _delete_collection(operations: Operations, call: Call) -> Answer:
    target, body = call.target, call.body if isinstance(call.body, dict) else {}
    options = parse_delete_options(call.query, body)
    matches = selection(target, parse_list_options(call.query))
    found = [item for item in operations.store.snapshot(target.resource) if matches(item)]
    for item in found:
        metadata = item["metadata"]
        delete(operations, Target(target.resource, metadata.get("namespace", ""), metadata["name"]), options)
    return Answer(200, as_list(target, found, {"resourceVersion": str(operations.store.revision)}))


def _written(written: Written) -> Answer:
    return Answer(201 if written.created else 200, written.item)
