import json
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sickbay import names, node_marks
from sickbay.kube_objects import Node
from sickbay.node_change import NodeChange
from sickbay.policy.model import TaintPolicy

AT = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
OURS, OTHER = "incident-c1-i-0abc", "incident-c1-i-0def"
TAINTED = TaintPolicy(enabled=True)
PLAIN = TaintPolicy()

Json = dict[str, Any]


def merge(target: Any, patch: Any) -> Any:
    """RFC 7396."""
    if not isinstance(patch, dict):
        return patch
    merged = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = merge(merged.get(key), value)
    return merged


def applied(raw: Json, change: NodeChange | None) -> Json:
    return raw if change is None else dict(merge(raw, json.loads(json.dumps(change.merge_patch()))))


def settled(raw: Json) -> Json:
    """As the API server keeps it: no empty annotations, no empty taints, no `unschedulable: false`."""
    spec = {key: value for key, value in raw["spec"].items() if value not in (False, [], None)}
    metadata = {key: value for key, value in raw["metadata"].items() if value != {}}
    return {**raw, "spec": spec, "metadata": metadata}


def raw_node(annotations: dict[str, str] | None = None, *, cordoned_by: str = "", **spec: Any) -> Json:
    metadata: Json = {"name": "node-a", "uid": "u-1", "resourceVersion": "7", "annotations": annotations or {}}
    if cordoned_by:
        spec["unschedulable"] = True
        owned: Json = {"f:spec": {"f:unschedulable": {}}}
        metadata["managedFields"] = [{"manager": cordoned_by, "time": "2026-03-01T12:00:00Z", "fieldsV1": owned}]
    return {"metadata": metadata, "spec": spec}


def node(raw: Json) -> Node:
    return Node.model_validate(raw)


def contained(raw: Json, taint: TaintPolicy = PLAIN, incident: str = OURS) -> Json:
    return applied(raw, node_marks.contain(node(raw), incident, AT, taint).change)


def released(raw: Json, *, keep_cordon: bool = False, incident: str = OURS) -> Json:
    return applied(raw, node_marks.release(node(raw), incident, keep_cordon=keep_cordon).change)


KEYS = st.sampled_from(["team", "weave.works/kured-node-lock", "karpenter.sh/do-not-disrupt", "note"])
TAINTS = st.lists(
    st.fixed_dictionaries(
        {
            "key": st.sampled_from(["dedicated", "nvidia.com/gpu", names.TAINT_INCIDENT]),
            "effect": st.just("NoSchedule"),
        },
        optional={"value": st.sampled_from(["x", OTHER]), "timeAdded": st.just("2026-01-01T00:00:00Z")},
    ),
    max_size=3,
    unique_by=lambda taint: (taint["key"], taint["effect"]),
)
FOREIGN_MARK = st.sampled_from([None, OTHER])


@st.composite
def nodes(draw: st.DrawFn) -> Json:
    annotations = draw(st.dictionaries(KEYS, st.text("abc", max_size=3), max_size=3))
    mark = draw(FOREIGN_MARK)
    if mark:
        annotations |= {names.ANNOTATION_INCIDENT: mark, names.ANNOTATION_PRIOR_UNSCHEDULABLE: "false"}
    raw = raw_node(annotations, cordoned_by=draw(st.sampled_from(["", "kubectl-cordon", "gpu-operator", "sickbay"])))
    raw["spec"]["taints"] = draw(TAINTS)
    return raw


@settings(deadline=None)
@given(raw=nodes(), taint=st.sampled_from([PLAIN, TAINTED]))
def test_contain_then_release_leaves_every_node_as_it_was(raw: Json, taint: TaintPolicy) -> None:
    assert settled(released(contained(raw, taint))) == settled(raw)


@settings(deadline=None)
@given(raw=nodes(), taint=st.sampled_from([PLAIN, TAINTED]))
def test_protect_then_unprotect_leaves_every_node_as_it_was(raw: Json, taint: TaintPolicy) -> None:
    protected = applied(raw, node_marks.protect(node(raw), OURS).change)
    assert settled(applied(protected, node_marks.unprotect(node(protected), OURS).change)) == settled(raw)


@settings(deadline=None)
@given(raw=nodes(), taint=st.sampled_from([PLAIN, TAINTED]))
def test_a_second_contain_changes_nothing(raw: Json, taint: TaintPolicy) -> None:
    once = contained(raw, taint)
    decision = node_marks.contain(node(once), OURS, AT, taint)
    assert decision.change is None or not decision.contained


@settings(deadline=None)
@given(raw=nodes(), keep=st.booleans())
def test_release_touches_no_annotation_or_taint_of_others(raw: Json, keep: bool) -> None:
    after = released(contained(raw, TAINTED), keep_cordon=keep)
    assert after["metadata"].get("annotations") == raw["metadata"]["annotations"]
    assert after["spec"].get("taints", []) == raw["spec"]["taints"]


def test_contain_cordons_and_marks_in_one_write_bound_to_the_version_it_saw() -> None:
    change = node_marks.contain(node(raw_node()), OURS, AT, TAINTED).change
    assert change is not None
    assert change.merge_patch() == {
        "metadata": {
            "resourceVersion": "7",
            "annotations": {
                names.ANNOTATION_INCIDENT: OURS,
                names.ANNOTATION_PRIOR_UNSCHEDULABLE: "false",
                names.ANNOTATION_CONTAINED_AT: "2026-03-01T12:00:00+00:00",
            },
        },
        "spec": {
            "unschedulable": True,
            "taints": [{"key": names.TAINT_INCIDENT, "effect": "NoSchedule", "value": OURS}],
        },
    }


