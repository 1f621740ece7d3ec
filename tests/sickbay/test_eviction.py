from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from sickbay.eviction import EvictionAnswer, Handling, PodPlan, budget_named, evictable, judge, plan_pod
from sickbay.kube_objects import Node, Pod, PodDisruptionBudget, Status
from sickbay.nodes import DrainGoal
from sickbay.pod_needs import budgets_of
from sickbay.policy.model import DrainPolicy, HoldChoice

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
JOB = {"kind": "Job", "name": "train", "uid": "j-1", "controller": True}
DAEMON = {"kind": "DaemonSet", "name": "dcgm", "uid": "d-1", "controller": True}
EVICT_ALL = DrainPolicy(unmanaged_pods=HoldChoice.EVICT, do_not_disrupt=HoldChoice.EVICT)


def node(ready: str = "True") -> Node:
    return Node.model_validate(
        {"metadata": {"name": "node-a"}, "status": {"conditions": [{"type": "Ready", "status": ready}]}}
    )


def pod(
    name: str = "train-0",
    *,
    owner: dict[str, Any] | None = JOB,
    phase: str = "Running",
    gpus: int = 8,
    annotations: dict[str, str] | None = None,
    terminating: timedelta | None = None,
    containers_ended: bool = False,
    **spec: Any,
) -> Pod:
    """`terminating` is how long ago the pod's grace period ended."""
    metadata: dict[str, Any] = {"name": name, "namespace": "team", "uid": f"u-{name}", "annotations": annotations}
    metadata["ownerReferences"] = [owner] if owner else []
    if terminating is not None:
        metadata["deletionTimestamp"] = (NOW - terminating).isoformat()
    limits = {"nvidia.com/gpu": str(gpus)} if gpus else {}
    state = {"terminated": {"exitCode": 0}} if containers_ended else {"running": {}}
    status = {"phase": phase, "startTime": "2026-03-01T10:00:00Z", "containerStatuses": [{"state": state}]}
    containers = [{"name": "main", "resources": {"limits": limits}}]
    return Pod.model_validate({"metadata": metadata, "spec": {"containers": containers, **spec}, "status": status})


def plan(
    each: Pod, goal: DrainGoal = DrainGoal.WORKLOAD, policy: DrainPolicy | None = None, ready: str = "True"
) -> PodPlan:
    return plan_pod(each, goal, policy or DrainPolicy(), node(ready), NOW)


@pytest.mark.parametrize(
    ("each", "handling"),
    [
        pytest.param(pod(), Handling.EVICT, id="a job's pod"),
        pytest.param(pod(owner=DAEMON), Handling.IGNORE, id="a DaemonSet's pod"),
        pytest.param(pod(annotations={"kubernetes.io/config.mirror": "x"}), Handling.IGNORE, id="a mirror pod"),
        pytest.param(pod(owner={"kind": "Node", "name": "a", "uid": "n"}), Handling.IGNORE, id="a static pod"),
        pytest.param(pod(phase="Succeeded"), Handling.IGNORE, id="a pod that succeeded"),
        pytest.param(pod(phase="Failed"), Handling.IGNORE, id="a pod that failed"),
        pytest.param(pod(owner=None), Handling.HOLD, id="an unmanaged pod"),
        pytest.param(pod(owner={**JOB, "controller": False}), Handling.HOLD, id="an owner that controls nothing"),
        pytest.param(pod(phase="Pending"), Handling.EVICT, id="a pending pod"),
        pytest.param(pod(terminating=timedelta(seconds=-60)), Handling.WAIT, id="terminating within its grace"),
        pytest.param(pod(terminating=timedelta(seconds=20)), Handling.WAIT, id="terminating within the margin"),
        pytest.param(pod(terminating=timedelta(minutes=2)), Handling.HANG, id="terminating for too long"),
        pytest.param(
            pod(terminating=timedelta(minutes=2), containers_ended=True), Handling.IGNORE, id="only a finalizer is left"
        ),
    ],
)
def test_each_kind_of_pod_is_handled_by_its_rule(each: Pod, handling: Handling) -> None:
    assert plan(each).handling is handling


