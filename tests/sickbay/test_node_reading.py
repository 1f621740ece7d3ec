from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from sickbay import names
from sickbay.conditions import FaultsAnnotation
from sickbay.faults import Component, ComponentKind, Fault, FaultClass, Rung, Severity
from sickbay.kube_objects import Lease, Node, NodeClaim
from sickbay.node_reading import (
    is_gpu_node,
    missing_after_boot,
    missing_to_serve,
    pool_of,
    read_node,
    why_unavailable,
)
from sickbay.nodes import NodeSnapshot, OwnerKind, Readiness

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
XID_79 = Fault(
    code="xid-79",
    component=Component(kind=ComponentKind.GPU, id="0000:61:00"),
    fault_class=FaultClass.GPU,
    severity=Severity.FATAL,
    rung=Rung.REBOOT,
)


def condition(kind: str, status: str = "True", beat: timedelta = timedelta(seconds=30)) -> dict[str, str]:
    stamp = (NOW - beat).isoformat()
    return {"type": kind, "status": status, "lastHeartbeatTime": stamp, "lastTransitionTime": stamp}


def agent(beat: timedelta = timedelta(seconds=30), gpu: str = "True") -> list[dict[str, str]]:
    return [condition(kind, gpu if kind == names.CONDITION_GPU else "True", beat) for kind in names.CONDITIONS]


def report(*faults: Fault, boot_id: str = "boot-1") -> dict[str, str]:
    told = FaultsAnnotation(boot_id=boot_id, reported_at=NOW, faults=faults)
    return {names.ANNOTATION_FAULTS: told.model_dump_json()}


def node(
    *,
    ready: str | None = "True",
    agents: list[dict[str, str]] | None = None,
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
    managed: list[dict[str, Any]] | None = None,
    owners: list[dict[str, Any]] | None = None,
    gpus: int = 8,
    boot_id: str = "boot-1",
    **spec: Any,
) -> Node:
    conditions = ([condition("Ready", ready)] if ready else []) + (agents or [])
    metadata = {
        "name": "node-a",
        "uid": "u-1",
        "creationTimestamp": "2026-03-01T00:00:00Z",
        "labels": labels,
        "annotations": annotations,
        "managedFields": managed,
        "ownerReferences": owners,
    }
    resources = {"cpu": "96", "memory": "2000Gi", "nvidia.com/gpu": str(gpus)}
    status = {
        "conditions": conditions,
        "nodeInfo": {"bootID": boot_id},
        "capacity": resources,
        "allocatable": resources,
    }
    return Node.model_validate({"metadata": metadata, "spec": spec, "status": status})


def codes(snapshot: NodeSnapshot) -> list[str]:
    return [fault.code for fault in snapshot.faults]


def test_a_healthy_node_reads_as_such() -> None:
    seen = read_node(node(agents=agent(), annotations=report(), providerID="aws:///eu-west-1a/i-0abc"), NOW)
    assert (seen.exists, seen.uid, seen.boot_id, seen.ready) == (True, "u-1", "boot-1", Readiness.TRUE)
    assert (seen.provider_id, seen.gpu_capacity, seen.gpu_allocatable) == ("aws:///eu-west-1a/i-0abc", 8, 8)
    assert (seen.conditions_fresh, seen.conditions_healthy, seen.faults) == (True, True, ())


def test_faults_of_this_boot_count() -> None:
    seen = read_node(node(agents=agent(gpu="False"), annotations=report(XID_79)), NOW)
    assert codes(seen) == ["xid-79"]
    assert not seen.conditions_healthy


def test_faults_of_an_earlier_boot_do_not_count_and_their_conditions_are_not_fresh() -> None:
    seen = read_node(node(agents=agent(), annotations=report(XID_79, boot_id="boot-0")), NOW)
    assert codes(seen) == []
    assert not seen.conditions_fresh


@pytest.mark.parametrize("status", ["False", "Unknown", "Nonsense"])
def test_a_node_that_is_not_ready_is_a_fault_of_the_host(status: str) -> None:
    fault = read_node(node(ready=status), NOW).faults[0]
    assert (fault.code, fault.fault_class, fault.rung) == ("node-not-ready", FaultClass.HOST, Rung.REBOOT)
    assert (fault.severity, fault.component.kind) == (Severity.FATAL, ComponentKind.HOST)


def test_a_node_whose_kubelet_never_reported_is_unknown_since_its_creation() -> None:
    seen = read_node(node(ready=None), NOW)
    assert (seen.ready, seen.ready_since) == (Readiness.UNKNOWN, datetime(2026, 3, 1, tzinfo=UTC))
    assert codes(seen) == ["node-not-ready"]


def test_an_agent_that_fell_silent_on_a_ready_node_blocks_new_work_and_kills_nothing() -> None:
    seen = read_node(node(agents=agent(beat=timedelta(minutes=6)), annotations=report()), NOW)
    assert [(fault.code, fault.fault_class, fault.rung) for fault in seen.faults] == [
        ("monitor-silent", FaultClass.MONITOR_UNAVAILABLE, Rung.BLOCK_NEW_WORK)
    ]
    assert not seen.conditions_fresh


