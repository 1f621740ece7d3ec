from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sickbay import gpu_clients, names, node_marks
from sickbay.gpu_clients import DEPLOY_LABEL, PAUSED
from sickbay.kube_objects import Node, Pod
from sickbay.policy.model import GpuClientsPolicy, TaintPolicy
from tests.sickbay.test_node_marks import applied, node, raw_node, settled

AT = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
OURS, OTHER = "incident-c1-i-0abc", "incident-c1-i-0def"
OPERANDS = GpuClientsPolicy().operands
PLUGIN = f"{DEPLOY_LABEL}device-plugin"

Json = dict[str, Any]

WORD = st.text("abcdefghijklmnopqrstuvwxyz", min_size=1, max_size=63)
VALUES = st.one_of(st.sampled_from(["true", "false", "", "paused-for-mig-change", "paused-for-driver-upgrade"]), WORD)
LABELS = st.dictionaries(st.sampled_from([f"{DEPLOY_LABEL}{name}" for name in (*OPERANDS, "driver")]), VALUES)


def labelled(labels: dict[str, str], annotations: dict[str, str] | None = None) -> Json:
    raw = raw_node(annotations)
    raw["metadata"]["labels"] = dict(labels)
    return raw


def labels_of(raw: Json) -> dict[str, str]:
    return dict(raw["metadata"]["labels"])


def paused(raw: Json, operands: tuple[str, ...] = OPERANDS, incident: str = OURS) -> Json:
    for operand in operands:
        raw = applied(raw, gpu_clients.pause(node(raw), incident, operand).change)
    return raw


def resumed(raw: Json, incident: str = OURS) -> Json:
    return applied(raw, gpu_clients.resume(node(raw), incident).change)


def pod(operand: str = "", **parts: Any) -> Pod:
    selector = {DEPLOY_LABEL + operand: "true"} if operand else {}
    ready = [{"type": "Ready", "status": parts.pop("ready", "True")}]
    status = {"phase": parts.pop("phase", "Running"), "conditions": ready}
    return Pod.model_validate(
        {"metadata": {"name": "p", **parts}, "spec": {"nodeSelector": selector}, "status": status}
    )


@given(labels=LABELS)
def test_pause_then_resume_restores_exactly_any_labels(labels: dict[str, str]) -> None:
    raw = labelled(labels)
    assert settled(resumed(paused(raw))) == settled(raw)


@given(labels=LABELS, count=st.integers(0, len(OPERANDS)))
def test_a_pause_that_was_cut_short_is_undone_by_the_release_of_the_incident(
    labels: dict[str, str], count: int
) -> None:
    raw = labelled(labels)
    contained = applied(raw, node_marks.contain(node(raw), OURS, AT, TaintPolicy()).change)
    left = paused(contained, OPERANDS[:count])
    released = applied(left, node_marks.release(node(left), OURS, keep_cordon=False).change)
    assert settled(released) == settled(raw)


@given(labels=LABELS)
def test_a_second_pause_and_a_second_resume_change_nothing(labels: dict[str, str]) -> None:
    once = paused(labelled(labels))
    assert paused(once) == once
    back = resumed(once)
    assert resumed(back) == back


@given(labels=LABELS)
def test_no_paused_operand_is_deployed_and_every_value_is_legal(labels: dict[str, str]) -> None:
    for label, value in labels_of(paused(labelled(labels))).items():
        assert len(value) <= 63
        assert value != "true" or label == f"{DEPLOY_LABEL}driver"


@given(labels=LABELS)
def test_another_incident_resumes_nothing_of_ours(labels: dict[str, str]) -> None:
    held = paused(labelled(labels))
    assert gpu_clients.resume(node(held), OTHER).change is None
    released = applied(held, node_marks.release(node(held), OTHER, keep_cordon=False).change)
    assert labels_of(released) == labels_of(held)


@given(labels=LABELS)
def test_a_pause_left_by_a_dead_incident_is_taken_over_and_undone_in_full(labels: dict[str, str]) -> None:
    orphaned = paused(labelled(labels), incident=OTHER)
    assert labels_of(resumed(paused(orphaned))) == labels