@pytest.mark.parametrize(
    ("annotations", "handling"),
    [
        ({"karpenter.sh/do-not-disrupt": "true"}, Handling.HOLD),
        ({"karpenter.sh/do-not-disrupt": "4h"}, Handling.HOLD),
        ({"karpenter.sh/do-not-disrupt": "1h30m"}, Handling.EVICT),
        ({"karpenter.sh/do-not-disrupt": "false"}, Handling.EVICT),
        ({"karpenter.sh/do-not-disrupt": "soon"}, Handling.EVICT),
        ({"karpenter.sh/do-not-disrupt": ""}, Handling.EVICT),
        ({"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}, Handling.HOLD),
        ({"cluster-autoscaler.kubernetes.io/safe-to-evict": "true"}, Handling.EVICT),
    ],
)
def test_a_pod_that_asked_not_to_be_moved_holds_for_as_long_as_it_asked(
    annotations: dict[str, str], handling: Handling
) -> None:
    assert plan(pod(annotations=annotations)).handling is handling
    assert plan(pod(annotations=annotations), policy=EVICT_ALL).handling is Handling.EVICT


def test_policy_may_give_up_unmanaged_pods() -> None:
    assert plan(pod(owner=None), policy=EVICT_ALL).handling is Handling.EVICT


def test_every_hold_tells_the_cure() -> None:
    for held in (pod(owner=None), pod(annotations={"karpenter.sh/do-not-disrupt": "true"})):
        assert "set " in plan(held).reason


@pytest.mark.parametrize(
    ("each", "counts"),
    [
        (pod(gpus=8), True),
        (pod(gpus=0), False),
        (pod(gpus=0, resourceClaims=[{"name": "gpu"}]), True),
        (pod(gpus=0, initContainers=[{"name": "i", "resources": {"requests": {"nvidia.com/mig-1g.5gb": "1"}}}]), True),
    ],
)
def test_a_reset_needs_only_those_gone_that_may_hold_a_gpu(each: Pod, counts: bool) -> None:
    assert (plan(each, DrainGoal.GPU_PODS).handling is not Handling.IGNORE) is counts


@pytest.mark.parametrize(
    ("goal", "overdue", "handling"),
    [
        (DrainGoal.WORKLOAD, timedelta(minutes=6), Handling.IGNORE),
        (DrainGoal.WORKLOAD, timedelta(minutes=4), Handling.HANG),
        (DrainGoal.GPU_PODS, timedelta(minutes=6), Handling.HANG),
        (DrainGoal.GPU_PODS, timedelta(days=1), Handling.HANG),
    ],
)
@pytest.mark.parametrize("ready", ["False", "Unknown"])
def test_a_pod_of_a_dead_kubelet_stops_counting_for_a_reboot_but_never_for_a_reset(
    goal: DrainGoal, overdue: timedelta, handling: Handling, ready: str
) -> None:
    assert plan(pod(terminating=overdue), goal, ready=ready).handling is handling


def test_a_dead_kubelets_word_that_containers_ended_is_not_believed() -> None:
    each = pod(terminating=timedelta(minutes=2), containers_ended=True)
    assert plan(each, DrainGoal.GPU_PODS, ready="Unknown").handling is Handling.HANG


def test_critical_pods_go_last_even_behind_those_that_only_wait() -> None:
    critical = plan(pod("dns", priorityClassName="system-cluster-critical"))
    by_number = plan(pod("net", priority=2_000_001_000))
    plain = plan(pod("train"))
    waiting = plan(pod("old", terminating=timedelta(seconds=-5)))
    ignored = plan(pod("done", phase="Succeeded"))
    assert [each.pod.metadata.name for each in evictable([critical, by_number, plain])] == ["train"]
    assert evictable([critical, waiting]) == ()
    assert [each.pod.metadata.name for each in evictable([by_number, critical, ignored])] == ["dns", "net"]


def status(message: str = "", reason: str = "", **details: Any) -> Status:
    return Status.model_validate({"message": message, "reason": reason, "details": details})


BUDGET_CAUSE = {
    "reason": "DisruptionBudget",
    "message": "The disruption budget train-pdb needs 2 healthy pods and has 2 currently",
}


@pytest.mark.parametrize(
    ("code", "said", "answer"),
    [
        (429, status(causes=[BUDGET_CAUSE]), EvictionAnswer.BUDGET),
        (429, status("Too many requests", retryAfterSeconds=1), EvictionAnswer.THROTTLED),
        (
            500,
            status("This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."),
            EvictionAnswer.TWO_BUDGETS,
        ),
        (500, status("etcdserver: leader changed"), EvictionAnswer.THROTTLED),
        (504, status("timed out"), EvictionAnswer.THROTTLED),
        (404, status(reason="NotFound", name="train-0"), EvictionAnswer.GONE),
        (404, status(reason="NotFound"), EvictionAnswer.FORBIDDEN),
        (404, status("404 page not found"), EvictionAnswer.FORBIDDEN),
        (409, status("the UID in the precondition does not match"), EvictionAnswer.GONE),
        (403, status(causes=[{"reason": "NamespaceTerminating"}]), EvictionAnswer.NAMESPACE_ENDING),
        (403, status(kind="poddisruptionbudget", name="train-pdb"), EvictionAnswer.BUDGET),
        (403, status('User "x" cannot create resource "pods/eviction"', kind="pods"), EvictionAnswer.FORBIDDEN),
        (401, status(), EvictionAnswer.FORBIDDEN),
        (422, status(), EvictionAnswer.FORBIDDEN),
    ],
)
def test_each_refusal_of_an_eviction_has_its_meaning(code: int, said: Status, answer: EvictionAnswer) -> None:
    assert judge(code, said) is answer


def test_the_budget_is_named_where_the_refusal_names_it() -> None:
    assert budget_named(status(causes=[BUDGET_CAUSE])) == "train-pdb"
    assert budget_named(status(kind="poddisruptionbudget", name="train-pdb")) == "train-pdb"
    assert budget_named(status("Too many requests")) is None


def budget(name: str, selector: dict[str, Any] | None, namespace: str = "team") -> PodDisruptionBudget:
    return PodDisruptionBudget.model_validate(
        {"metadata": {"name": name, "namespace": namespace}, "spec": {"selector": selector}}
    )


def test_budgets_are_matched_as_the_server_matches_them() -> None:
    labelled = Pod.model_validate({"metadata": {"name": "p", "namespace": "team", "labels": {"app": "train"}}})

    def expression(operator: str, *values: str, key: str = "app") -> dict[str, Any]:
        return {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}

    budgets = (
        budget("labels", {"matchLabels": {"app": "train"}}),
        budget("other-labels", {"matchLabels": {"app": "serve"}}),
        budget("all", {}),
        budget("none", None),
        budget("elsewhere", {}, namespace="other"),
        budget("in", expression("In", "train", "serve")),
        budget("not-in", expression("NotIn", "train")),
        budget("exists", expression("Exists")),
        budget("absent", expression("DoesNotExist", key="tier")),
        budget("nonsense", expression("Like", "t")),
    )
    assert budgets_of(labelled, budgets) == ("labels", "all", "in", "exists", "absent")
