"""Patches and field ownership as pure functions, over more shapes than the contract suite sends."""

import copy
import json
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.kube import errors, fields, patches

NAMES = st.sampled_from(["a", "b", "labels", "conditions"])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=8,
)
OBJECTS = st.dictionaries(NAMES, VALUES, max_size=4)
SCALARS = st.text("xyz", min_size=1, max_size=2)
ANNOTATED = st.dictionaries(SCALARS, SCALARS, min_size=1, max_size=4)


def node(annotations: dict[str, str]) -> dict[str, Any]:
    return {"metadata": {"name": "n1", "annotations": dict(annotations)}}


def writer(manager: str, operation: str = "Apply") -> fields.Writer:
    return fields.Writer(manager, operation, "v1", "", datetime(2026, 1, 1, tzinfo=UTC))


@pytest.mark.parametrize(
    ("target", "patch", "expected"),
    [
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
        ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
        ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
    ],
)
def test_a_merge_patch_follows_its_standard(target: Any, patch: Any, expected: Any) -> None:
    assert patches.merge(target, patch) == expected


@given(OBJECTS, OBJECTS)
def test_a_merge_patch_does_no_more_the_second_time(target: Any, patch: Any) -> None:
    untouched = copy.deepcopy(target)
    once = patches.merge(target, patch)
    assert patches.merge(once, patch) == once
    assert target == untouched


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        ([{"op": "add", "path": "/a/1", "value": 9}], {"a": [1, 9, 2]}),
        ([{"op": "add", "path": "/a/2", "value": 9}], {"a": [1, 2, 9]}),
        ([{"op": "replace", "path": "/a/0", "value": 9}], {"a": [9, 2]}),
        ([{"op": "remove", "path": "/a/0"}], {"a": [2]}),
        ([{"op": "move", "from": "/a/0", "path": "/b"}], {"a": [2], "b": 1}),
        ([{"op": "copy", "from": "/a", "path": "/b"}], {"a": [1, 2], "b": [1, 2]}),
        ([{"op": "add", "path": "/a~1b~0c", "value": 1}], {"a": [1, 2], "a/b~c": 1}),
        ([{"op": "add", "path": "", "value": {"z": 1}}], {"z": 1}),
    ],
)
def test_a_json_patch_follows_its_standard(steps: Any, expected: Any) -> None:
    target = {"a": [1, 2]}
    assert patches.json_patch(target, steps) == expected
    assert target == {"a": [1, 2]}


@pytest.mark.parametrize(
    "step",
    [
        {"op": "replace", "path": "/missing", "value": 1},
        {"op": "remove", "path": "/a/5"},
        {"op": "add", "path": "/a/5", "value": 1},
        {"op": "add", "path": "/a/-1", "value": 1},
        {"op": "test", "path": "/a/0", "value": 2},
        {"op": "add", "path": "no-slash", "value": 1},
        {"op": "invent", "path": "/a"},
        {"path": "/a"},
    ],
)
def test_a_json_patch_that_does_not_fit_is_refused(step: Any) -> None:
    with pytest.raises(errors.ApiError) as caught:
        patches.json_patch({"a": [1, 2]}, [step])
    assert caught.value.code == 422


@pytest.mark.parametrize(
    ("patch", "expected"),
    [
        ({"finalizers": ["b", "c"]}, {"finalizers": ["a", "b", "c"]}),
        ({"$deleteFromPrimitiveList/finalizers": ["a"]}, {"finalizers": ["b"]}),
        ({"$setElementOrder/finalizers": ["b", "a"]}, {"finalizers": ["a", "b"]}),
        ({"$patch": "replace", "other": 1}, {"other": 1}),
        ({"$retainKeys": ["kept"], "kept": 1}, {"kept": 1}),
    ],
)
def test_a_strategic_patch_obeys_its_directives(patch: Any, expected: Any) -> None:
    assert patches.strategic({"finalizers": ["a", "b"]}, patch) == expected


def test_a_strategic_patch_can_replace_or_thin_a_keyed_list() -> None:
    target = {"conditions": [{"type": "A", "status": "True"}, {"type": "B", "status": "True"}]}
    replaced = patches.strategic(target, {"conditions": [{"$patch": "replace"}, {"type": "C"}]})
    thinned = patches.strategic(target, {"conditions": [{"$patch": "delete", "type": "A"}]})
    assert replaced == {"conditions": [{"type": "C"}]}
    assert thinned == {"conditions": [{"type": "B", "status": "True"}]}


def test_an_entry_without_its_merge_key_is_refused() -> None:
    with pytest.raises(errors.ApiError) as caught:
        patches.strategic({}, {"conditions": [{"status": "True"}]})
    assert caught.value.code == 400


@given(ANNOTATED, ANNOTATED)
def test_managed_fields_name_the_last_writer_of_every_field(first: dict[str, str], second: dict[str, str]) -> None:
    before, after = node(first), node({**first, **second})
    fields.record_update(None, before, writer("first", "Update"))
    fields.record_update(before, after, writer("second", "Update"))
    for key, value in after["metadata"]["annotations"].items():
        expected = "first" if first.get(key) == value else "second"
        owners = [
            entry["manager"]
            for entry in after["metadata"]["managedFields"]
            if f"f:{key}" in entry["fieldsV1"]["f:metadata"]["f:annotations"]
        ]
        assert owners == [expected]


@given(ANNOTATED, ANNOTATED)
def test_a_manager_that_applies_anew_leaves_only_what_it_names(first: dict[str, str], second: dict[str, str]) -> None:
    live = node({"theirs": "1"})
    fields.record_update(None, live, writer("theirs", "Update"))
    for wanted in (first, second):
        untouched = json.dumps(live)
        live, before = fields.apply(live, node(wanted), writer("ours"), force=False), live
        assert json.dumps(before) == untouched
    assert live["metadata"]["annotations"] == {"theirs": "1", **second}
