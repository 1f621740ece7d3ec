"""From pods to how an attempt stands, by table (facts: training, 2.5)."""

from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sickbay.kube_objects import Node, Pod
from sickbay.names import ANNOTATION_FENCE
from sickbay.training import manifests
from sickbay.training.attempt_reading import cannot_write, compared, is_foreign, read_attempt
from sickbay.training.attempts import AttemptLook, AttemptState, Placement
from sickbay.training.job import JobKind
from tests.sickbay.training.manifests.given import NOW, plan_of, pytorch_job, spec_of

ADAPTER = manifests.ADAPTERS[JobKind.INDEXED_JOB]
LONG_AGO = NOW - timedelta(minutes=10)
JUST_NOW = NOW - timedelta(seconds=5)


def stamp(at: datetime) -> str:
    return at.isoformat()


def node(name: str, ready: str = "True", since: datetime = LONG_AGO, labels: dict[str, str] | None = None) -> Node:
    return Node.model_validate(
        {
            "metadata": {"name": name, "uid": f"uid-{name}", "labels": labels or {}},
            "spec": {"providerID": f"aws:///a/i-{name}"},
            "status": {
                "nodeInfo": {"bootID": "boot-1"},
                "conditions": [{"type": "Ready", "status": ready, "lastTransitionTime": stamp(since)}],
            },
        }
    )


def pod(rank: int = 0, phase: str = "Running", *, deleting: bool = False, name: str = "", **parts: Any) -> Pod:
    """A pod of the attempt on the node of its rank; `parts` are fields of its status, and `on` names another node."""
    on = parts.pop("on", f"n{rank}")
    return Pod.model_validate(
        {
            "metadata": {
                "name": name or f"llama-a3-{rank}",
                "uid": f"pod-{rank}{name}",
                "labels": {"batch.kubernetes.io/job-completion-index": str(rank)},
                "deletionTimestamp": stamp(NOW) if deleting else None,
            },
            "spec": {"nodeName": on or None},
            "status": {"phase": phase, **parts},
        }
    )


def ended(code: int, reason: str = "Error") -> list[dict[str, Any]]:
    return [{"name": "main", "state": {"terminated": {"exitCode": code, "reason": reason}}}]


def waiting(reason: str) -> list[dict[str, Any]]:
    return [{"name": "main", "state": {"waiting": {"reason": reason, "message": "no such tag"}}}]


def job(size: int = 2, **parts: Any) -> dict[str, Any]:
    """The object as the server has it."""
    made = manifests.render(spec_of(pytorch_job()), plan_of(nodes=size))
    spec = {"suspend": parts.pop("suspend", False)}
    return {"metadata": {**made["metadata"], "uid": "job-uid"}, "spec": spec, "status": parts}


WELL: dict[str, Node | None] = {f"n{rank}": node(f"n{rank}") for rank in range(4)}


def look(*pods: Pod, nodes: dict[str, Node | None] | None = None, **object_parts: Any) -> AttemptLook:
    manifest = job(**object_parts)
    return read_attempt(manifest, pods, WELL | (nodes or {}), ADAPTER, "c1", NOW)


