from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.cluster.budgets import count
from simulator.cluster.job_objects import Job
from simulator.cluster.jobs import counts_as_failure, holds_index
from simulator.cluster.karpenter_drain import STUCK_AFTER, forced_grace, holds_drain, next_group
from simulator.cluster.karpenter_objects import DISRUPTED
from simulator.cluster.karpenter_termination import grace_seconds
from simulator.cluster.objects import BudgetSpec, Node, Pod, Taint, Toleration
from simulator.cluster.placement import fits
from simulator.cluster.taints import seconds_borne, taints_of_state, tolerates, with_state_taints

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)
UNREACHABLE = Taint(key="node.kubernetes.io/unreachable", effect="NoExecute")


def pod(spec: Mapping[str, object] | None = None, **metadata: object) -> Pod:
    return Pod.model_validate({"metadata": {"name": "worker", **metadata}, "spec": spec or {}})


def node(spec: dict[str, object], gpus: int = 8) -> Node:
    status = {"allocatable": {"nvidia.com/gpu": str(gpus)}, "conditions": [{"type": "Ready", "status": "True"}]}
    return Node.model_validate({"metadata": {"name": "p5-0"}, "spec": spec, "status": status})


def wants(gpus: int, **spec: object) -> Pod:
    container = {"name": "worker", "resources": {"limits": {"nvidia.com/gpu": str(gpus)}}}
    return pod({"containers": [container], **spec})


@pytest.mark.parametrize(
    ("toleration", "tolerated"),
    [
        (Toleration(operator="Exists"), True),
        (Toleration(operator="Exists", key=UNREACHABLE.key), True),
        (Toleration(operator="Exists", key="other"), False),
        (Toleration(operator="Exists", effect="NoSchedule"), False),
        (Toleration(key=UNREACHABLE.key), True),
        (Toleration(key=UNREACHABLE.key, value="other"), False),
    ],
)
def test_a_toleration_bears_a_taint_by_key_value_and_effect(toleration: Toleration, tolerated: bool) -> None:
    assert tolerates(toleration, UNREACHABLE) is tolerated


def test_pods_bear_an_unreachable_node_for_a_while_and_other_taints_not_at_all() -> None:
    assert seconds_borne(pod(), UNREACHABLE, default=300) == 300
    assert seconds_borne(pod(), Taint(key="other", effect="NoExecute"), default=300) == 0


def test_the_shortest_toleration_decides_and_one_without_end_bears_for_ever() -> None:
    limited = [{"operator": "Exists", "tolerationSeconds": seconds} for seconds in (60, 20)]
    assert seconds_borne(pod({"tolerations": limited}), UNREACHABLE, default=300) == 20
    assert seconds_borne(pod({"tolerations": [{"operator": "Exists"}]}), UNREACHABLE, default=300) is None


taint_lists = st.lists(
    st.builds(
        Taint,
        key=st.sampled_from(["owner/mark", "node.kubernetes.io/unschedulable", "node.kubernetes.io/not-ready"]),
        effect=st.sampled_from(["NoSchedule", "NoExecute"]),
    ),
    unique_by=lambda taint: (taint.key, taint.effect),
)


@given(taint_lists, st.booleans(), st.sampled_from(["True", "False", "Unknown"]))
def test_state_taints_follow_the_state_and_taints_of_others_stay(
    taints: list[Taint], cordoned: bool, ready: str
) -> None:
    before = node({"unschedulable": cordoned, "taints": [taint.written() for taint in taints]})
    wanted = taints_of_state(before, ready)
    after = with_state_taints(before, wanted)
    assert {taint for taint in after if taint.key == "owner/mark"} == {t for t in taints if t.key == "owner/mark"}
    assert {(taint.key, taint.effect) for taint in after if taint.key != "owner/mark"} == {
        (taint.key, taint.effect) for taint in wanted
    }


def test_a_pod_fits_by_free_gpus_cordon_and_taints() -> None:
    assert fits(wants(8), node({}), gpus_free=8)
    assert not fits(wants(8), node({}), gpus_free=7)
    assert not fits(wants(1), node({"unschedulable": True}), gpus_free=8)
    tainted = node({"taints": [{"key": "owner/mark", "effect": "NoSchedule"}]})
    assert not fits(wants(1), tainted, gpus_free=8)
    assert fits(wants(1, tolerations=[{"key": "owner/mark", "operator": "Exists"}]), tainted, gpus_free=8)
    assert not fits(wants(1, nodeSelector={"pool": "other"}), node({}), gpus_free=8)


