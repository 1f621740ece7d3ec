"""The verdict on every public log in the shared cases, by file name; what each must lead to is in its first line."""

from pathlib import Path
from typing import NamedTuple

import pytest

from sickbay.diagnosis import diagnose
from sickbay.faults import Fault, FaultClass, Rung
from sickbay.kernel_log import KernelLogScanner, scan
from sickbay.kernel_log.stream import feed_stream

CASES = Path(__file__).parents[3] / "shared" / "cases" / "kernel-logs"

pytestmark = pytest.mark.skipif(not CASES.is_dir(), reason="the shared cases lie beside a checkout, not in it")


class Expected(NamedTuple):
    fault_class: FaultClass
    rung: Rung
    parts: tuple[str, ...]


def gpus(fault_class: FaultClass, rung: Rung, *addresses: str) -> Expected:
    return Expected(fault_class, rung, tuple(f"gpu {address}" for address in addresses))


C, R = FaultClass, Rung
VERDICTS = {
    "01-fallen-off-bus-probe-no-xid.log": gpus(C.GPU, R.REBOOT, "0000:b3:00"),
    "02-xid79-with-sxid-storm.log": gpus(C.GPU, R.REBOOT, "0000:91:00"),
    "04-xid-43-31-94-ctime.log": gpus(C.APPLICATION, R.NONE, "0000:00:05", "0000:00:07", "0000:00:08"),
    "05-xid-13-burst-then-109.log": gpus(C.GPU, R.RESET_GPU, "0000:cb:00"),
    "07-xid119-gsp-new-format.log": gpus(C.GPU, R.RESET_GPU, "0002:00:00"),
    "09-xid45-caused-by-149-145.log": gpus(C.FABRIC, R.REBOOT, "0000:97:00", "0000:ba:00", "0000:dc:00", "0000:ed:00"),
    "10-nvlink5-severity-tokens.log": gpus(C.FABRIC, R.RESET_GPU, "0000:00:00", "0019:01:00"),
    "12-xid149-154-recovery-action-gb200.log": gpus(
        C.FABRIC, R.RESET_GPU, "0008:01:00", "0009:01:00", "0018:01:00", "0019:01:00"
    ),
    "13-rminitadapter-failed-vm.log": gpus(C.GPU, R.REBOOT, "0000:04:01", "0000:04:02"),
    "14-dbe-page-retirement-fail-and-init-fail.log": gpus(C.GPU, R.REPLACE, "0000:07:00", "0000:0a:00"),
    "16-xid45-then-hung-task.log": gpus(C.DRIVER, R.REBOOT, "0000:61:00"),
    "17-hung-task-inside-nvidia-module.log": Expected(C.DRIVER, R.REBOOT, ("driver nvidia",)),
    "19-xid31-62-45-sequence.log": gpus(C.GPU, R.RESET_GPU, "0000:0a:00"),
    "23-modeset-and-reset-required.log": gpus(C.GPU, R.RESET_GPU, "unknown"),
    "24-reset-required-without-xid.log": gpus(C.GPU, R.RESET_GPU, "unknown"),
    "25-sxid-nonfatal-12028.log": Expected(C.WATCH, R.NONE, ("nvswitch 0000:05:00", "nvswitch 0000:84:00")),
    "26-fabricmanager-log.log": Expected(C.FABRIC, R.REBOOT, ("nvswitch 0000:86:00",)),
    "27-aer-fatal-root-port.log": gpus(C.GPU, R.REBOOT, "0000:03:00"),
    "31-nvme-timeout-io-error.log": Expected(C.STORAGE, R.BLOCK_NEW_WORK, ("disk nvme0", "disk nvme0n1", "disk nvme1")),
    "32-nvme-disabled-raid-fs-readonly.log": Expected(
        C.STORAGE, R.REPLACE, ("disk dm-0", "disk md0", "disk nvme0n1", "disk nvme4")
    ),
    "34-gcm-syslog-io-linkflap-xid.log": gpus(C.GPU, R.RESET_GPU, "000d:00:00"),
    "35-mce-edac-ue.log": Expected(C.HOST, R.REPLACE, ("memory CPU_SrcID#1_MC#1_Chan#2_DIMM#0",)),
    "37-kmsg-raw-peermem-flood.log": Expected(C.WATCH, R.NONE, ("driver nvidia",)),
    "38-mlx5-power-cable-accessreg.log": Expected(C.NETWORK, R.BLOCK_NEW_WORK, ("nic 0000:5c:00.0",)),
    "39-mig-contained-uncontained.log": gpus(C.GPU, R.RESET_GPU, "0000:01:00"),
    "40-nvlink-post-rx-detect.log": Expected(C.FABRIC, R.BLOCK_NEW_WORK, ("nvlink unknown",)),
    "41-soft-lockup-and-nccl-segv.log": Expected(C.WATCH, R.NONE, ("host host",)),
    "42-oom-killer.log": Expected(C.APPLICATION, R.NONE, ("host host",)),
    "44-benign-nvrm-noise.log": Expected(C.NONE, R.NONE, ()),
    "45-malformed-xid-lines.log": gpus(C.GPU, R.REBOOT, "0000:18:00", "0018:01:00"),
    "46-neuron-hw-err.log": Expected(C.GPU, R.REPLACE, ("accelerator unknown",)),
}


