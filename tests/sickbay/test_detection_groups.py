"""The groups of facts on detection, 8, that the kernel log and the ladder answer, each by its number.

The other groups are where their layers are: `grep -rn 'detection 8\\.' tests`.
"""

from datetime import UTC, datetime

import pytest

from sickbay.diagnosis import diagnose
from sickbay.faults import Fault, FaultClass, Rung
from sickbay.incident import Intent
from sickbay.kernel_log import KernelLogScanner, scan
from sickbay.ladder import next_step
from sickbay.policy.model import IncidentPolicy

LOST_AT_PROBE = (
    "NVRM: The NVIDIA GPU 0000:9a:00.0",
    "NVRM: (PCI ID: 10de:2330) installed in this system has",
    "NVRM: fallen off the bus and is not responding to commands.",
)


def stamped(*lines: str, start: float = 30.0) -> list[str]:
    return [f"[{start + number:12.6f}] {line}" for number, line in enumerate(lines)]


def found(faults: tuple[Fault, ...]) -> dict[tuple[str, str], Rung]:
    return {(fault.code, fault.component.id): fault.rung for fault in faults}


def test_a_gpu_lost_at_probe_prints_no_xid_and_is_found() -> None:
    """Detection 8.1: three journal entries."""
    assert found(scan(stamped(*LOST_AT_PROBE))) == {("gpu-lost", "0000:9a:00"): Rung.REBOOT}


@pytest.mark.parametrize("escaped", ["\\x0a", "\\n"])
def test_the_same_words_in_one_record_are_one_fault(escaped: str) -> None:
    """Detection 8.2: one kmsg record with its line breaks escaped."""
    record = f"4,812,31000000,-;{escaped.join(LOST_AT_PROBE)}"
    (fault,) = scan([record])
    assert (fault.code, fault.component.id, fault.count) == ("gpu-lost", "0000:9a:00", 1)


def test_two_gpus_of_one_log_are_told_apart_and_each_asks_for_its_own_rung() -> None:
    """Detection 8.3: initialisation fails again and again on one GPU, memory dies on another."""
    log = stamped(
        *("NVRM: GPU 0000:1b:00.0: RmInitAdapter failed! (0x24:0x72:1568)",) * 3,
        "NVRM: Xid (PCI:0000:c3:00): 48, pid='<unknown>', name=<unknown>, An uncorrectable double bit error",
        "NVRM: Xid (PCI:0000:c3:00): 64, pid='<unknown>', name=<unknown>, Row Remapper: failed",
    )
    faults = found(scan(log))
    assert faults["gpu-init-failed", "0000:1b:00"] is Rung.REBOOT
    assert faults["xid-48", "0000:c3:00"] is Rung.RESET_GPU
    assert faults["xid-64", "0000:c3:00"] is Rung.REPLACE
    assert diagnose(scan(log)).rung is Rung.REPLACE


def test_a_file_system_that_turned_read_only_is_found_however_the_disk_is_named() -> None:
    """Detection 8.19: node-problem-detector's own pattern missed newer kernels' words."""
    log = stamped("EXT4-fs error (device nvme2n1p1): ext4_journal_check_start:83: Detected aborted journal")
    log += stamped("EXT4-fs (nvme2n1p1): Remounting filesystem read-only", start=60)
    assert "filesystem-readonly" in {fault.code for fault in scan(log)}


def test_an_xid_of_an_earlier_boot_is_no_fault_of_this_one() -> None:
    """Detection 8.21: a search of the whole syslog kept nodes drained until it was rotated."""
    line = "NVRM: Xid (PCI:0000:5d:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
    earlier, this = KernelLogScanner("boot-1"), KernelLogScanner("boot-2")
    earlier.feed(line)
    this.feed("NVRM: loading NVIDIA UNIX x86_64 Kernel Module")
    assert [fault.boot_id for fault in earlier.faults()] == ["boot-1"]
    assert this.faults() == ()


def test_memory_that_fails_again_after_a_reboot_is_replaced_and_not_reset_in_a_loop() -> None:
    """Detection 8.22: the same partition failed two minutes after the reboot."""
    at = datetime(2026, 12, 1, tzinfo=UTC)
    tried = [Intent(rung=rung, attempt=1, recorded_at=at) for rung in (Rung.RESET_GPU, Rung.REBOOT)]
    step = next_step(Rung.RESET_GPU, FaultClass.GPU, tried, IncidentPolicy())
    assert (step.rung, step.attempt) == (Rung.REPLACE, 1)
