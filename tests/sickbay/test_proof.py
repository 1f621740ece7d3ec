"""What proves a rung and what proves health: silence, `unknown` and old news never do."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from sickbay.faults import Component, ComponentKind, Fault, FaultClass, Moment, Rung, Severity
from sickbay.incident import Intent
from sickbay.nodes import GpuReading, HostProbe, NodeSnapshot, Readiness
from sickbay.proof import (
    gpus_of,
    proof_of_reboot,
    proof_of_reset,
    proof_of_stopped_workload,
    relapses,
    verification,
)

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
SICK, WELL = "0000:61:00", "0000:62:00"
UUIDS = ("GPU-1", "GPU-2")


def gpu(number: int, **values: Any) -> GpuReading:
    return GpuReading(uuid=UUIDS[number], pci=(SICK, WELL)[number], **{"recovery_action": "none", **values})


def component(identity: str = SICK, kind: ComponentKind = ComponentKind.GPU) -> Component:
    return Component(kind=kind, id=identity)


INTENT = Intent(
    rung=Rung.RESET_GPU,
    attempt=1,
    recorded_at=NOW,
    boot_id="boot-1",
    gpu_uuids=UUIDS,
    components=(component(),),
    proven_at=NOW,
)
PROBE = HostProbe(observed_at=NOW, boot_id="boot-1", gpus=(gpu(0), gpu(1)), gpus_answered=True, expected_gpus=2)
LOOK = NodeSnapshot(
    observed_at=NOW,
    exists=True,
    boot_id="boot-1",
    ready=Readiness.TRUE,
    gpu_capacity=2,
    gpu_allocatable=2,
    conditions_fresh=True,
    conditions_healthy=True,
)


def fault(code: str, rung: Rung, count: int = 1, last_seen: Moment | None = None) -> Fault:
    return Fault(
        code=code,
        component=component(),
        fault_class=FaultClass.GPU,
        severity=Severity.FATAL,
        rung=rung,
        count=count,
        last_seen=last_seen,
    )


def probe(**values: Any) -> HostProbe:
    return PROBE.model_copy(update=values)


def look(**values: Any) -> NodeSnapshot:
    return LOOK.model_copy(update=values)


# A reset


def test_a_reset_is_proven_by_the_same_gpus_in_the_same_boot_that_ask_for_nothing() -> None:
    assert proof_of_reset(INTENT, PROBE).passed


@pytest.mark.parametrize(
    ("values", "missing"),
    [
        ({"boot_id": "boot-2"}, "somebody rebooted it"),
        ({"gpus_answered": False}, "do not answer"),
        ({"gpus": (gpu(0),)}, "GPU GPU-2 is missing"),
        ({"gpus": (gpu(0, recovery_action="node_reboot"), gpu(1))}, "still asks for node_reboot"),
        ({"gpus": (gpu(0, remap_pending=True), gpu(1))}, "still pending"),
    ],
)
def test_a_reset_is_not_proven_while_anything_is_missing(values: dict[str, Any], missing: str) -> None:
    assert missing in str(proof_of_reset(INTENT, probe(**values)))


def test_another_gpus_trouble_does_not_disprove_a_reset() -> None:
    assert proof_of_reset(INTENT, probe(gpus=(gpu(0), gpu(1, recovery_action="gpu_reset")))).passed


def test_a_driver_too_old_to_tell_does_not_disprove_a_reset() -> None:
    assert proof_of_reset(INTENT, probe(gpus=(gpu(0, recovery_action="unknown"), gpu(1)))).passed


@pytest.mark.parametrize(
    "components", [(), (component("unknown"),), (component(), component("0", ComponentKind.NVSWITCH))]
)
def test_where_the_faults_name_no_certain_gpu_all_of_them_are_meant(components: tuple[Component, ...]) -> None:
    intent = INTENT.model_copy(update={"components": components})
    assert gpus_of(intent) == ()
    assert not proof_of_reset(intent, probe(gpus=(gpu(0), gpu(1, recovery_action="gpu_reset")))).passed


# A stopped workload


def test_a_workload_is_stopped_when_no_process_holds_the_sick_gpu() -> None:
    assert proof_of_stopped_workload(INTENT, probe(gpus=(gpu(0, process_count=0), gpu(1, process_count=3)))).passed
    assert not proof_of_stopped_workload(INTENT, probe(gpus=(gpu(0, process_count=1), gpu(1)))).passed


def test_gpus_that_do_not_answer_prove_no_stopped_workload() -> None:
    assert not proof_of_stopped_workload(INTENT, probe(gpus_answered=False, gpus=())).passed


# A reboot


def test_a_reboot_is_proven_by_another_boot_that_is_ready() -> None:
    assert proof_of_reboot(INTENT, look(boot_id="boot-2")).passed


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"boot_id": ""},
        {"boot_id": "boot-2", "ready": Readiness.UNKNOWN},
        {"boot_id": "boot-2", "ready": Readiness.FALSE},
    ],
)
def test_neither_an_empty_boot_id_nor_an_unready_node_proves_a_reboot(values: dict[str, Any]) -> None:
    assert not proof_of_reboot(INTENT, look(**values)).passed


# Verification


def test_a_node_is_well_when_every_check_passes() -> None:
    assert verification(LOOK, PROBE, 2).passed


@pytest.mark.parametrize(
    ("of_look", "of_probe", "missing"),
    [
        ({}, {"gpus_answered": False}, "do not answer"),
        ({}, {"gpus": (gpu(0),)}, "1 of 2 GPUs answer"),
        ({}, {"checks_unknown": ("nvml",)}, "check nvml cannot judge"),
        ({}, {"boot_id": "boot-2"}, "different boot ids"),
        ({"ready": Readiness.UNKNOWN}, {}, "Ready is Unknown"),
        ({"gpu_allocatable": 1}, {}, "1 of 2 GPUs are allocatable"),
        ({"gpu_allocatable": 0, "gpu_capacity": 0}, {}, "0 of 2 GPUs are allocatable"),
        ({"conditions_fresh": False}, {}, "has not reported"),
        ({"conditions_healthy": False}, {}, "is not True"),
    ],
)
def test_a_node_is_not_well_while_anything_is_missing_but_may_still_come_right(
    of_look: dict[str, Any], of_probe: dict[str, Any], missing: str
) -> None:
    judgement = verification(look(**of_look), probe(**of_probe), 2)
    assert missing in str(judgement)
    assert not judgement.final


@pytest.mark.parametrize("rung", [Rung.RESET_GPU, Rung.REPLACE, Rung.HUMAN])
def test_an_open_fault_that_asks_for_a_repair_ends_the_verification_at_once(rung: Rung) -> None:
    judgement = verification(LOOK, probe(faults=(fault("xid-79", rung),)), 2)
    assert "xid-79 on 0000:61:00" in str(judgement)
    assert judgement.final


def test_monitor_trouble_keeps_a_node_from_passing_but_may_pass() -> None:
    judgement = verification(LOOK, probe(faults=(fault("nvml-silent", Rung.BLOCK_NEW_WORK),)), 2)
    assert not judgement.passed
    assert not judgement.final


def test_a_fault_that_asks_for_nothing_keeps_no_node_from_passing() -> None:
    assert verification(LOOK, probe(faults=(fault("xid-63", Rung.NONE),)), 2).passed


# Relapses


@pytest.mark.parametrize(
    ("reported", "relapsed"),
    [
        (fault("xid-79", Rung.REBOOT, last_seen=NOW + timedelta(seconds=1)), True),
        (fault("xid-79", Rung.REBOOT, last_seen=NOW), False),
        (fault("xid-79", Rung.REBOOT, count=3, last_seen=NOW - timedelta(hours=1)), False),
        (fault("xid-79", Rung.REBOOT, count=2), False),
        (fault("xid-79", Rung.REBOOT, count=3), True),
        (fault("xid-79", Rung.REBOOT, count=3, last_seen=12.5), True),
        (fault("xid-48", Rung.REBOOT), True),
        (fault("xid-48", Rung.NONE), False),
    ],
)
def test_only_what_arose_after_the_proof_is_a_relapse(reported: Fault, relapsed: bool) -> None:
    known = (fault("xid-79", Rung.REBOOT, count=2),)
    assert bool(relapses(INTENT, known, (reported,))) is relapsed


def test_a_gpu_that_fell_off_while_its_uuids_were_not_known_disproves_its_reset() -> None:
    unknown = INTENT.model_copy(update={"gpu_uuids": ()})
    assert f"GPU {SICK} is missing" in str(proof_of_reset(unknown, probe(gpus=(gpu(1),))))


def test_a_fault_of_the_boot_that_a_reboot_ended_is_no_relapse_by_a_clock_that_runs_ahead() -> None:
    rebooted = INTENT.model_copy(update={"rung": Rung.REBOOT})
    late = fault("xid-79", Rung.REBOOT, last_seen=NOW + timedelta(minutes=5))
    assert not relapses(rebooted, (), (late.model_copy(update={"boot_id": "boot-1"}),))
    assert relapses(rebooted, (), (late.model_copy(update={"boot_id": "boot-2"}),))