def read(name: str) -> list[bytes]:
    return [line for line in (CASES / name).read_bytes().splitlines() if not line.startswith(b"#")]


@pytest.mark.parametrize("name", VERDICTS)
def test_each_case_leads_to_its_verdict(name: str) -> None:
    verdict = diagnose(scan(read(name)))
    parts = tuple(f"{part.kind} {part.id}" for part in verdict.components)
    assert Expected(verdict.fault_class, verdict.rung, parts) == VERDICTS[name]


@pytest.mark.parametrize("name", VERDICTS)
def test_the_quick_way_through_a_file_finds_what_reading_each_line_finds(name: str) -> None:
    scanner = KernelLogScanner()
    with (CASES / name).open("rb") as log:
        feed_stream(log, scanner)
    assert scanner.faults() == scan(read(name))


def test_every_case_has_an_expected_verdict() -> None:
    assert {path.name for path in CASES.iterdir()} == set(VERDICTS)


def find(name: str, code: str) -> list[Fault]:
    return [fault for fault in scan(read(name)) if fault.code == code]


def test_the_uuid_and_serial_of_a_lost_gpu_are_in_its_evidence() -> None:
    (fault,) = find("02-xid79-with-sxid-storm.log", "xid-79")
    assert any("GPU at PCI:0000:91:00: GPU-" in line for line in fault.evidence)
    assert any("Serial Number" in line for line in fault.evidence)


def test_follow_up_lines_of_a_switch_error_do_not_count_again() -> None:
    counts = {fault.component.id: fault.count for fault in find("02-xid79-with-sxid-storm.log", "sxid-20034")}
    assert counts == {"0000:06:00": 1, "0000:05:00": 2, "0000:07:00": 1}


def test_a_repeated_message_counts_as_often_as_it_says() -> None:
    (fault,) = find("32-nvme-disabled-raid-fs-readonly.log", "nvme-path-lost")
    assert fault.count == 10


def test_a_flood_of_one_harmless_line_is_one_fault() -> None:
    (fault,) = scan(read("37-kmsg-raw-peermem-flood.log"))
    assert fault.count == 7


def test_the_recovery_action_is_no_fault_of_its_own_where_its_cause_is_in_the_log() -> None:
    faults = scan(read("12-xid149-154-recovery-action-gb200.log"))
    assert not [fault for fault in faults if fault.code == "xid-154"]
    alone = {fault.component.id for fault in faults if fault.code == "gpu-recovery-action"}
    assert alone == {"0018:01:00", "0019:01:00"}
