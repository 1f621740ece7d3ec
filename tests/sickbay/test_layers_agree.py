"""One trouble of one GPU as each layer sees it: one code, part, class and rung, so that it is one fault."""

from typing import Any

import pytest

from sickbay.catalogue import lookup
from sickbay.checks import CheckMoment, CheckOutcome
from sickbay.dcgm.exporter import judge_page
from sickbay.dcgm.health import judge_health_output
from sickbay.dcgm.live import seen_live, without_absent_links
from sickbay.faults import ComponentKind, Fault, Rung
from sickbay.gpu_readings import EccCounts, RetiredPages, gpu_faults
from sickbay.gpu_readings.events import WEIGHT_IN_LINE, XID_EVENT, NvmlEvent, fault_of_event
from sickbay.kernel_log import scan
from tests.sickbay.dcgm.outputs import health_json, page
from tests.sickbay.gpu_readings.answers import H100, NOW, board, expected, gpu, links, machine, pci
from tests.sickbay.nvidia_smi.judged import judge

GPU = 2
PCI = pci(GPU)


def nvml(**reading: Any) -> tuple[Fault, ...]:
    return gpu_faults(machine(*(gpu(index) for index in range(GPU)), gpu(GPU, **reading)), expected())


def nvml_links() -> tuple[Fault, ...]:
    return gpu_faults(board(links=links(18, down=(2,))), expected())


def dcgm(text: str, system: str = "Memory system") -> tuple[Fault, ...]:
    report = judge_health_output(health_json("Failure", {GPU: {system: ("Failure", text)}}), 0)
    assert report is not None
    moment = CheckMoment(now=NOW, boot_id="boot-1", boot_seen_at=NOW)
    return seen_live(without_absent_links(report, (H100,)), moment, {str(GPU): PCI}).faults


def exporter(family: str, value: str) -> tuple[Fault, ...]:
    name = f"DCGM_FI_DEV_{family}"
    return judge_page(page(changes={(name, GPU): value})).faults


def smi(line: str) -> tuple[Fault, ...]:
    outcome: CheckOutcome = judge(line)
    return outcome.faults


HANDLE = f"Unable to determine the device handle for GPU {PCI}.0: "

TROUBLES = {
    "gpu-lost": (
        nvml(errors=(15,)),
        dcgm(f"GPU {GPU} has fallen off the bus", "Driver"),
        smi(f"{HANDLE}GPU is lost.  Reboot the system to recover this GPU"),
        scan([f"NVRM: GPU {PCI}.0: GPU has fallen off the bus."]),
    ),
    "gpu-reset-required": (nvml(errors=(16,)), smi(f"{HANDLE}GPU requires reset")),
    "gpu-recovery-action": (
        nvml(recovery_action=2),
        exporter("GPU_RECOVERY_ACTION", "2"),
        scan(
            [f"NVRM: Xid (PCI:{PCI}): 154, GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)"]
        ),
    ),
    "ecc-uncorrected": (
        nvml(ecc_volatile=EccCounts(uncorrected=2)),
        exporter("ECC_DBE_VOL_TOTAL", "2"),
        dcgm(f"Detected 2 volatile double-bit ECC errors in GPU {GPU}."),
    ),
    "row-remap-pending": (
        nvml(remap_pending=True),
        exporter("ROW_REMAP_PENDING", "1"),
        dcgm(f"GPU {GPU} has uncorrectable memory errors and row remappings are pending"),
        dcgm(f"GPU {GPU} had uncorrectable memory errors and 3 rows were remapped"),
    ),
    "row-remap-failed": (
        nvml(remap_failed=True),
        exporter("ROW_REMAP_FAILURE", "1"),
        dcgm(f"GPU {GPU} had uncorrectable memory errors and row remapping failed."),
    ),
    "row-remap-exhausted": (nvml(remapped_uncorrectable=512), exporter("UNCORRECTABLE_REMAPPED_ROWS", "512")),
    "page-retirement-pending": (
        nvml(retired_pages=RetiredPages(pending=True)),
        exporter("RETIRED_PENDING", "1"),
        dcgm(f"A pending retired page has been detected in GPU {GPU}."),
    ),
    "inforom-corrupted": (
        nvml(errors=(14,)),
        dcgm(f"A corrupt InfoROM has been detected in GPU {GPU}.", "InfoROM system"),
        smi(f"WARNING: infoROM is corrupted at gpu {PCI}.0"),
    ),
    "nvlink-down": (nvml_links(), dcgm(f"GPU {GPU}'s NvLink link 2 is currently down", "NVLINK system")),
}


@pytest.mark.parametrize("code", TROUBLES)
def test_one_trouble_is_one_fault_whoever_tells_it(code: str) -> None:
    told = TROUBLES[code]
    assert all(len(faults) == 1 for faults in told)
    (faults, *_) = zip(*told, strict=True)
    assert {(fault.code, fault.component.id) for fault in faults} == {(code, PCI)}
    assert len({(fault.component.kind, fault.fault_class, fault.rung) for fault in faults}) == 1


@pytest.mark.parametrize("xid", sorted(WEIGHT_IN_LINE))
def test_an_xid_of_nvlink_disturbs_nobody_until_its_line_is_read(xid: int) -> None:
    """detection 8.6: its line may say nonfatal, which neither an event nor DCGM tells."""
    event = fault_of_event(NvmlEvent(type=XID_EVENT, data=xid, pci=PCI), "boot-1", NOW)
    assert event is not None
    (told,) = dcgm(f"Detected XID {xid} for GPU {GPU}", "NVLINK system")
    assert {event.rung, told.rung} == {Rung.NONE}


def test_what_a_monitor_lacks_and_software_that_does_not_fit_never_disrupts() -> None:
    """Design, 3.1: monitor trouble blocks new work at most, and no step on hardware cures software."""
    codes = ("check-silent", "nvml-silent", "kernel-log-silent", "gpu-not-answering", "monitor-silent", "agent-missing")
    assert all(lookup(code).rung in (Rung.NONE, Rung.BLOCK_NEW_WORK) for code in codes)
    software = ("driver-mismatch", "driver-not-loaded", "driver-module-missing", "cuda-unusable", "dcgm-software")
    assert all(lookup(code).fault_class == "driver" and not lookup(code).rung.disrupts for code in software)


def test_numbers_that_only_counted_up_end_no_work() -> None:
    """The same growth of the same counters, by NVML, DCGM and adapters: told, or new work is blocked."""
    counted = ("nvlink-errors", "dcgm-nvlink-errors", "dcgm-nvlink-counts", "ecc-corrected-many", "nic-errors")
    assert not any(lookup(code).rung.disrupts for code in (*counted, "nic-errors-hard", "nvlink-recovery-failed"))
    assert ComponentKind.NVLINK in {fault.component.kind for fault in dcgm("", "NVLINK system")}