@pytest.mark.parametrize(
    ("spec", "expected", "healthy", "allowed"),
    [
        (BudgetSpec(min_available=3), 4, 4, 1),
        (BudgetSpec(min_available=3), 4, 2, 0),
        (BudgetSpec(max_unavailable=1), 4, 4, 1),
        (BudgetSpec(max_unavailable=1), 4, 3, 0),
        (BudgetSpec(min_available="50%"), 5, 5, 2),
        (BudgetSpec(max_unavailable="20%"), 4, 4, 1),
        (BudgetSpec(max_unavailable=1), 0, 0, 0),
    ],
)
def test_a_budget_allows_what_is_healthy_beyond_what_must_be(
    spec: BudgetSpec, expected: int, healthy: int, allowed: int
) -> None:
    assert count(spec, expected, healthy).allowed == allowed


def test_a_drain_waits_for_no_mirror_pod_no_pod_that_bears_it_and_none_stuck_in_its_end() -> None:
    mirror = pod(ownerReferences=[{"kind": "Node", "name": "p5-0", "uid": "1"}])
    bearing = pod({"tolerations": [{"key": DISRUPTED.key, "operator": "Exists"}]})
    stuck = pod(deletionTimestamp=NOW - STUCK_AFTER - timedelta(seconds=1))
    ending = pod(deletionTimestamp=NOW - timedelta(seconds=1))
    assert [holds_drain(each, STUCK_AFTER, NOW) for each in (mirror, bearing, stuck, ending, pod())] == [
        False,
        False,
        False,
        True,
        True,
    ]


def test_critical_pods_go_last_and_daemons_after_the_others_of_their_kind() -> None:
    daemon_of = [{"kind": "DaemonSet", "name": "plugin", "uid": "1", "controller": True}]
    critical_class = {"priorityClassName": "system-node-critical"}
    ordinary, daemon = pod(), pod(ownerReferences=daemon_of)
    critical, critical_daemon = pod(critical_class), pod(critical_class, ownerReferences=daemon_of)
    left = [critical_daemon, critical, daemon, ordinary]
    order = []
    while left:
        (turn,) = next_group(left)
        order.append(turn)
        left.remove(turn)
    assert order == [ordinary, daemon, critical, critical_daemon]


def test_force_leaves_a_pod_what_time_there_is_and_never_none() -> None:
    worker = pod({"terminationGracePeriodSeconds": 30})
    assert [forced_grace(worker, left) for left in (60, 30, 10, -100)] == [None, None, 10, 1]


@pytest.mark.parametrize(
    ("duration", "seconds"), [("1h30m", 5400), ("45s", 45), (None, None), ("", None), ("Never", None), ("soon", None)]
)
def test_durations_are_read_as_kubernetes_writes_them(duration: str | None, seconds: float | None) -> None:
    assert grace_seconds(duration) == seconds


def test_an_evicted_worker_counts_as_failure_only_without_a_policy_that_ignores_it() -> None:
    rule = {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}
    plain = Job.model_validate({"metadata": {"name": "train"}})
    lenient = Job.model_validate({"metadata": {"name": "train"}, "spec": {"podFailurePolicy": {"rules": [rule]}}})
    told = {"conditions": [{"type": "DisruptionTarget", "status": "True"}]}
    evicted = Pod.model_validate({"metadata": {"name": "worker"}, "status": told})
    assert counts_as_failure(plain, evicted)
    assert not counts_as_failure(lenient, evicted)
    assert counts_as_failure(lenient, pod())


def test_with_a_failure_policy_a_terminating_worker_keeps_its_index() -> None:
    ending = pod(deletionTimestamp=NOW)
    plain = Job.model_validate({"metadata": {"name": "train"}})
    judged = Job.model_validate({"metadata": {"name": "train"}, "spec": {"podFailurePolicy": {"rules": []}}})
    assert not holds_index(plain, ending)
    assert holds_index(judged, ending)
