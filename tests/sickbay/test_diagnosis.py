from random import Random

from hypothesis import given
from hypothesis import strategies as st

from sickbay.catalogue import fault_of
from sickbay.diagnosis import diagnose
from sickbay.faults import (
    NOTHING_WRONG,
    Component,
    ComponentKind,
    Fault,
    FaultClass,
    Rung,
    Severity,
    Workload,
)


def gpu(bus: str) -> Component:
    return Component(kind=ComponentKind.GPU, id=f"0000:{bus}:00")


UNKNOWN_GPU = Component(kind=ComponentKind.GPU, id="unknown")
SWITCH = Component(kind=ComponentKind.NVSWITCH, id="0000:c1:00")
PORT = Component(kind=ComponentKind.PCIE, id="0000:60:01.0")


def hit(code: str, component: Component, *workloads: Workload) -> Fault:
    return fault_of(code, component).model_copy(update={"workloads": workloads})


def test_no_fault_is_nothing_wrong() -> None:
    assert diagnose([]) == NOTHING_WRONG


def test_the_strongest_rung_wins_and_all_parts_that_need_repair_are_named() -> None:
    verdict = diagnose([fault_of("xid-31", gpu("61")), fault_of("xid-119", gpu("62")), fault_of("xid-79", gpu("63"))])
    assert (verdict.fault_class, verdict.rung) == (FaultClass.GPU, Rung.REBOOT)
    assert verdict.components == (gpu("62"), gpu("63"))
    assert "xid-79" in verdict.reason


def test_application_faults_stay_the_jobs() -> None:
    verdict = diagnose([fault_of("xid-31", gpu("61")), fault_of("xid-43", gpu("62"))])
    assert (verdict.fault_class, verdict.rung) == (FaultClass.APPLICATION, Rung.NONE)
    assert verdict.components == (gpu("61"), gpu("62"))


def test_an_unknown_code_is_told_to_a_human_and_disturbs_nobody() -> None:
    verdict = diagnose([fault_of("xid-4711", gpu("61"))])
    assert (verdict.fault_class, verdict.rung) == (FaultClass.WATCH, Rung.NONE)
    assert "human" in verdict.reason
    assert "xid-4711" in diagnose([fault_of("xid-4711", gpu("61")), fault_of("xid-79", gpu("62"))]).reason


def test_one_application_fault_over_workloads_of_different_names_makes_the_gpu_suspect() -> None:
    verdict = diagnose([hit("xid-31", gpu("61"), Workload(name="train", pid=1), Workload(name="serve", pid=2))])
    assert (verdict.fault_class, verdict.rung, verdict.components) == (FaultClass.GPU, Rung.RESET_GPU, (gpu("61"),))
    assert "suspect" in verdict.reason


def test_three_workloads_of_one_name_make_the_gpu_suspect_and_two_do_not() -> None:
    workloads = [Workload(name="train", pid=pid) for pid in (1, 2, 3)]
    assert diagnose([hit("xid-31", gpu("61"), *workloads)]).rung is Rung.RESET_GPU
    assert diagnose([hit("xid-31", gpu("61"), *workloads[:2])]).rung is Rung.NONE


def test_clean_ups_never_make_a_suspect() -> None:
    workloads = [Workload(name=name, pid=pid) for pid, name in enumerate("abcde")]
    assert diagnose([hit("xid-45", gpu("61"), *workloads)]).rung is Rung.NONE


def test_switch_errors_beside_a_lost_gpu_are_its_consequence() -> None:
    verdict = diagnose([fault_of("sxid-20034", SWITCH), fault_of("xid-79", gpu("61"))])
    assert (verdict.fault_class, verdict.components) == (FaultClass.GPU, (gpu("61"),))


def test_switch_errors_alone_are_the_fabrics() -> None:
    verdict = diagnose([fault_of("sxid-20034", SWITCH), fault_of("xid-31", gpu("61"))])
    assert (verdict.fault_class, verdict.rung, verdict.components) == (FaultClass.FABRIC, Rung.REBOOT, (SWITCH,))


def test_a_ports_fatal_error_follows_the_gpu_that_lost_its_link() -> None:
    lost = fault_of("pcie-aer-fatal", gpu("61")).model_copy(update={"fault_class": FaultClass.GPU})
    verdict = diagnose([fault_of("pcie-aer-fatal", PORT), lost])
    assert (verdict.fault_class, verdict.components) == (FaultClass.GPU, (gpu("61"),))


def test_a_part_that_no_line_named_is_taken_for_a_named_one_of_its_kind() -> None:
    verdict = diagnose([fault_of("gpu-missing", UNKNOWN_GPU), fault_of("gpu-init-failed", gpu("61"))])
    assert verdict.components == (gpu("61"),)
    assert diagnose([fault_of("gpu-reset-required", UNKNOWN_GPU)]).components == (UNKNOWN_GPU,)


def test_a_bare_recovery_action_takes_the_class_of_the_trouble_beside_it() -> None:
    action = fault_of("gpu-recovery-action", gpu("62")).model_copy(update={"rung": Rung.REBOOT})
    verdict = diagnose([fault_of("xid-149", gpu("61")), action])
    assert (verdict.fault_class, verdict.rung) == (FaultClass.FABRIC, Rung.REBOOT)
    assert verdict.components == (gpu("61"), gpu("62"))
    assert diagnose([action]).fault_class is FaultClass.GPU


CODES = [
    *(
        "xid-13",
        "xid-31",
        "xid-43",
        "xid-45",
        "xid-48",
        "xid-64",
        "xid-79",
        "xid-94",
        "xid-119",
        "xid-149",
        "xid-99999",
    ),
    *("gpu-lost", "gpu-missing", "gpu-recovery-action", "sxid-20034", "sxid-12028", "pcie-aer-fatal", "driver-hung"),
    *("oom-kill", "host-memory-uncorrected", "nvme-lost"),
]
PARTS = st.sampled_from([gpu("61"), gpu("62"), UNKNOWN_GPU, SWITCH, PORT])
WORKLOADS = st.lists(st.builds(Workload, name=st.sampled_from("ab"), pid=st.integers(1, 3)), max_size=4).map(tuple)


@st.composite
def faults(draw: st.DrawFn) -> Fault:
    row = fault_of(draw(st.sampled_from(CODES)), draw(PARTS))
    spoken = {"rung": draw(st.sampled_from(Rung)), "severity": draw(st.sampled_from(Severity))}
    return row.model_copy(update={"workloads": draw(WORKLOADS), **(spoken if draw(st.booleans()) else {})})


@given(st.lists(faults(), max_size=6), st.randoms())
def test_the_order_of_faults_does_not_matter(given_faults: list[Fault], chance: Random) -> None:
    shuffled = list(given_faults)
    chance.shuffle(shuffled)
    assert diagnose(given_faults) == diagnose(shuffled)


@given(st.lists(faults(), max_size=6), faults())
def test_more_faults_never_lower_the_rung(given_faults: list[Fault], another: Fault) -> None:
    assert diagnose([*given_faults, another]).rung.strength >= diagnose(given_faults).rung.strength


@given(st.lists(faults(), min_size=1, max_size=6))
def test_faults_are_never_nothing(given_faults: list[Fault]) -> None:
    verdict = diagnose(given_faults)
    assert verdict.fault_class is not FaultClass.NONE
    assert verdict.components
