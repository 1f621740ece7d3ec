"""Requests of any shape: the simulated API server answers or refuses each, and keeps its promises on metadata."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.kube import errors
from simulator.kube.operations import Operations
from simulator.kube.requests import APPLY, MERGE_PATCH, STRATEGIC_PATCH, Target, WriteOptions, parse_path
from simulator.kube.resources import DAEMON_SETS, JOBS, NAMESPACES, NODES, PODS, RESOURCES, Resource
from simulator.kube.routing import Call, perform
from simulator.kube.storage import Store

NAME = "n1"
FIELDS = st.sampled_from(
    [
        "conditions",
        "labels",
        "finalizers",
        "taints",
        "containers",
        "name",
        "type",
        "key",
        "effect",
        "ports",
        "nodeName",
        "ownerReferences",
        "uid",
        "selector",
        "template",
        "$patch",
        "tolerations",
        "status",
    ]
)
LEAVES = st.none() | st.booleans() | st.integers(-1, 3) | st.sampled_from(["a", NAME, "delete", "NoSchedule"])
VALUES = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(FIELDS, inner, max_size=3), max_leaves=10
)
SECTIONS = st.dictionaries(FIELDS, VALUES, max_size=3) | VALUES
BODIES = st.fixed_dictionaries({}, optional={"metadata": SECTIONS, "spec": SECTIONS, "status": SECTIONS})
REQUESTS = st.tuples(
    st.sampled_from(RESOURCES),
    st.sampled_from(["POST", "PUT", "PATCH", "DELETE"]),
    st.sampled_from(["", "status", "eviction"]),
    st.sampled_from([APPLY, MERGE_PATCH, STRATEGIC_PATCH]),
    BODIES,
)


def operations() -> Operations:
    """A server with one object of every kind."""
    made = Operations(Store())
    made.create(Target(NAMESPACES), {"metadata": {"name": "default"}}, WriteOptions())
    pod = {"containers": [{"name": "a", "image": "b"}], "nodeName": NAME}
    for resource in RESOURCES:
        spec = {"template": {"spec": pod}} if resource in (JOBS, DAEMON_SETS) else pod if resource is PODS else {}
        target = Target(resource, "default" if resource.namespaced else "")
        made.create(target, {"metadata": {"name": NAME}, "spec": spec}, WriteOptions())
    return made


def call(resource: Resource, method: str, subresource: str, content_type: str, body: dict[str, Any]) -> Call:
    known = subresource if subresource in resource.subresources else ""
    if method == "POST" and not known and isinstance(body.get("metadata"), dict):
        body = {**body, "metadata": {**body["metadata"], "name": NAME}}
    target = Target(resource, "default" if resource.namespaced else "", "" if method == "POST" and not known else NAME)
    return Call(
        method,
        Target(resource, target.namespace, target.name, known),
        {"fieldManager": "fuzz"},
        content_type=content_type,
        user_agent="fuzz",
        body=body,
    )


@given(st.lists(REQUESTS, min_size=1, max_size=4))
def test_no_body_breaks_the_server(requests: list[Any]) -> None:
    server = operations()
    for request in requests:
        try:
            perform(server, call(*request))
        except errors.ApiError:
            continue


@given(st.sampled_from(["PUT", "PATCH"]), st.sampled_from([MERGE_PATCH, STRATEGIC_PATCH]), BODIES)
def test_no_update_changes_what_only_the_server_sets(method: str, content_type: str, body: dict[str, Any]) -> None:
    server = operations()
    before = server.read(Target(NODES, "", NAME))
    try:
        after = perform(server, call(NODES, method, "", content_type, body)).body
    except errors.ApiError:
        return
    for field in ("name", "uid", "creationTimestamp"):
        assert after["metadata"][field] == before["metadata"][field]


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/api/v1/nodes", Target(NODES)),
        ("/api/v1/nodes/n1/status", Target(NODES, "", "n1", "status")),
        ("/api/v1/pods", Target(PODS)),
        ("/api/v1/namespaces/a/pods/p1/eviction", Target(PODS, "a", "p1", "eviction")),
        ("/api/v1/namespaces", Target(NAMESPACES)),
        ("/api/v1/namespaces/a", Target(NAMESPACES, "", "a")),
        ("/api/v1/namespaces/a/status", Target(NAMESPACES, "", "a", "status")),
    ],
)
def test_a_path_names_its_target(path: str, expected: Target) -> None:
    assert parse_path(path) == expected