def test_resume_without_a_pause_does_nothing() -> None:
    assert gpu_clients.resume(node(labelled({PLUGIN: "true"})), OURS) == gpu_clients.ResumeDecision()


@pytest.mark.parametrize("value", [None, "", "false", "paused-for-mig-change", "custom_paused-for-driver-upgrade"])
def test_what_is_not_deployed_or_was_paused_by_others_is_left_alone(value: str | None) -> None:
    raw = labelled({} if value is None else {PLUGIN: value})
    assert gpu_clients.pause(node(raw), OURS, "device-plugin") == gpu_clients.PauseDecision()


def test_a_value_of_the_users_own_is_kept_in_front_of_ours() -> None:
    held = paused(labelled({PLUGIN: "my-plugin"}))
    assert labels_of(held) == {PLUGIN: f"my-plugin_{PAUSED}"}


def test_what_somebody_changed_during_the_pause_is_theirs() -> None:
    held = paused(labelled({PLUGIN: "true", f"{DEPLOY_LABEL}dcgm": "true"}))
    held["metadata"]["labels"][PLUGIN] = "false"
    decision = gpu_clients.resume(node(held), OURS)
    assert decision.resumed == ("dcgm",)
    back = resumed(held)
    assert labels_of(back) == {PLUGIN: "false", f"{DEPLOY_LABEL}dcgm": "true"}
    assert names.ANNOTATION_PAUSED_CLIENTS not in back["metadata"]["annotations"]


def test_an_annotation_that_cannot_be_read_is_nobodys() -> None:
    raw = labelled({PLUGIN: PAUSED}, {names.ANNOTATION_PAUSED_CLIENTS: "[broken"})
    assert gpu_clients.resume(node(raw), OURS).change is None
    assert gpu_clients.pause(node(raw), OURS, "device-plugin").change is None


def test_the_mark_is_one_of_those_that_live_only_while_an_incident_is_open() -> None:
    assert names.ANNOTATION_PAUSED_CLIENTS in names.MARKS


def test_the_dra_driver_stops_last() -> None:
    assert OPERANDS[-1] == "dra-driver"


def test_an_operands_pods_are_those_that_select_its_label_and_have_not_ended() -> None:
    plugin, ended, stranger = pod("device-plugin"), pod("device-plugin", phase="Failed"), pod("dcgm")
    assert gpu_clients.operand_pods((plugin, ended, stranger), "device-plugin") == (plugin,)


@pytest.mark.parametrize(
    "serving",
    [pod("device-plugin", ready="False"), pod("device-plugin", deletionTimestamp="2026-03-01T12:00:00Z"), pod("dcgm")],
)
def test_an_operand_is_missing_until_a_pod_of_it_serves(serving: Pod) -> None:
    assert gpu_clients.missing_operands((serving,), ("device-plugin",)) == ("device-plugin",)
    assert gpu_clients.missing_operands((serving, pod("device-plugin")), ("device-plugin",)) == ()


def test_only_pods_from_before_the_reset_latch() -> None:
    def started(after: int, **parts: Any) -> Pod:
        return pod(creationTimestamp=(AT + timedelta(seconds=after)).isoformat(), **parts)

    old, young = started(-60), started(1)
    ended, going = started(-60, phase="Succeeded"), started(-60, deletionTimestamp="2026-03-01T12:00:00Z")
    assert gpu_clients.latched((old, young, ended, going), AT) == (old,)


@pytest.mark.parametrize(
    ("text", "namespace", "selector"),
    [
        ("kube-system/name=plugin", "kube-system", "name=plugin"),
        ("*/app.kubernetes.io/name=plugin", "", "app.kubernetes.io/name=plugin"),
    ],
)
def test_a_selection_names_a_namespace_or_all_of_them(text: str, namespace: str, selector: str) -> None:
    chosen = gpu_clients.selection(text)
    assert (chosen.namespace, chosen.selector) == (namespace, selector)


def test_an_unlabelled_node_bears_nothing_to_pause() -> None:
    bare = Node.model_validate(raw_node())
    assert all(gpu_clients.pause(bare, OURS, operand).change is None for operand in OPERANDS)
