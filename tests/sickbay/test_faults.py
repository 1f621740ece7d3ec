from sickbay.catalogue import fault_of
from sickbay.faults import (
    EVIDENCE_LINES_KEPT,
    Component,
    ComponentKind,
    Fault,
    Rung,
    Workload,
    merge_faults,
    strongest,
)

GPU = Component(kind=ComponentKind.GPU, id="0000:61:00")


def test_rungs_grow_stronger_in_the_order_of_the_ladder() -> None:
    assert strongest([Rung.REBOOT, Rung.NONE, Rung.RESET_GPU]) is Rung.REBOOT
    assert strongest([]) is Rung.NONE


def test_a_repeat_counts_up_and_keeps_the_first_moment_and_the_first_lines() -> None:
    lines = tuple(f"line {number}" for number in range(EVIDENCE_LINES_KEPT))
    first = fault_of("xid-31", GPU, seen=1.0, evidence=lines)
    later = fault_of("xid-31", GPU, seen=9.0, evidence=("late",))
    (merged,) = merge_faults([first], [later])
    assert (merged.count, merged.first_seen, merged.last_seen, merged.evidence) == (2, 1.0, 9.0, lines)


def test_the_same_code_in_another_boot_or_part_is_another_fault() -> None:
    other_part = Component(kind=ComponentKind.GPU, id="0000:62:00")
    faults = [
        fault_of("xid-79", GPU, boot_id="a"),
        fault_of("xid-79", GPU, boot_id="b"),
        fault_of("xid-79", other_part),
    ]
    assert len(merge_faults([], faults)) == 3


def test_a_rung_that_rose_with_the_driver_verdict_stays_up() -> None:
    raised = fault_of("xid-31", GPU).model_copy(update={"rung": Rung.REBOOT})
    plain = fault_of("xid-31", GPU)
    assert merge_faults([plain], [raised])[0].rung is Rung.REBOOT
    assert merge_faults([raised], [plain])[0].rung is Rung.REBOOT


def test_workloads_of_repeats_are_joined() -> None:
    def hit(pid: int) -> Fault:
        return fault_of("xid-31", GPU).model_copy(update={"workloads": (Workload(name="train", pid=pid),)})

    (merged,) = merge_faults([hit(1)], [hit(2), hit(1)])
    assert [workload.pid for workload in merged.workloads] == [1, 2]