def test_a_dead_kubelet_explains_the_agents_silence() -> None:
    seen = read_node(node(ready="Unknown", agents=agent(beat=timedelta(hours=1)), annotations=report()), NOW)
    assert codes(seen) == ["node-not-ready"]


def test_a_node_that_never_had_an_agent_is_not_silent() -> None:
    assert codes(read_node(node(), NOW)) == []


def test_a_heartbeat_far_in_the_future_is_no_sign_of_life() -> None:
    seen = read_node(node(agents=agent(beat=-timedelta(hours=1)), annotations=report()), NOW)
    assert codes(seen) == ["monitor-silent"]
    assert not seen.conditions_fresh


def test_a_report_that_cannot_be_read_is_bad_never_good() -> None:
    seen = read_node(node(agents=agent(), annotations={names.ANNOTATION_FAULTS: "{cut"}), NOW)
    assert codes(seen) == ["monitor-silent"]
    assert not seen.conditions_fresh


def test_a_missing_condition_of_ours_is_not_health() -> None:
    assert not read_node(node(agents=agent()[1:], annotations=report()), NOW).conditions_healthy


OURS_OWNS = {"manager": "sickbay", "fieldsV1": {"f:spec": {"f:unschedulable": {}}}, "time": "2026-03-01T11:00:00Z"}
MARK = {names.ANNOTATION_INCIDENT: "incident-1", names.ANNOTATION_CONTAINED_AT: "2026-03-01T11:00:00Z"}


def cordon_of(manager: str) -> dict[str, Any]:
    return {**OURS_OWNS, "manager": manager, "time": "2026-03-01T11:30:00Z"}


@pytest.mark.parametrize(
    ("annotations", "cordoned", "managed", "by_person"),
    [
        pytest.param(MARK, True, [OURS_OWNS], False, id="still cordoned"),
        pytest.param(MARK, False, [], True, id="kubectl uncordon leaves no owner"),
        pytest.param({}, False, [], False, id="no mark of ours"),
        pytest.param(MARK, False, [cordon_of("kubectl-edit")], True, id="a person's explicit false"),
        pytest.param(MARK, False, [cordon_of("kube-controller-manager")], False, id="software's explicit false"),
        pytest.param(MARK, False, [OURS_OWNS, cordon_of("k9s")], True, id="the last writer decides"),
    ],
)
def test_a_persons_uncordon_is_told_from_softwares(
    annotations: dict[str, str], cordoned: bool, managed: list[dict[str, Any]], by_person: bool
) -> None:
    seen = read_node(node(annotations=annotations, managed=managed, unschedulable=cordoned), NOW)
    assert seen.uncordoned_by_person is by_person


def test_marks_are_read_back() -> None:
    annotations = {**MARK, names.ANNOTATION_PRIOR_UNSCHEDULABLE: "true"}
    seen = read_node(node(annotations=annotations, unschedulable=True), NOW)
    assert (seen.incident_mark, seen.prior_unschedulable, seen.unschedulable) == ("incident-1", True, True)


CLAIM_REFERENCE = [{"kind": "NodeClaim", "name": "p5-x", "uid": "claim-1"}]


def claim(**metadata: Any) -> NodeClaim:
    return NodeClaim.model_validate({"metadata": {"name": "p5-x", "uid": "claim-1", **metadata}})


def test_karpenter_owns_a_node_with_a_claim() -> None:
    owner = read_node(node(owners=CLAIM_REFERENCE), NOW, claim=claim()).owner
    assert (owner.kind, owner.name, owner.uid, owner.deleting) == (OwnerKind.KARPENTER, "p5-x", "claim-1", False)


def test_a_claim_that_is_being_deleted_or_gone_says_so() -> None:
    going = claim(deletionTimestamp="2026-03-01T11:59:00Z")
    assert read_node(node(owners=CLAIM_REFERENCE), NOW, claim=going).owner.deleting
    assert read_node(node(owners=CLAIM_REFERENCE), NOW, claim_gone=True).owner.deleting


@pytest.mark.parametrize("label", ["eks.amazonaws.com/nodegroup", "alpha.eksctl.io/nodegroup-name"])
def test_a_node_group_is_an_auto_scaling_group_and_the_pool(label: str) -> None:
    seen = read_node(node(labels={label: "gpu"}), NOW)
    assert (seen.owner.kind, seen.pool) == (OwnerKind.AUTOSCALING_GROUP, "gpu")


def test_a_node_that_nobody_made_has_no_owner_and_no_pool() -> None:
    seen = read_node(node(), NOW)
    assert (seen.owner.kind, seen.pool) == (OwnerKind.NOBODY, "")


def test_karpenters_pool_label_comes_first() -> None:
    assert pool_of(node(labels={"karpenter.sh/nodepool": "p5", "eks.amazonaws.com/nodegroup": "gpu"})) == "p5"


