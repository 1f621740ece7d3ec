"""The rules of an admission, and what it writes on nodes."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sickbay import admission, names
from sickbay.admission import AdmissionState, KnownAdmission
from sickbay.admission_marks import HoldDecision, admit, held_back, hold_back
from sickbay.catalogue import fault_of
from sickbay.faults import Component, ComponentKind, Rung
from sickbay.kube_objects import Node
from sickbay.node_marks import release
from sickbay.node_reading import missing_to_serve, read_node, why_unavailable
from sickbay.nodes import GpuReading, HostProbe, NodeRef, NodeSnapshot, Readiness
from sickbay.policy.model import AdmissionPolicy, IncidentPolicy
from sickbay.triage import KnownIncident, Look, Standing, TriageRules, concerns_us, gone_codes, plan

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
NODE = NodeRef(cluster="lab", name="n1", uid="uid-1", provider_id="aws:///a/i-1", pool="p5")
ON = AdmissionPolicy(enabled=True)
OURS = {"key": names.TAINT_ADMISSION, "effect": "NoSchedule"}
THEIRS = {"key": "nvidia.com/gpu", "effect": "NoSchedule", "value": "present", "timeAdded": "2026-03-01T11:00:00Z"}


def look(**values: Any) -> NodeSnapshot:
    """A node that can be judged, and is well."""
    well: dict[str, Any] = {
        "observed_at": NOW,
        "exists": True,
        "uid": NODE.uid,
        "boot_id": "boot-2",
        "ready": Readiness.TRUE,
        "gpu_capacity": 8,
        "gpu_allocatable": 8,
        "admission_taint": True,
        "conditions_fresh": True,
        "conditions_healthy": True,
    }
    return NodeSnapshot(**{**well, **values})


def probe(gpus: int = 8, **values: Any) -> HostProbe:
    seen = tuple(GpuReading(uuid=f"GPU-{index}", pci=f"0000:{index}1:00") for index in range(gpus))
    return HostProbe(**{"observed_at": NOW, "boot_id": "boot-2", "gpus": seen, "gpus_answered": True, **values})


def node(*taints: dict[str, str], boot: str = "boot-2", **annotations: str) -> Node:
    named = {f"{names.DOMAIN}/{name.replace('_', '-')}": value for name, value in annotations.items()}
    metadata = {"name": "n1", "uid": "uid-1", "resourceVersion": "7", "annotations": named}
    status = {"nodeInfo": {"bootID": boot}, "conditions": [{"type": "Ready", "status": "True"}]}
    return Node.model_validate({"metadata": metadata, "spec": {"taints": taints}, "status": status})


class TestTheTaint:
    """What is written on nodes."""

    def test_an_admitted_node_loses_our_taint_and_keeps_those_of_others_to_the_letter(self) -> None:
        decision = admit(node(THEIRS, OURS), "boot-2")
        assert decision.change is not None
        patch = decision.change.merge_patch()
        assert patch["spec"] == {"taints": [THEIRS]} or patch["spec"] == {
            "taints": [{"time_added" if key == "timeAdded" else key: value for key, value in THEIRS.items()}]
        }
        assert patch["metadata"] == {
            "resourceVersion": "7",
            "annotations": {names.ANNOTATION_ADMITTED: "boot-2"},
        }

    def test_it_is_admitted_once(self) -> None:
        decision = admit(node(THEIRS, admitted_boot="boot-2"), "boot-2")
        assert (decision.change, decision.why_not) == (None, "")

    @pytest.mark.parametrize(
        ("changed", "word"),
        [(node(OURS, boot="boot-3"), "boot-3"), (node(OURS, incident="incident-lab-i-1"), "has this node")],
        ids=["rebooted since", "an incident has it"],
    )
    def test_a_node_that_changed_since_its_validation_is_not_admitted(self, changed: Node, word: str) -> None:
        decision = admit(changed, "boot-2")
        assert decision.change is None
        assert word in decision.why_not

    def test_a_reboot_by_others_brings_the_taint_back(self) -> None:
        decision = hold_back(node(THEIRS, admitted_boot="boot-1"))
        assert decision.held
        assert decision.change is not None
        assert decision.change.taints is not None
        assert [taint.key for taint in decision.change.taints] == ["nvidia.com/gpu", names.TAINT_ADMISSION]

    def test_a_taint_that_somebody_takes_away_in_the_same_boot_stays_away_until_the_next(self) -> None:
        decision = hold_back(node(admitted_boot="boot-1"))
        assert decision.change is not None
        assert decision.change.annotations == {names.ANNOTATION_HELD_BOOT: "boot-2"}
        ordered = node(admitted_boot="boot-1", held_boot="boot-2")
        assert hold_back(ordered) == HoldDecision()
        assert not admission.needs_taint(read_node(ordered, NOW), ON)
        rebooted = node(admitted_boot="boot-1", held_boot="boot-2", boot="boot-3")
        assert hold_back(rebooted).held
        assert admission.needs_taint(read_node(rebooted, NOW), ON)

    def test_the_note_of_a_taint_that_was_put_back_goes_with_it(self) -> None:
        decision = admit(node(OURS, admitted_boot="boot-1", held_boot="boot-2"), "boot-2")
        assert decision.change is not None
        assert decision.change.annotations == {names.ANNOTATION_ADMITTED: "boot-2", names.ANNOTATION_HELD_BOOT: None}

    @pytest.mark.parametrize(
        "other",
        [
            node(),
            node(admitted_boot="boot-2"),
            node(boot="", admitted_boot="boot-1"),
            node(admitted_boot="boot-1", incident="incident-lab-i-1"),
        ],
        ids=["never admitted", "the same boot", "no boot id", "our own reboot"],
    )
    def test_no_other_node_is_ever_tainted_by_us(self, other: Node) -> None:
        assert hold_back(other).change is None

    def test_only_a_node_that_worked_before_counts_as_held_back(self) -> None:
        assert held_back(node(OURS, admitted_boot="boot-1"))
        assert not held_back(node(OURS))

    def test_an_incident_that_verified_the_node_spares_it_another_admission(self) -> None:
        marked = node(admitted_boot="boot-1", incident="incident-lab-i-1")
        decision = release(marked, "incident-lab-i-1", keep_cordon=False, verified_boot="boot-2")
        assert decision.change is not None
        assert decision.change.annotations[names.ANNOTATION_ADMITTED] == "boot-2"

    @pytest.mark.parametrize("verified", ["", "boot-1"], ids=["not verified", "of another boot"])
    def test_an_incident_that_did_not_verify_this_boot_says_nothing_of_it(self, verified: str) -> None:
        marked = node(admitted_boot="boot-1", incident="incident-lab-i-1")
        decision = release(marked, "incident-lab-i-1", keep_cordon=False, verified_boot=verified)
        assert decision.change is not None
        assert names.ANNOTATION_ADMITTED not in decision.change.annotations

    def test_an_incident_enrols_no_node_and_leaves_the_startup_taint(self) -> None:
        marked = node(OURS, incident="incident-lab-i-1")
        decision = release(marked, "incident-lab-i-1", keep_cordon=False, verified_boot="boot-2")
        assert decision.change is not None
        assert names.ANNOTATION_ADMITTED not in decision.change.annotations
        assert decision.change.taints is None

    def test_a_tainted_node_is_ours_takes_no_work_and_succeeds_nobody(self) -> None:
        waiting = node(OURS)
        assert concerns_us(waiting)
        assert read_node(waiting, NOW).admission_taint
        assert why_unavailable(waiting) == "it is not admitted yet"
        assert missing_to_serve(waiting, 0) == "it is not admitted yet"
        assert missing_to_serve(node(), 0) == ""


class TestTheWatch:
    """When the watch acts."""

    def test_a_foreign_reboot_needs_the_taint_again(self) -> None:
        assert admission.needs_taint(look(admission_taint=False, admitted_boot="boot-1"), ON)

    @pytest.mark.parametrize(
        "values",
        [
            {},
            {"admitted_boot": "boot-2"},
            {"admitted_boot": "boot-1", "boot_id": ""},
            {"admitted_boot": "boot-1", "incident_mark": "incident-lab-i-1"},
            {"admitted_boot": "boot-1", "deleting": True},
            {"admitted_boot": "boot-1", "admission_taint": True},
        ],
    )
    def test_nothing_else_does(self, values: dict[str, Any]) -> None:
        assert not admission.needs_taint(look(**{"admission_taint": False, **values}), ON)

    def test_a_pool_without_admission_is_left_alone(self) -> None:
        assert not admission.needs_taint(look(admission_taint=False, admitted_boot="boot-1"), AdmissionPolicy())

    def test_the_batch_is_bounded(self) -> None:
        assert admission.may_begin(AdmissionPolicy(at_once=2), 1)
        assert not admission.may_begin(AdmissionPolicy(at_once=2), 2)

    @pytest.mark.parametrize(
        ("known", "wait"),
        [
            (KnownAdmission(), timedelta(0)),
            (KnownAdmission(open=True), None),
            (KnownAdmission(closed_at=NOW - timedelta(hours=1)), timedelta(0)),
            (KnownAdmission(closed_at=NOW - timedelta(seconds=20)), timedelta(seconds=40)),
            (KnownAdmission(closed_at=NOW - timedelta(hours=1), left_to_people=True), timedelta(hours=23)),
            (KnownAdmission(closed_at=NOW - timedelta(days=2), left_to_people=True), timedelta(0)),
        ],
        ids=["none yet", "open", "over", "only just over", "left to people", "left to people for long"],
    )
    def test_an_admission_begins_anew_neither_at_once_nor_never(
        self, known: KnownAdmission, wait: timedelta | None
    ) -> None:
        assert admission.begins_in(known, IncidentPolicy(), look(ready_since=NOW - timedelta(days=3)), NOW) == wait

    @pytest.mark.parametrize(
        ("ready", "minutes", "hours"),
        [(Readiness.TRUE, 5, 0), (Readiness.FALSE, 5, 23), (Readiness.TRUE, -5, 23)],
        ids=["it came up anew", "it went down", "a clock that runs ahead"],
    )
    def test_a_node_that_people_have_brought_up_anew_is_validated_at_once(
        self, ready: Readiness, minutes: int, hours: int
    ) -> None:
        left = KnownAdmission(closed_at=NOW - timedelta(hours=1), left_to_people=True)
        seen = look(ready=ready, ready_since=NOW - timedelta(minutes=minutes))
        assert admission.begins_in(left, IncidentPolicy(), seen, NOW) == timedelta(hours=hours)

    def test_what_an_admission_found_is_not_cleared_by_an_agent_at_rest(self) -> None:
        gpu = Component(kind=ComponentKind.GPU, id="0000:61:00")
        found = (fault_of("gpu-lost", gpu, boot_id="boot-2"), fault_of(admission.OVERDUE, gpu, boot_id="boot-2"))
        assert gone_codes(found, look()) == ()
        assert gone_codes(found, look(admission_taint=False)) == (admission.OVERDUE, "gpu-lost")
        assert gone_codes(found, look(boot_id="boot-3")) == (admission.OVERDUE, "gpu-lost")


class TestTheJudgement:
    """What a pass means."""

    def test_a_well_node_passes(self) -> None:
        assert admission.judge(look(), probe(), 8).passed

    def test_a_fault_that_asks_for_a_repair_is_one(self) -> None:
        trouble = fault_of("gpu-lost", Component(kind=ComponentKind.GPU, id="0000:61:00"))
        assert admission.judge(look(), probe(faults=(trouble,)), 8).faults == (trouble,)

    @pytest.mark.parametrize(
        ("snapshot", "passed"),
        [
            (look(gpu_allocatable=7), probe()),
            (look(ready=Readiness.UNKNOWN), probe()),
            (look(conditions_fresh=False), probe()),
            (look(conditions_healthy=False), probe()),
            (look(mig_config="all-1g.10gb"), probe()),
            (look(), probe(7)),
            (look(), probe(gpus_answered=False)),
            (look(), probe(checks_unknown=("dcgm-health",))),
            (look(), probe(boot_id="boot-1")),
        ],
    )
    def test_what_is_not_known_to_be_well_is_waited_for(self, snapshot: NodeSnapshot, passed: HostProbe) -> None:
        finding = admission.judge(snapshot, passed, 8)
        assert finding.missing
        assert not finding.faults

    @given(
        snapshot=st.builds(
            look,
            ready=st.sampled_from(Readiness),
            gpu_allocatable=st.integers(0, 9),
            mig_config=st.sampled_from(["", "all-balanced"]),
            mig_state=st.sampled_from(["", "success", "pending", "rebooting", "failed", "Success"]),
            conditions_fresh=st.booleans(),
            conditions_healthy=st.booleans(),
        ),
        seen=st.builds(
            probe,
            gpus=st.integers(0, 9),
            gpus_answered=st.booleans(),
            checks_unknown=st.sampled_from([(), ("nvml",)]),
            boot_id=st.sampled_from(["boot-1", "boot-2", ""]),
        ),
        expected=st.integers(1, 8),
    )
    def test_no_node_passes_with_anything_missing(self, snapshot: NodeSnapshot, seen: HostProbe, expected: int) -> None:
        """Whatever is wrong or not known, it is no pass; and every pass has all that it must have."""
        whole = (
            snapshot.ready is Readiness.TRUE
            and snapshot.gpu_allocatable >= max(8, expected)
            and (not snapshot.mig_config or snapshot.mig_state == "success")
            and snapshot.conditions_fresh
            and snapshot.conditions_healthy
            and len(seen.gpus) >= expected
            and seen.gpus_answered
            and not seen.checks_unknown
            and seen.boot_id == snapshot.boot_id
        )
        assert admission.judge(snapshot, seen, expected).passed == whole

    @pytest.mark.parametrize(
        ("policy", "snapshot", "told", "expected"),
        [
            (AdmissionPolicy(gpus=4), look(gpus_promised=8), 8, 4),
            (ON, look(gpus_promised=8, gpu_capacity=7), 6, 8),
            (ON, look(gpu_capacity=7), 8, 8),
            (ON, look(gpu_capacity=7), None, 7),
            (ON, look(gpu_capacity=56, gpu_devices=8), None, 8),
            (ON, look(gpu_capacity=0, gpu_allocatable=0), None, 1),
        ],
        ids=["the policy", "the label", "the agent", "the kubelet", "where it is cut", "nobody: at least one"],
    )
    def test_who_says_how_many_gpus_there_must_be(
        self, policy: AdmissionPolicy, snapshot: NodeSnapshot, told: int | None, expected: int
    ) -> None:
        assert admission.expected_gpus(policy, snapshot, told) == expected

    def test_a_mig_layout_that_was_given_up_is_for_a_person_and_no_hardware_step(self) -> None:
        (trouble,) = admission.layout_faults(NODE, look(mig_config="all-1g.10gb", mig_state="failed"))
        assert (trouble.code, trouble.rung) == ("mig-layout-failed", Rung.HUMAN)
        assert admission.layout_faults(NODE, look(mig_state="failed")) == ()

    def test_at_the_deadline_the_nodes_own_faults_go_before_a_missing_gpu_and_that_before_a_person(self) -> None:
        """detection 8.14: seven of eight GPUs, and one that never comes, are a fault after a bounded wait."""
        trouble = fault_of("gpu-lost", Component(kind=ComponentKind.GPU, id="0000:61:00"))
        late = ("7 of 8 GPUs are allocatable",)
        assert admission.overdue_faults(NODE, look(), probe(7, faults=(trouble,)), 8, late) == (trouble,)
        (missing,) = admission.overdue_faults(NODE, look(), probe(7), 8, late)
        assert (missing.code, missing.component.id, missing.rung) == ("gpu-missing", "unknown", Rung.REBOOT)
        for seen in (None, probe(8), probe(0, gpus_answered=False)):
            (overdue,) = admission.overdue_faults(NODE, look(), seen, 8, late)
            assert (overdue.code, overdue.rung) == ("admission-overdue", Rung.HUMAN)
            assert late[0] in overdue.evidence[0]

    def test_a_kubelet_that_never_became_ready_is_a_fault_by_its_own_rung_at_the_deadline(self) -> None:
        host = Component(kind=ComponentKind.HOST, id="n1")
        silent, agent = fault_of("node-not-ready", host), fault_of("agent-missing", host)
        seen = look(faults=(silent, agent))
        assert admission.overdue_faults(NODE, seen, None, 8, ("Ready is False",)) == (silent, agent)
        found = admission.overdue_faults(NODE, look(faults=(agent,)), None, 8, ("no agent",))
        assert [fault.code for fault in found] == ["agent-missing", "admission-overdue"]

    def test_a_node_that_still_boots_is_its_admissions_affair_and_no_incidents(self) -> None:
        host = Component(kind=ComponentKind.HOST, id="n1")
        booting = look(ready=Readiness.FALSE, faults=(fault_of("node-not-ready", host),))

        def planned(snapshot: NodeSnapshot, enabled: bool) -> bool:
            absent = KnownIncident(standing=Standing.ABSENT)
            rules = TriageRules(settle=timedelta(0))
            policy = IncidentPolicy(admission=AdmissionPolicy(enabled=enabled))
            seen = Look(snapshot=snapshot, incident_id="i", incident=absent, policy=policy, rules=rules, now=NOW)
            return plan(seen).opens

        assert not planned(booting, enabled=True)
        assert planned(booting, enabled=False)
        assert planned(booting.model_copy(update={"admission_taint": False}), enabled=True)

    def test_a_node_that_was_only_late_may_come_by_itself(self) -> None:
        late = admission.overdue_faults(NODE, look(), None, 8, ("Ready is Unknown",))
        assert admission.passed_after_all(AdmissionState(round_began=NOW, faults=late), look(), 8) == (
            admission.OVERDUE,
        )
        assert not admission.passed_after_all(AdmissionState(round_began=NOW, faults=late), look(gpu_allocatable=1), 8)
        assert not admission.passed_after_all(AdmissionState(round_began=NOW), look(), 8)
