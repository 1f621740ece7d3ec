"""What several lines together show, and that no input of any kind or size is too much."""

from io import BytesIO

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sickbay.diagnosis import diagnose
from sickbay.faults import EVIDENCE_LINES_KEPT, Fault, FaultClass, Rung, Severity
from sickbay.kernel_log import KernelLogScanner, scan
from sickbay.kernel_log.entry import EVIDENCE_LENGTH_KEPT
from sickbay.kernel_log.ledger import FAULTS_KEPT
from sickbay.kernel_log.recovery import RecoveryAction, read_recovery_action
from sickbay.kernel_log.stream import CHUNK, NotTextError, feed_stream


def xid(number: int, words: str = "", *, bus: str = "3b", seconds: float = 100.0) -> str:
    return f"[{seconds:12.6f}] NVRM: Xid (PCI:0000:{bus}:00): {number}, {words}"


def action(before: str, after: str, *, bus: str = "3b") -> str:
    return xid(154, f"GPU recovery action changed from {before} to {after}", bus=bus)


NONE, RESET, REBOOT = "0x0 (None)", "0x1 (GPU Reset Required)", "0x2 (Node Reboot Required)"


def by_code(lines: list[str]) -> dict[str, Fault]:
    return {fault.code: fault for fault in scan(lines)}


@pytest.mark.parametrize(
    ("text", "rung"),
    [
        ("0x1 (GPU Reset Required)", Rung.RESET_GPU),
        ("0x2 (Node Reboot Required)", Rung.REBOOT),
        ("0x3 (Drain P2P)", Rung.STOP_WORKLOAD),
        ("0x4 (Drain and Reset)", Rung.RESET_GPU),
        ("0x5 (Recover IMEX Domain)", Rung.HUMAN),
        ("0x2 (Node Re", Rung.REBOOT),
        ("(Node Reboot Required)", Rung.REBOOT),
        ("0x77 (Paint It Green)", Rung.HUMAN),
        ("0x0 (None)", Rung.NONE),
    ],
)
def test_each_recovery_action_has_its_rung(text: str, rung: Rung) -> None:
    read = read_recovery_action(f"GPU recovery action changed from 0xff (Unknown) to {text}")
    assert read is not None
    assert read.rung is rung


@pytest.mark.parametrize("text", ["", "GPU recovery action changed from 0x0 (None) to", "GPU recovery action changed"])
def test_a_recovery_action_that_was_cut_off_is_none_at_all(text: str) -> None:
    assert read_recovery_action(text) is None
    faults = by_code([xid(154, text)])
    assert faults["xid-154"].rung is Rung.NONE


def test_the_recovery_action_raises_the_fault_that_caused_it() -> None:
    faults = by_code([xid(31, "pid=7, name=train, MMU Fault"), action(NONE, REBOOT)])
    fault = faults.pop("xid-31")
    assert not faults
    assert (fault.fault_class, fault.rung, fault.severity) == (FaultClass.GPU, Rung.REBOOT, Severity.FATAL)
    assert "recovery action" in fault.evidence[-1]


def test_the_recovery_action_never_lowers_a_rung() -> None:
    assert by_code([xid(79, "GPU has fallen off the bus."), action(NONE, RESET)])["xid-79"].rung is Rung.REBOOT


def test_a_nonfatal_nvlink_error_that_the_driver_minds_stays_the_fabrics() -> None:
    fault = by_code([xid(145, "RLW_SRC_TRACK Nonfatal XC0"), action(NONE, RESET)])["xid-145"]
    assert (fault.fault_class, fault.rung) == (FaultClass.FABRIC, Rung.RESET_GPU)


def test_a_recovery_action_without_any_fault_is_the_fault() -> None:
    fault = by_code([xid(45, "pid=7, name=train, Ch 1"), action(NONE, RESET)]).pop("gpu-recovery-action")
    assert (fault.fault_class, fault.rung, fault.component.id) == (FaultClass.GPU, Rung.RESET_GPU, "0000:3b:00")


def test_the_latest_recovery_action_of_each_gpu_counts() -> None:
    lines = [action(NONE, RESET), action(NONE, RESET, bus="4b"), action(RESET, REBOOT, bus="4b")]
    rungs = {fault.component.id: fault.rung for fault in scan(lines)}
    assert rungs == {"0000:3b:00": Rung.RESET_GPU, "0000:4b:00": Rung.REBOOT}