DISRUPTED = [{"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}]
UNSCHEDULABLE = [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/9 nodes"}]
STARTED = [{"name": "main", "state": {"running": {"startedAt": stamp(LONG_AGO)}}}]


@pytest.mark.parametrize(
    ("pods", "state", "why"),
    [
        ((pod(0), pod(1)), AttemptState.RUNNING, ""),
        ((pod(0), pod(1, "Succeeded")), AttemptState.RUNNING, ""),
        ((pod(0, "Succeeded"), pod(1, "Succeeded")), AttemptState.ENDED, "exit code 0"),
        ((pod(0), pod(1, "Failed", containerStatuses=ended(1))), AttemptState.FAILED, "a3-1 failed: exit code 1 Error"),
        ((pod(0), pod(1, "Failed", reason="Evicted")), AttemptState.FAILED, "a3-1 failed: Evicted"),
        ((pod(0), pod(1, "Failed")), AttemptState.FAILED, "no reason is told"),
        ((pod(0), pod(1, "Failed", conditions=DISRUPTED)), AttemptState.FAILED, "PreemptionByScheduler"),
        ((pod(0), pod(1, "Failed", reason="UnexpectedAdmissionError")), AttemptState.FAILED, "UnexpectedAdmission"),
        # A mark of a disruption that has not come is stale, or about to come.
        ((pod(0), pod(1, conditions=DISRUPTED)), AttemptState.RUNNING, ""),
        ((pod(0), pod(1, deleting=True)), AttemptState.FAILED, "a3-1 is being deleted"),
        # A container beside the trainer keeps the pod up.
        ((pod(0), pod(1, containerStatuses=ended(139))), AttemptState.FAILED, "a3-1 failed: exit code 139"),
        ((pod(0), pod(1, "Pending", on="")), AttemptState.PENDING, "a3-1: Unschedulable"),
        ((pod(0), pod(1, "Pending")), AttemptState.PENDING, "a3-1: ContainerCreating"),
        ((pod(0),), AttemptState.PENDING, "1 of 2 pods: NotCreated"),
        ((), AttemptState.PENDING, "2 of 2 pods: NotCreated"),
    ],
)
def test_an_attempt_stands_as_its_pods_do(pods: tuple[Pod, ...], state: AttemptState, why: str) -> None:
    seen = look(*pods)
    assert seen.state is state
    assert why in seen.why


def test_a_look_names_each_pod_and_its_machine() -> None:
    leaf = node("n1", labels={"topology.k8s.aws/network-node-layer-3": "leaf-7"})
    seen = look(pod(1), pod(0, containerStatuses=STARTED), nodes={"n1": leaf})
    assert seen.placements[1] == Placement(
        rank=1,
        pod="llama-a3-1",
        pod_uid="pod-1",
        node="n1",
        node_uid="uid-n1",
        boot_id="boot-1",
        machine="i-n1",
        leaf="leaf-7",
    )
    assert (seen.pods, seen.running, seen.running_since, seen.uid) == (2, 2, LONG_AGO, "job-uid")


@pytest.mark.parametrize(
    ("found", "state"),
    [
        (node("n1", "Unknown"), AttemptState.FAILED),
        (node("n1", "False"), AttemptState.FAILED),
        (None, AttemptState.FAILED),
        (node("n1", "Unknown", since=JUST_NOW), AttemptState.RUNNING),
        (node("n1"), AttemptState.RUNNING),
    ],
)
def test_a_pod_that_says_running_on_a_lost_node_runs_no_more(found: Node | None, state: AttemptState) -> None:
    assert look(pod(0), pod(1), nodes={"n1": found}).state is state


@pytest.mark.parametrize(
    ("waiter", "reason", "capacity"),
    [
        (pod(1, "Pending", on="", conditions=UNSCHEDULABLE), "Unschedulable", True),
        (pod(1, "Pending", on=""), "Unschedulable", True),
        (
            pod(1, "Pending", on="", conditions=[{**UNSCHEDULABLE[0], "reason": "SchedulingGated"}]),
            "SchedulingGated",
            True,
        ),
        (pod(1, "Pending", containerStatuses=waiting("ImagePullBackOff")), "ImagePullBackOff", False),
        (pod(1, "Pending", initContainerStatuses=waiting("ErrImagePull")), "ErrImagePull", False),
        (pod(1, "Pending", containerStatuses=waiting("ContainerCreating")), "ContainerCreating", False),
        (pod(1, "Pending", containerStatuses=waiting("CreateContainerError")), "CreateContainerError", False),
    ],
)  # fmt: skip
def test_waiting_for_room_is_told_from_other_waits(waiter: Pod, reason: str, capacity: bool) -> None:
    (wait,) = look(pod(0), waiter).waits
    assert (wait.pod, wait.reason, wait.capacity) == ("llama-a3-1", reason, capacity)


@pytest.mark.parametrize(
    ("refused", "capacity"),
    [
        ("", False),
        ('admission webhook "policy" denied the request', False),
        ('pods "llama-a3-0" is forbidden: exceeded quota: gpus, requested: 8, used: 64, limited: 64', True),
    ],
)
def test_pods_that_nobody_makes_are_a_wait_and_a_quota_is_room(refused: str, capacity: bool) -> None:
    seen = read_attempt(job(), (), {}, ADAPTER, "c1", NOW, refused=refused)
    (wait,) = seen.waits
    assert (seen.state, wait.capacity) == (AttemptState.PENDING, capacity)
    assert wait.message == (refused or "0 of 2 pods are made")


def test_an_object_that_is_gone_is_told_whatever_its_pods_say() -> None:
    def without_object(*pods: Pod) -> AttemptLook:
        return read_attempt(None, pods, WELL, ADAPTER, "c1", NOW)

    assert without_object().state is AttemptState.ABSENT
    orphaned = without_object(pod(0), pod(1))
    assert (orphaned.state, orphaned.why) == (AttemptState.ABSENT, "its object is gone, and 2 of its pods are left")
    assert without_object(pod(0, "Failed"), pod(1, "Succeeded")).state is AttemptState.FAILED
    assert without_object(pod(0, "Succeeded"), pod(1, "Succeeded")).state is AttemptState.ENDED


def test_a_queue_that_takes_the_nodes_back_evicts_and_one_that_has_not_given_them_yet_does_not() -> None:
    taken = look(pod(0, deleting=True), pod(1, "Failed"), suspend=True)
    assert taken.state is AttemptState.EVICTED
    begun = look(suspend=True, startTime=stamp(LONG_AGO))
    assert begun.state is AttemptState.EVICTED
    queued = look(suspend=True)
    assert (queued.state, queued.waits[0].reason, queued.waits[0].capacity) == (AttemptState.PENDING, "Suspended", True)


def test_a_failure_that_only_the_object_tells_is_one() -> None:
    failed = {"type": "Failed", "status": "True", "reason": "DeadlineExceeded", "message": "active longer than"}
    seen = look(pod(0), pod(1), conditions=[failed])
    assert (seen.state, seen.why) == (AttemptState.FAILED, "DeadlineExceeded: active longer than")
    assert look(pod(0), pod(1), conditions=[{**failed, "status": "False"}]).state is AttemptState.RUNNING


def test_a_pod_that_is_gone_without_a_word_fails_the_attempt_though_another_came_for_it() -> None:
    before = look(pod(0), pod(1)).placements
    gone = compared(look(pod(0)), before)
    assert (gone.state, gone.why) == (AttemptState.FAILED, "llama-a3-1 is gone from n1 without a word")
    assert compared(look(pod(0), pod(1, name="successor")), before).state is AttemptState.FAILED
    assert compared(look(pod(0), pod(1)), before).state is AttemptState.RUNNING
    assert compared(look(suspend=True), before).state is AttemptState.EVICTED


def test_a_pod_that_never_had_a_node_may_be_replaced() -> None:
    before = look(pod(0), pod(1, "Pending", on="")).placements
    assert compared(look(pod(0), pod(1, name="successor")), before).state is AttemptState.RUNNING


def placement(node_name: str = "n1", uid: str = "uid-n1", boot: str = "boot-1") -> Placement:
    return Placement(rank=1, pod="p", pod_uid="pod-1", node=node_name, node_uid=uid, boot_id=boot)


@pytest.mark.parametrize(
    ("now", "ran", "nodes", "fenced"),
    [
        (placement(""), None, {}, True),
        (placement(), placement(), {"n1": None}, True),
        (placement(), placement(), {"n1": node("n1", "Unknown")}, False),
        (placement(), None, {"n1": node("n1")}, False),
        (placement(uid="uid-2"), placement(), {"n1": node("n1")}, True),
        (placement(boot="boot-2"), placement(), {"n1": node("n1")}, True),
        (placement(boot="boot-2"), placement(boot=""), {"n1": node("n1")}, False),
        (placement(boot=""), placement(), {"n1": node("n1")}, False),
        (placement(), placement("n0", uid="uid-n0"), {"n1": node("n1")}, False),
    ],
)
def test_only_a_machine_that_is_gone_or_was_started_anew_fences(
    now: Placement, ran: Placement | None, nodes: dict[str, Node | None], fenced: bool
) -> None:
    assert cannot_write(now, ran, nodes) is fenced


@pytest.mark.parametrize(("annotations", "foreign"), [({}, False), ({ANNOTATION_FENCE: "run-1"}, False),
                                                      ({ANNOTATION_FENCE: "run-0"}, True)])  # fmt: skip
def test_a_pod_of_another_run_is_foreign(annotations: dict[str, str], foreign: bool) -> None:
    assert is_foreign(Pod.model_validate({"metadata": {"annotations": annotations}}), "run-1") is foreign


PHASES = st.sampled_from(["Pending", "Running", "Succeeded", "Failed", "Unknown", ""])
PODS = st.builds(
    pod,
    rank=st.integers(0, 3),
    phase=PHASES,
    deleting=st.booleans(),
    name=st.text("ab", max_size=2),
    containerStatuses=st.sampled_from([[], STARTED, ended(0), ended(137), waiting("ErrImagePull")]),
)


@given(
    st.lists(PODS, max_size=4),
    st.sampled_from([None, node("n0", "Unknown"), node("n0")]),
    st.none() | st.builds(job, size=st.integers(1, 4), suspend=st.booleans()),
)
def test_a_look_never_says_better_than_its_worst_pod(
    pods: list[Pod], first: Node | None, manifest: dict[str, Any] | None
) -> None:
    seen = read_attempt(manifest, pods, WELL | {"n0": first}, ADAPTER, "c1", NOW)
    phases = {each.status.phase for each in pods}
    if seen.state is AttemptState.ENDED:
        assert phases == {"Succeeded"}
    if seen.state is AttemptState.RUNNING:
        assert manifest is not None
        assert not phases & {"Failed", "Pending"}
        assert not any(each.metadata.deletion_timestamp for each in pods if each.status.phase != "Succeeded")
    if seen.state is AttemptState.PENDING:
        assert seen.why
    again = read_attempt(manifest, list(reversed(pods)), WELL | {"n0": first}, ADAPTER, "c1", NOW)
    assert again.state is seen.state


@given(
    st.dictionaries(st.sampled_from(["metadata", "spec", "status"]), st.none() | st.lists(st.integers()) | st.text())
)
def test_an_object_of_any_shape_is_read(manifest: dict[str, Any]) -> None:
    assert read_attempt(manifest, (pod(0),), WELL, ADAPTER, "c1", NOW).state is AttemptState.RUNNING