def test_a_node_that_a_person_cordoned_before_stays_cordoned_after_release() -> None:
    decision = node_marks.contain(node(raw_node(cordoned_by="kubectl-cordon")), OURS, AT, PLAIN)
    assert decision.prior_unschedulable
    after = released(contained(raw_node(cordoned_by="kubectl-cordon")))
    assert after["spec"]["unschedulable"] is True
    assert names.ANNOTATION_INCIDENT not in after["metadata"]["annotations"]


def test_another_incidents_mark_is_never_overwritten() -> None:
    decision = node_marks.contain(node(contained(raw_node(), incident=OTHER)), OURS, AT, TAINTED)
    assert (decision.change, decision.contained, decision.other_incident) == (None, False, OTHER)


def test_a_persons_uncordon_is_not_undone() -> None:
    marked = contained(raw_node())
    marked["spec"].pop("unschedulable")
    decision = node_marks.contain(node(marked), OURS, AT, PLAIN)
    assert (decision.change, decision.contained, decision.uncordoned_by_person) == (None, False, True)


def test_an_uncordon_by_the_driver_upgrade_is_undone() -> None:
    marked = contained(raw_node())
    marked["spec"].pop("unschedulable")
    label: Json = {"f:metadata": {"f:labels": {"f:nvidia.com/gpu-driver-upgrade-state": {}}}}
    entry = {"manager": "gpu-operator", "time": "2026-03-01T12:05:00Z", "fieldsV1": label}
    marked["metadata"]["managedFields"] = [entry]
    again = contained(marked)
    assert again["spec"]["unschedulable"] is True
    assert again["metadata"]["annotations"][names.ANNOTATION_PRIOR_UNSCHEDULABLE] == "false"


def test_a_cordon_that_went_away_is_not_left_behind_once_we_cordon_anew() -> None:
    upgraded = contained(raw_node(cordoned_by="gpu-operator"))
    upgraded["spec"].pop("unschedulable")
    moved: Json = {"f:metadata": {"f:labels": {"f:nvidia.com/gpu-driver-upgrade-state": {}}}}
    upgraded["metadata"]["managedFields"] = [
        {"manager": "gpu-operator", "time": "2026-03-01T12:30:00Z", "fieldsV1": moved}
    ]
    again = contained(upgraded)
    assert again["spec"]["unschedulable"]
    assert not released(again)["spec"].get("unschedulable")


def test_a_cordon_that_a_person_set_during_the_incident_stays() -> None:
    marked = contained(raw_node())
    owned: Json = {"f:spec": {"f:unschedulable": {}}}
    marked["metadata"]["managedFields"] = [
        {"manager": "kubectl-cordon", "time": "2026-03-01T12:30:00Z", "fieldsV1": owned}
    ]
    decision = node_marks.release(node(marked), OURS, keep_cordon=False)
    assert decision.left_cordoned
    assert applied(marked, decision.change)["spec"]["unschedulable"] is True


def test_release_leaves_the_cordon_to_people_on_request_and_removes_the_rest() -> None:
    after = released(contained(raw_node(), TAINTED), keep_cordon=True)
    assert after["spec"] == {"unschedulable": True, "taints": []}
    assert after["metadata"]["annotations"] == {}


@pytest.mark.parametrize(("owner", "stays"), [("sickbay", False), ("kubectl-cordon", True), ("", True)])
def test_without_a_record_of_the_prior_state_only_a_cordon_proven_ours_is_undone(owner: str, stays: bool) -> None:
    raw = raw_node({names.ANNOTATION_INCIDENT: OURS}, cordoned_by=owner, unschedulable=True)
    assert node_marks.release(node(raw), OURS, keep_cordon=False).left_cordoned is stays


def test_release_of_an_unmarked_node_does_nothing() -> None:
    assert node_marks.release(node(raw_node(cordoned_by="kubectl-cordon")), OURS, keep_cordon=False).change is None


def test_a_missing_taint_of_ours_is_added_to_a_node_that_the_watch_contained() -> None:
    again = contained(contained(raw_node()), TAINTED)
    assert [taint["key"] for taint in again["spec"]["taints"]] == [names.TAINT_INCIDENT]


def test_release_gives_the_node_back_to_karpenter_too() -> None:
    raw = raw_node()
    marked = contained(raw)
    protected = applied(marked, node_marks.protect(node(marked), OURS).change)
    assert settled(released(protected)) == settled(raw)
    assert node_marks.release(node(protected), OTHER, keep_cordon=False).change is None


def test_do_not_disrupt_of_somebody_else_is_left_alone() -> None:
    raw = raw_node({node_marks.DO_NOT_DISRUPT: "true"})
    decision = node_marks.protect(node(raw), OURS)
    assert (decision.change, decision.protected, decision.ours) == (None, True, False)
    assert node_marks.unprotect(node(raw), OURS).change is None


@pytest.mark.parametrize("incident", [OURS, "incident-" + "x" * 80, "incident-arn:aws:eks/c1-i-0", "incident-é", "i_"])
def test_every_incident_id_gives_a_legal_and_distinct_taint_value(incident: str) -> None:
    value = node_marks.taint_value(incident)
    assert len(value) <= 63
    assert value.isascii()
    assert value[0].isalnum()
    assert value[-1].isalnum()
    assert value != node_marks.taint_value(incident + "1")