def test_a_change_back_to_none_clears_what_the_driver_minded_on_that_gpu() -> None:
    lines = [xid(119, "Timeout"), xid(119, "Timeout", bus="4b"), action(NONE, RESET), action(RESET, NONE)]
    assert [fault.component.id for fault in scan(lines)] == ["0000:4b:00"]


def test_a_change_back_to_none_clears_neither_a_jobs_fault_nor_one_that_no_reset_cures() -> None:
    faults = by_code([xid(31, "MMU Fault"), xid(64, "remap failed"), action(NONE, RESET), action(RESET, NONE)])
    assert {code: fault.rung for code, fault in faults.items()} == {"xid-31": Rung.NONE, "xid-64": Rung.REPLACE}


def test_a_fault_after_the_change_back_to_none_is_open() -> None:
    assert by_code([action(RESET, NONE), xid(119, "Timeout")])["xid-119"].rung is Rung.RESET_GPU


def test_a_clean_up_alone_is_the_jobs_and_beside_a_fault_is_not_told() -> None:
    clean_up = xid(45, "pid=7, name=train, Ch 1")
    assert by_code([clean_up])["xid-45"].fault_class is FaultClass.APPLICATION
    assert set(by_code([xid(62, "2023b230"), clean_up])) == {"xid-62"}


def test_a_clean_up_tells_the_fault_whose_line_is_lost() -> None:
    faults = by_code([xid(45, "pid=7, name=train, Ch 1 caused by previous Xid 145")])
    assert (faults["xid-145"].fault_class, faults["xid-145"].rung) == (FaultClass.FABRIC, Rung.REBOOT)
    assert by_code([xid(45, "Ch 1 caused by previous Xid 31")])["xid-31"].fault_class is FaultClass.APPLICATION


def test_a_clean_up_adds_nothing_to_a_cause_that_is_in_the_log() -> None:
    faults = by_code([xid(145, "RLW Nonfatal XC0"), xid(45, "Ch 1 caused by previous Xid 145")])
    assert set(faults) == {"xid-145"}
    assert (faults["xid-145"].rung, faults["xid-145"].count) == (Rung.NONE, 1)


def test_power_smoothing_that_is_on_again_cancels_that_it_was_off() -> None:
    assert set(by_code([xid(163), xid(162)])) == {"xid-162"}


def test_an_application_fault_that_follows_the_gpu_makes_it_suspect() -> None:
    jobs = [("train", 1), ("serve", 2), ("train", 3)]
    lines = [xid(31, f"pid={pid}, name={name}, MMU", seconds=1000.0 * pid) for name, pid in jobs]
    verdict = diagnose(scan(lines))
    assert (verdict.fault_class, verdict.rung) == (FaultClass.GPU, Rung.RESET_GPU)


def test_a_burst_from_one_job_makes_no_suspect() -> None:
    lines = [xid(31, f"pid={pid}, name=train, MMU", seconds=100.0 + pid) for pid in range(40)]
    (fault,) = scan(lines)
    assert (fault.count, len(fault.workloads)) == (40, 1)
    assert diagnose([fault]).rung is Rung.NONE


def test_comments_are_no_input() -> None:
    assert scan([f"# {xid(79)}"]) == ()


def test_a_boot_id_is_part_of_every_fault() -> None:
    assert scan([xid(79)], boot_id="boot-7")[0].boot_id == "boot-7"


def test_feeding_tells_whether_a_fault_was_seen() -> None:
    scanner = KernelLogScanner()
    assert not scanner.feed("all is well")
    assert scanner.feed(f"all is well\n{xid(79)}\n".encode())


def test_a_flood_of_repeats_keeps_a_few_lines_and_a_count() -> None:
    scanner = KernelLogScanner()
    for number in range(20_000):
        scanner.feed(xid(95, "Uncontained" + "x" * 2000, seconds=float(number)))
    (fault,) = scanner.faults()
    assert (fault.count, fault.first_seen, fault.last_seen) == (20_000, 0.0, 19_999.0)
    assert len(fault.evidence) == EVIDENCE_LINES_KEPT
    assert max(map(len, fault.evidence)) <= EVIDENCE_LENGTH_KEPT


def test_a_flood_of_distinct_faults_keeps_the_worst() -> None:
    scanner = KernelLogScanner()
    for number in range(FAULTS_KEPT + 100):
        scanner.feed(f"NVRM: Xid (PCI:{number:04x}:3b:00): 31, MMU Fault")
    scanner.feed(xid(79))
    scanner.feed(xid(119, bus="4b"))
    faults = scanner.faults()
    assert len(faults) == FAULTS_KEPT
    assert {"xid-79", "xid-119"} <= {fault.code for fault in faults}
    assert scanner.dropped == 100