@pytest.mark.parametrize(
    ("marks", "word"),
    [
        ({"labels": {"nvidia.com/gpu-driver-upgrade-state": "drain-required"}}, "driver"),
        ({"labels": {"nvidia.com/mig.config.state": "rebooting"}}, "MIG"),
        ({"annotations": {"weave.works/kured-reboot-in-progress": "2026-03-01"}}, "kured"),
        ({"taints": [{"key": "medik8s.io/remediation", "effect": "NoExecute"}]}, "remediator"),
        ({"labels": {"dgxc.nvidia.com/nvsentinel-state": "remediating"}}, "NVSentinel"),
    ],
)
def test_another_actor_at_work_is_a_lock_in_words(marks: dict[str, Any], word: str) -> None:
    (lock,) = read_node(node(**marks), NOW).foreign_locks
    assert word in lock


@pytest.mark.parametrize("state", ["upgrade-done", "upgrade-required", "upgrade-failed", ""])
def test_a_driver_upgrade_that_is_not_at_work_is_no_lock(state: str) -> None:
    assert read_node(node(labels={"nvidia.com/gpu-driver-upgrade-state": state}), NOW).foreign_locks == ()


@pytest.mark.parametrize(("age", "locked"), [(10, True), (3601, False)])
def test_a_lease_binds_only_while_its_holder_renews_it(age: int, locked: bool) -> None:
    spec = {
        "holderIdentity": "NodeHealthCheck-x",
        "leaseDurationSeconds": 3600,
        "renewTime": (NOW - timedelta(seconds=age)).isoformat(),
    }
    lease = Lease.model_validate({"metadata": {"name": "node-node-a"}, "spec": spec})
    assert bool(read_node(node(), NOW, lease=lease).foreign_locks) is locked


@pytest.mark.parametrize(
    ("seen", "word"),
    [
        (read_node(node(boot_id="boot-2"), NOW), ""),
        (read_node(node(boot_id="boot-1"), NOW), "boot id"),
        (read_node(node(boot_id=""), NOW), "boot id"),
        (read_node(node(boot_id="boot-2", ready="False"), NOW), "Ready"),
        (read_node(node(boot_id="boot-2", gpus=7), NOW), "7 of 8"),
        (NodeSnapshot(observed_at=NOW, exists=False), "gone"),
    ],
)
def test_a_boot_is_proven_by_a_new_id_a_ready_node_and_all_its_gpus(seen: NodeSnapshot, word: str) -> None:
    missing = missing_after_boot(seen, "boot-1", 8)
    assert word in missing
    assert bool(missing) is bool(word)


def test_a_successor_of_unknown_size_must_have_a_gpu_at_least() -> None:
    assert missing_to_serve(node(gpus=0), None) == "0 of 1 GPUs are allocatable"
    assert missing_to_serve(node(gpus=4), None) == ""


@pytest.mark.parametrize(
    ("stands", "word"),
    [
        ({}, ""),
        ({"unschedulable": True}, "cordoned"),
        ({"ready": "False"}, "Ready is False"),
        ({"taints": [{"key": "karpenter.sh/disrupted", "effect": "NoSchedule"}]}, "leaving"),
    ],
)
def test_a_node_that_takes_no_work_says_why(stands: dict[str, Any], word: str) -> None:
    why = why_unavailable(node(**stands))
    assert word in why
    assert bool(why) is bool(word)


def test_a_gpu_node_that_lost_its_device_plugin_is_still_one() -> None:
    assert is_gpu_node(node(gpus=0, labels={"nvidia.com/gpu.present": "true"}))
    assert is_gpu_node(node(gpus=0, agents=agent()))
    assert not is_gpu_node(node(gpus=0, labels={"nvidia.com/gpu.present": "false"}))


MIG = {"nvidia.com/gpu": "0", "nvidia.com/mig-1g.10gb": "56"}


@pytest.mark.parametrize(
    ("labels", "capacity", "promised", "devices"),
    [
        ({}, {"nvidia.com/gpu": "7"}, 0, 7),
        ({"node.kubernetes.io/instance-type": "p5.48xlarge"}, {"nvidia.com/gpu": "7"}, 8, 7),
        ({"node.kubernetes.io/instance-type": "p5.48xlarge"}, {}, 8, 0),
        ({"node.kubernetes.io/instance-type": "a-type-of-later"}, {}, 0, 0),
        ({"karpenter.k8s.aws/instance-gpu-count": "4", "nvidia.com/gpu.count": "4"}, MIG, 4, 4),
        ({"nvidia.com/gpu.count": "8"}, MIG, 0, 8),
        ({"nvidia.com/gpu.count": "8", "nvidia.com/gpu.replicas": "10"}, {"nvidia.com/gpu": "80"}, 0, 8),
        ({"nvidia.com/gpu.count": "eight"}, MIG, 0, 0),
    ],
)
def test_gpus_are_counted_whole_also_where_they_are_shared_or_cut(
    labels: dict[str, str], capacity: dict[str, str], promised: int, devices: int
) -> None:
    """Detection 8.14: 56 MIG instances are no 56 GPUs, and 8 GPUs that answer would never be enough."""
    told = node(labels=labels)
    told = told.model_copy(update={"status": told.status.model_copy(update={"capacity": capacity})})
    look = read_node(told, NOW)
    assert (look.gpus_promised, look.gpu_devices) == (promised, devices)
