from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sickbay.catalogue import fault_of
from sickbay.conditions import FaultsAnnotation
from sickbay.faults import Component, ComponentKind, Fault
from sickbay.names import CONDITION_FABRIC, CONDITION_GPU, CONDITION_HOST, CONDITION_NETWORK, CONDITIONS
from sickbay.node_conditions import BlindCheck, ConditionStatus, NodeCondition, bounded, node_conditions


def fault(code: str, kind: ComponentKind = ComponentKind.GPU, name: str = "0000:61:00") -> Fault:
    return fault_of(code, Component(kind=kind, id=name), boot_id="boot-1", evidence=(f"a line of {code}",))


BLIND = {
    "nvml": BlindCheck(name="nvml", judges=(ComponentKind.GPU,), why="no answer in time"),
    "kernel-log": BlindCheck(name="kernel-log", judges=tuple(ComponentKind)),
    "efa": BlindCheck(name="efa", judges=(ComponentKind.NIC,), since=datetime(2026, 11, 30, 12, 5, tzinfo=UTC)),
    "processes": BlindCheck(name="processes", judges=(ComponentKind.DRIVER, ComponentKind.HOST)),
}


def conditions(*faults: Fault, unknown: tuple[str, ...] = ()) -> dict[str, NodeCondition]:
    blind = tuple(BLIND[name] for name in unknown)
    return {condition.type: condition for condition in node_conditions(faults, blind)}


def bad(*faults: Fault, unknown: tuple[str, ...] = ()) -> list[str]:
    return [name for name, condition in conditions(*faults, unknown=unknown).items() if condition.status != "True"]


def test_a_node_without_faults_is_good_in_every_respect() -> None:
    assert {condition.status for condition in conditions().values()} == {ConditionStatus.TRUE}
    assert tuple(conditions()) == CONDITIONS


@pytest.mark.parametrize(
    ("found", "condition"),
    [
        (fault("xid-79"), CONDITION_GPU),
        (fault("driver-hung", ComponentKind.DRIVER, "nvidia"), CONDITION_GPU),
        (fault("neuron-dma-error", ComponentKind.ACCELERATOR, "nd0"), CONDITION_GPU),
        (fault("nvlink-training-failed", ComponentKind.NVLINK, "0000:61:00/4"), CONDITION_FABRIC),
        (fault("sxid-24004", ComponentKind.NVSWITCH, "0000:06:00"), CONDITION_FABRIC),
        (fault("nic-failed", ComponentKind.NIC, "0000:a0:00"), CONDITION_NETWORK),
        (fault("host-memory-uncorrected", ComponentKind.MEMORY, "dimm0"), CONDITION_HOST),
        (fault("nvme-lost", ComponentKind.DISK, "nvme0"), CONDITION_HOST),
    ],
)
def test_each_fault_makes_its_own_condition_bad_and_no_other(found: Fault, condition: str) -> None:
    assert bad(found) == [condition]
    assert found.code in conditions(found)[condition].message


def test_a_jobs_own_fault_leaves_the_node_healthy_but_is_told() -> None:
    condition = conditions(fault("xid-31"))[CONDITION_GPU]
    assert condition.status is ConditionStatus.TRUE
    assert "xid-31" in condition.message


def test_a_blind_monitor_is_neither_good_nor_bad() -> None:
    silent = fault("nvml-silent", ComponentKind.MONITOR, "nvml")
    assert conditions(silent)[CONDITION_GPU].status is ConditionStatus.UNKNOWN
    assert bad(silent) == [CONDITION_GPU]
    assert bad(unknown=("nvml",)) == [CONDITION_GPU]
    assert bad(unknown=("kernel-log",)) == list(CONDITIONS)


@pytest.mark.parametrize(
    ("check", "unknown"),
    [
        ("nvml", [CONDITION_GPU]),
        ("kernel-log", list(CONDITIONS)),
        ("efa", [CONDITION_NETWORK]),
        ("processes", [CONDITION_GPU, CONDITION_HOST]),
    ],
)
def test_a_check_that_cannot_judge_leaves_open_what_it_judges_and_nothing_else(check: str, unknown: list[str]) -> None:
    assert bad(unknown=(check,)) == unknown
    silent = fault("check-silent", ComponentKind.MONITOR, check)
    assert bad(silent, unknown=(check,)) == unknown


def test_a_message_tells_what_is_wrong_and_since_when() -> None:
    since = datetime(2026, 11, 30, 11, 58, tzinfo=UTC)
    dated = fault("xid-79").model_copy(update={"first_seen": since})
    early = fault("xid-119").model_copy(update={"first_seen": 12.5})
    message = conditions(dated, early)[CONDITION_GPU].message
    assert "xid-79 on gpu 0000:61:00 since 2026-11-30 11:58 UTC" in message
    assert "xid-119 on gpu 0000:61:00 since 12 s after the boot" in message
    assert conditions(unknown=("efa",))[CONDITION_NETWORK].message == "cannot judge: efa since 2026-11-30 12:05 UTC"
    assert conditions(unknown=("nvml",))[CONDITION_GPU].message == "cannot judge: nvml (no answer in time)"


def test_a_fault_outranks_a_blind_monitor() -> None:
    assert conditions(fault("xid-79"), unknown=("nvml",))[CONDITION_GPU].status is ConditionStatus.FALSE


def test_the_reason_is_the_strongest_fault_in_one_word() -> None:
    condition = conditions(fault("xid-119"), fault("row-remap-failed"))[CONDITION_GPU]
    assert condition.reason == "RowRemapFailed"
    assert condition.message.startswith("row-remap-failed on gpu 0000:61:00; xid-119")


FAULTS = st.builds(
    lambda code, name, count: fault(code, name=name).model_copy(update={"count": count, "evidence": ("x" * 5000,) * 5}),
    st.sampled_from(["xid-79", "xid-31", "nvml-silent", "sxid-20034", "xid-9999"]),
    st.text(max_size=300),
    st.integers(1, 10**9),
)


@given(st.lists(FAULTS, max_size=200))
def test_however_many_faults_there_are_what_is_published_stays_small(faults: list[Fault]) -> None:
    assert all(len(condition.message) <= 1024 for condition in node_conditions(faults, ()))
    kept = bounded(tuple(faults))
    assert len(kept) <= 64
    assert all(len(line) <= 240 for one in kept for line in one.evidence)
    if faults:
        assert kept[0].rung.strength == max(one.rung.strength for one in faults)


def test_the_annotation_can_be_read_back() -> None:
    report = FaultsAnnotation.model_validate(
        {"boot_id": "boot-1", "reported_at": "2026-11-30T12:00:00Z", "faults": bounded((fault("xid-79"),))}
    )
    assert FaultsAnnotation.model_validate_json(report.model_dump_json(exclude_defaults=True)) == report