ANY_LINE = st.one_of(
    st.binary(max_size=200),
    st.builds(
        lambda start, middle, end: start + middle + end,
        st.sampled_from([b"", b"[  1.5] ", b"4,1,2,-;", b"Dec  2 11:38:47 n kernel: ", b"[Wed Jul 31 23:14:18 2024] "]),
        st.sampled_from(
            [
                *(b"NVRM: Xid (PCI:0000:3b:00): 154, GPU recovery action changed from ", b"NVRM: Xid (PCI:"),
                *(b"NVRM: Xid (PCI:0000:3b:00): ", b"nvidia-nvswitch0: SXid (PCI:0000:c1:00.0): ", b"EDAC MC0: 1 UE "),
                *(
                    b"INFO: task x:1 blocked for more than 120 seconds.",
                    b"nvme nvme0: ",
                    b"message repeated 2 times: [",
                ),
                *(b"NVRM: The NVIDIA GPU 0000:3b:00.0", b"PCIe Bus Error: severity=", b"message repeated 2 times: ["),
            ]
        ),
        st.binary(max_size=80),
    ),
)


@given(st.lists(ANY_LINE, max_size=8))
def test_no_bytes_can_make_the_scanner_raise(lines: list[bytes]) -> None:
    diagnose(scan(lines))


@given(st.lists(ANY_LINE, max_size=8))
def test_the_quick_way_finds_what_reading_each_line_finds(lines: list[bytes]) -> None:
    scanner = KernelLogScanner()
    log = b"a log of text\n" * 40 + b"\n".join(lines)
    feed_stream(BytesIO(log), scanner)
    assert scanner.faults() == scan(log.split(b"\n"))


def test_faults_are_found_wherever_they_lie_in_a_large_log() -> None:
    other = b"Dec  2 11:38:47 node-a kubelet[812]: nothing of interest here\n"
    block = other * (CHUNK // len(other) // 2)
    fault = xid(31).encode() + b"\n"
    scanner = KernelLogScanner()
    size = feed_stream(BytesIO((block + fault) * 7 + fault.rstrip()), scanner)
    assert size > 3 * CHUNK
    assert scanner.faults()[0].count == 8


def test_a_line_without_an_end_is_read_in_pieces() -> None:
    scanner = KernelLogScanner()
    feed_stream(BytesIO(b"x" * (3 * CHUNK) + b"\n" + xid(79).encode()), scanner)
    assert [fault.code for fault in scanner.faults()] == ["xid-79"]


def test_the_stack_of_a_hang_is_read_in_a_large_log() -> None:
    other = b"Dec  2 11:38:47 node-a kubelet[812]: nothing of interest here\n" * 1000
    hang = b"INFO: task worker:77 blocked for more than 120 seconds.\n uvm_lock+0x35/0x50 [nvidia_uvm]\n"
    scanner = KernelLogScanner()
    feed_stream(BytesIO(other + hang + other), scanner)
    assert [fault.code for fault in scanner.faults()] == ["hung-task", "driver-hung"]


@pytest.mark.parametrize(
    ("data", "cure"),
    [
        (b"\x1f\x8b\x08\x00" + b"abc" * 50, "zcat"),
        (b"LPKSHHRH" + b"\0" * 50, "journalctl"),
        (b"\x7fELF\x02\x01\x01" + bytes(range(256)) * 4, "dmesg"),
        (b"\0" * 4096, "dmesg"),
    ],
)
def test_what_is_no_text_is_refused_with_a_cure(data: bytes, cure: str) -> None:
    with pytest.raises(NotTextError, match=cure):
        feed_stream(BytesIO(data), KernelLogScanner())


def test_a_log_with_a_run_of_zeros_from_a_crash_is_text() -> None:
    scanner = KernelLogScanner()
    feed_stream(BytesIO(b"\0" * 4096 + xid(79).encode() + b"\n"), scanner)
    assert [fault.code for fault in scanner.faults()] == ["xid-79"]


def test_an_empty_log_has_no_fault() -> None:
    scanner = KernelLogScanner()
    assert feed_stream(BytesIO(), scanner) == 0
    assert scanner.faults() == ()


def test_the_driver_verdict_is_none_only_by_its_own_word() -> None:
    assert [action for action in RecoveryAction if action.rung is Rung.NONE] == [RecoveryAction.NONE]
