"""Faults that need the watch's memory: agents that never came or speak of another boot, shortages that last."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from sickbay import names, shortages
from sickbay.catalogue import fault_of, lookup
from sickbay.cloud_words import CloudWords
from sickbay.conditions import FaultsAnnotation, Inventory
from sickbay.diagnosis import diagnose
from sickbay.faults import Component, ComponentKind, Fault, FaultClass, Rung
from sickbay.incident import Outcome
from sickbay.kube_objects import Node
from sickbay.ladder import next_step, rungs_from
from sickbay.node_faults import open_faults
from sickbay.node_reading import read_node
from sickbay.nodes import NodeSnapshot
from sickbay.other_agents.condition_types import Subject
from sickbay.other_agents.judgement import excuses
from sickbay.policy.model import IncidentPolicy
from sickbay.triage import KnownIncident, Look, Standing, gone_codes, plan
from sickbay.watch_faults import Beside, NodeMemory, has_agent, remember, wants_agent, with_watch_faults

NOW = datetime(2026, 5, 1, 12, 0, tzinfo=UTC)
MACHINE = "i-0123456789abcdef0"
MINUTE = timedelta(minutes=1)


def condition(kind: str, status: str = "True", since: timedelta = timedelta(hours=3)) -> dict[str, str]:
    beat, changed = (NOW - 0.5 * MINUTE).isoformat(), (NOW - since).isoformat()
    return {"type": kind, "status": status, "lastHeartbeatTime": beat, "lastTransitionTime": changed}


def node(
    *others: dict[str, str],
    agent: bool = True,
    reported_boot: str = "boot-1",
    inventory: Inventory | None = None,
    faults: tuple[Fault, ...] = (),
    offered: dict[str, str] | None = None,
    labels: dict[str, str] | None = None,
    ready_for: timedelta = timedelta(hours=3),
    ready: str = "True",
    efa_attached: int | None = None,
    own: str = "True",
) -> Node:
    annotations: dict[str, str] = {}
    conditions = [condition("Ready", ready, ready_for), *others]
    if agent:
        conditions += [condition(kind, own) for kind in names.CONDITIONS]
        told = FaultsAnnotation(
            boot_id=reported_boot,
            reported_at=NOW,
            faults=faults,
            inventory=inventory or Inventory(),
            boot_seen_at=NOW - timedelta(hours=2),
        )
        annotations[names.ANNOTATION_FAULTS] = told.model_dump_json()
    if efa_attached is not None:
        words = CloudWords(instance_id=MACHINE, answered_at=NOW, efa_attached=efa_attached)
        annotations[names.ANNOTATION_CLOUD] = words.model_dump_json()
    there = {"nvidia.com/gpu": "8"}
    raw: dict[str, Any] = {
        "metadata": {
            "name": "n1",
            "uid": "u-1",
            "creationTimestamp": (NOW - timedelta(days=1)).isoformat(),
            "labels": labels or {},
            "annotations": annotations,
        },
        "spec": {"providerID": f"aws:///eu-west-1a/{MACHINE}"},
        "status": {
            "conditions": conditions,
            "nodeInfo": {"bootID": "boot-1"},
            "capacity": there,
            "allocatable": there | (offered or {}),
        },
    }
    return Node.model_validate(raw)


def look(
    told: Node, *, watched_for: timedelta = timedelta(hours=1), expected: bool = True, ignored: str = ""
) -> NodeSnapshot:
    """A look after the watch has seen the node as it is for this long."""
    memory = remember(told, None, NOW - watched_for)
    since = NOW - watched_for if expected else None
    beside = Beside(memory=remember(told, memory, NOW), agents_since=since, excuses=excuses(ignored))
    return with_watch_faults(read_node(told, NOW), told, beside)


def codes(snapshot: NodeSnapshot) -> list[str]:
    return [fault.code for fault in snapshot.faults]


def test_a_healthy_node_has_none() -> None:
    told = node(inventory=Inventory(gpus=8, efa_devices=32), efa_attached=32, offered={"vpc.amazonaws.com/efa": "32"})
    assert codes(look(told)) == []


def test_an_agent_that_never_came_blocks_new_work_and_never_does_more() -> None:
    """Peer-nvsentinel 4.24: no signal at all is an incident of its own."""
    (fault,) = look(node(agent=False)).faults
    assert (fault.code, fault.fault_class) == ("agent-missing", FaultClass.MONITOR_UNAVAILABLE)
    assert next_step(fault.rung, fault.fault_class, (), IncidentPolicy()).rung is Rung.BLOCK_NEW_WORK
    assert open_faults(node(agent=False), NOW) == ()


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        (node(agent=False, ready_for=9 * MINUTE), True),
        (node(agent=False), False),
        (node(agent=True), True),
    ],
    ids=["within its grace", "no agents here", "there"],
)
def test_an_agent_is_missed_only_after_its_grace_and_where_agents_are_expected(told: Node, expected: bool) -> None:
    assert codes(look(told, expected=expected)) == []


def test_no_agent_is_missed_on_an_old_fleet_on_which_agents_have_only_just_begun_to_come() -> None:
    assert codes(look(node(agent=False), watched_for=9 * MINUTE)) == []
    assert codes(look(node(agent=False), watched_for=11 * MINUTE)) == ["agent-missing"]


def test_a_dead_kubelet_explains_the_missing_agent() -> None:
    assert codes(look(node(agent=False, ready="Unknown"))) == ["node-not-ready"]


@pytest.mark.parametrize(
    ("labels", "wanted"),
    [
        ({"nvidia.com/gpu.present": "true"}, True),
        ({"karpenter.k8s.aws/instance-gpu-count": "8"}, True),
        ({"karpenter.k8s.aws/instance-gpu-count": "8", "karpenter.k8s.aws/instance-gpu-manufacturer": "amd"}, False),
        ({}, False),
    ],
)
def test_nodes_with_nvidia_gpus_want_an_agent(labels: dict[str, str], wanted: bool) -> None:
    bare = node(agent=False, labels=labels)
    bare = bare.model_copy(update={"status": bare.status.model_copy(update={"capacity": {"amd.com/gpu": "8"}})})
    assert wants_agent(bare) is wanted
    assert not has_agent(bare)


def test_a_fresh_report_of_another_boot_is_silence_once_the_boot_has_lasted() -> None:
    told = node(reported_boot="boot-0")
    assert codes(look(told, watched_for=4 * MINUTE)) == []
    assert codes(look(told, watched_for=6 * MINUTE)) == ["monitor-silent"]


@pytest.mark.parametrize(
    ("told", "code", "rung"),
    [
        (node(inventory=Inventory(gpus=8), offered={"nvidia.com/gpu": "7"}), "gpu-allocatable-short", Rung.HUMAN),
        (
            node(inventory=Inventory(efa_devices=32), offered={"vpc.amazonaws.com/efa": "31"}),
            "efa-allocatable-short",
            Rung.HUMAN,
        ),
        (node(inventory=Inventory(efa_devices=31), efa_attached=32), "efa-missing", Rung.BLOCK_NEW_WORK),
    ],
)
def test_a_shortage_that_has_lasted_is_a_fault_and_one_that_has_not_is_undecided(
    told: Node, code: str, rung: Rung
) -> None:
    """Detection 8.14: a GPU that recovered is never offered again."""
    early = look(told, watched_for=9 * MINUTE)
    assert (codes(early), early.undecided) == ([], (code,))
    late = look(told, watched_for=10 * MINUTE)
    assert [(fault.code, fault.rung) for fault in late.faults] == [(code, rung)]
    assert late.faults[0].first_seen == NOW - 10 * MINUTE


@pytest.mark.parametrize(
    "told",
    [
        node(inventory=Inventory(efa_devices=32)),
        node(inventory=Inventory(efa_devices=32), efa_attached=0),
        node(inventory=Inventory(), efa_attached=32),
        node(inventory=Inventory(gpus=4), offered={}),
        node(inventory=Inventory(gpus=9), labels={"nvidia.com/gpu.replicas": "2"}),
        node(inventory=Inventory(gpus=9), labels={"nvidia.com/mig.strategy": "single"}),
        node(reported_boot="boot-0", inventory=Inventory(gpus=9)),
    ],
    ids=["no plugin", "none attached", "not counted", "fewer seen", "shared", "cut", "another boot"],
)
def test_counts_that_may_not_be_compared_are_no_shortage(told: Node) -> None:
    snapshot = look(told, watched_for=timedelta(0))
    assert (codes(snapshot), snapshot.undecided) == ([], ())


def test_a_shortage_beside_a_fault_is_not_told_since_the_fault_explains_it() -> None:
    sick = look(
        node(condition("KernelReady", "False", MINUTE), inventory=Inventory(gpus=8), offered={"nvidia.com/gpu": "7"})
    )
    assert (codes(sick), sick.undecided) == (["reported-host"], ())


def test_a_new_boot_begins_its_shortages_anew() -> None:
    short = node(inventory=Inventory(gpus=8), offered={"nvidia.com/gpu": "7"})
    before = NodeMemory(
        boot_id="boot-0",
        boot_since=NOW - timedelta(days=1),
        short_since={"gpu-allocatable-short": NOW - timedelta(days=1)},
    )
    after = remember(short, before, NOW)
    assert (after.boot_since, after.short_since) == (NOW, {"gpu-allocatable-short": NOW})


def test_other_agents_words_join_the_nodes_faults_unless_excused_or_of_an_earlier_boot() -> None:
    told = node(condition("NetworkingReady", "False", MINUTE), condition("StorageReady", "False", timedelta(hours=1)))
    assert codes(look(told)) == ["reported-network", "reported-storage"]
    assert codes(look(told, ignored="NetworkingReady")) == ["reported-storage"]
    old = condition("KernelDeadlock", "True", timedelta(hours=9)) | {
        "lastHeartbeatTime": (NOW - timedelta(hours=9)).isoformat()
    }
    assert codes(look(node(old))) == []


def known(code: str) -> tuple[Fault, ...]:
    (fault,) = look(node(condition("AcceleratedHardwareReady", "False", MINUTE))).faults
    return (fault.model_copy(update={"code": code}),)


@pytest.mark.parametrize(
    ("code", "told", "gone"),
    [
        ("reported-gpu", node(), True),
        ("reported-gpu", node(own="Unknown"), False),
        ("reported-gpu", node(agent=False), False),
        ("instance-stop-scheduled", node(), False),
        ("instance-stop-scheduled", node(efa_attached=0), True),
        ("gpu-allocatable-short", node(inventory=Inventory(gpus=8), offered={"nvidia.com/gpu": "7"}), False),
        ("gpu-allocatable-short", node(inventory=Inventory(gpus=8)), True),
        ("agent-missing", node(), True),
        ("agent-missing", node(agent=False), False),
    ],
)
def test_a_fault_is_gone_only_by_the_word_of_one_who_can_tell(code: str, told: Node, gone: bool) -> None:
    """Detection 5 and 8.11: a condition turns good when its agent restarts, which proves nothing."""
    snapshot = look(told, watched_for=timedelta(0), expected=False)
    assert gone_codes(known(code), snapshot) == ((code,) if gone else ())


def looked(told: Node, incident: KnownIncident) -> Look:
    return Look(
        snapshot=look(told), incident_id="incident-lab-i-1", incident=incident, policy=IncidentPolicy(), now=NOW
    )


def test_another_agents_word_opens_an_incident_that_only_blocks_new_work() -> None:
    decided = plan(looked(node(condition("GpuMemWatch", "True", MINUTE)), KnownIncident(standing=Standing.ABSENT)))
    assert (decided.contain, decided.opens, [fault.code for fault in decided.report]) == (True, True, ["reported-gpu"])
    fault = decided.report[0]
    step = next_step(fault.rung, fault.fault_class, (), IncidentPolicy())
    assert step.rung is Rung.BLOCK_NEW_WORK


def test_a_word_that_a_person_has_withdrawn_opens_nothing_again() -> None:
    told = node(condition("GpuMemWatch", "True", MINUTE))
    decided = KnownIncident(standing=Standing.CLOSED, outcome=Outcome.WITHDRAWN, faults=look(told).faults)
    assert not plan(looked(told, decided)).acts


def test_another_agents_word_on_a_fault_that_we_see_too_changes_neither_rung_nor_part() -> None:
    """Peer-nvsentinel 4.26: several sources of one fault."""
    gpu = Component(kind=ComponentKind.GPU, id="0000:61:00")
    xid = fault_of("xid-79", gpu, seen=NOW, boot_id="boot-1")
    both = look(node(condition("SysLogsXIDError", "True", MINUTE), faults=(xid,)))
    verdict = diagnose(both.faults)
    assert (verdict.rung, verdict.components) == (Rung.REBOOT, (gpu,))


@pytest.mark.parametrize(
    "code", [*(subject.code for subject in Subject), "monitor-silent", "agent-missing", *sorted(shortages.CODES)]
)
def test_no_word_of_others_no_silence_and_no_shortage_leads_to_a_disruption(code: str) -> None:
    row = lookup(code)
    assert row.known
    assert not any(rung.disrupts for rung in rungs_from(row.rung, IncidentPolicy(), row.fault_class))
