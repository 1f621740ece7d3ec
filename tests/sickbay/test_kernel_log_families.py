"""Which fault of which part each kind of line shows; lines of our own making, in the shapes of the facts."""

import pytest

from sickbay.faults import FaultClass, Rung, Severity
from sickbay.kernel_log import scan
from sickbay.kernel_log.families import FAMILIES

XID_LINES = {
    "NVRM: Xid (PCI:0000:3B:00): 13, pid=77, name=train, Graphics SM Warp Exception": ("xid-13", "0000:3b:00"),
    "NVRM: Xid (PCI:000d:3b:00): 31, pid=77, Ch 00000010, intr 00000000. MMU Fault": ("xid-31", "000d:3b:00"),
    "NVRM: Xid (PCI:0000:3b:00): 32, Channel ID 00000000 intr 00004000": ("xid-32", "0000:3b:00"),
    "NVRM: Xid (0000:3b:00): 14, Channel 00000001": ("xid-14", "0000:3b:00"),
    "NVRM: Xid (PCI:0000:3b:00): 69": ("xid-69", "0000:3b:00"),
    "NVRM: Xid (PCI:0000:3b:00 GPU-I:05 GPU-CI:00): 94, pid=7, Contained: SM (0x1)": ("xid-94", "0000:3b:00"),
    "NVRM: Xid (PCI:0002:00:00): 119, pid=1, name=nvc:[driver], Timeout after 6s": ("xid-119", "0002:00:00"),
    "NVRM: Xid (PCI:0000:3b:00.0): 79, pid='<unknown>', name=<unknown>, GPU has": ("xid-79", "0000:3b:00"),
    "NVRM: Xid (somewhere): 79, GPU has fallen off the bus.": ("xid-79", "unknown"),
    "NVRM: Xid (PCI:0000:3b:00): 4711, what is this": ("xid-4711", "0000:3b:00"),
}

OTHER_LINES = {
    "nvidia-nvswitch0: SXid (PCI:0000:c1:00.0): 20034, Fatal, Link 07 LTSSM Fault Up": ("sxid-20034", "0000:c1:00"),
    "nvidia-nvswitch0: SXid (PCI:0000:c1:00.0): 12028, Non-fatal, Link 07": ("sxid-12028", "0000:c1:00"),
    "nvidia-nvswitch0: SXid (PCI:0000:c1:00.0): 20034, Data {0x10000000, 0x0}": ("sxid-20034", "0000:c1:00"),
    "[Jan 02 2026 03:04:05] [ERROR] [tid 12] detected NVSwitch fatal error 22003 on fid 0 on NVSwitch pci bus id "
    "00000000:C1:00.0 physical id 1 port 2": ("sxid-22003", "0000:c1:00"),
    "NVRM: GPU 0000:3b:00.0: GPU has fallen off the bus.": ("gpu-lost", "0000:3b:00"),
    "NVRM: GPU 3b:00.0: GPU has fallen off the bus.": ("gpu-lost", "0000:3b:00"),
    "NVRM: GPU at 0000:3b:00.0 has fallen off the bus.": ("gpu-lost", "0000:3b:00"),
    "NVRM: fallen off the bus and is not responding to commands.": ("gpu-lost", "unknown"),
    "NVRM: The NVIDIA probe routine failed for 2 device(s).": ("gpu-missing", "unknown"),
    "NVRM: GPU 0000:3b:00.0: RmInitAdapter failed! (0x22:0x38:653)": ("gpu-init-failed", "0000:3b:00"),
    "NVRM: GPU 0000:3b:00.0: rm_init_adapter failed, device minor number 3": ("gpu-init-failed", "0000:3b:00"),
    "NVRM: osInitNvMapping: *** Cannot attach gpu": ("gpu-init-failed", "unknown"),
    "NVRM: GPU3 nvCheckOkFailedNoLog: Check failed: Reset required [NV_ERR_RESET_REQUIRED] (0x62)": (
        "gpu-reset-required",
        "unknown",
    ),
    "NVRM: rpcRmApiAlloc_GSP: GspRmAlloc failed: hClass=0x1; paramsStatus=0x00000062; status=0x00000062": (
        "gpu-reset-required",
        "unknown",
    ),
    "NVRM: Rate limiting GSP RPC error prints for GPU at PCI:0000:3b:00 (printing 1 of every 30). "
    "The GPU likely needs to be reset.": ("gpu-reset-required", "0000:3b:00"),
    "NVRM: knvlinkDiscoverPostRxDetLinks_GH100: Getting peer3's postRxDetLinkMask failed!": (
        "nvlink-rx-detect-failed",
        "unknown",
    ),
    "NVRM: NVLink: failed to train link 3 to remote PCI:0000:4b:00": ("nvlink-training-failed", "unknown"),
    "NVRM: API mismatch: the client has the version 550.1, but": ("driver-mismatch", "nvidia"),
    "nvidia-peermem nv_get_p2p_free_callback:127 ERROR detected invalid context, skipping": (
        "peermem-invalid-context",
        "nvidia",
    ),
    "pcieport 0000:60:01.0: AER: Corrected error received: 0000:60:01.0": ("pcie-aer-correctable", "0000:60:01.0"),
    "pcieport 0000:60:01.0: AER: Multiple Correctable error message received from 0000:61:00.0": (
        "pcie-aer-correctable",
        "0000:61:00.0",
    ),
    "pcieport 0000:60:01.0: AER: Multiple Uncorrected (Non-Fatal) error received: 0000:60:01.0": (
        "pcie-aer-nonfatal",
        "0000:60:01.0",
    ),
    "pcieport 0000:60:01.0: PCIe Bus Error: severity=Uncorrected (Fatal), type=Transaction Layer": (
        "pcie-aer-fatal",
        "0000:60:01.0",
    ),
    "nvidia 0000:3b:00.0: PCIe Bus Error: severity=Uncorrected (Fatal), type=Inaccessible": (
        "pcie-aer-fatal",
        "0000:3b:00",
    ),
    "nvidia 0000:3b:00.0: AER: can't recover (no error_detected callback)": ("pcie-aer-fatal", "0000:3b:00"),
    "INFO: task mount.nfs:4711 blocked for more than 120 seconds.": ("hung-task", "host"),
    "INFO: task nvidia-smi:4711 blocked for more than 241 seconds.": ("driver-hung", "nvidia"),
    "watchdog: BUG: soft lockup - CPU#7 stuck for 26s! [Some Thread:4711]": ("soft-lockup", "host"),
    "NMI watchdog: Watchdog detected hard LOCKUP on cpu 12": ("hard-lockup", "host"),
    "EDAC MC1: 3 CE memory scrubbing error on CPU_SrcID#0_MC#1_Chan#0_DIMM#0 (channel:0 slot:0)": (
        "host-memory-corrected",
        "CPU_SrcID#0_MC#1_Chan#0_DIMM#0",
    ),
    "EDAC MC1: 1 UE memory read error on DIMM_A1 (channel:0 slot:0)": ("host-memory-uncorrected", "DIMM_A1"),
    "Memory failure: 0x1234: recovery action for dirty LRU page: Recovered": ("host-memory-uncorrected", "unknown"),
    "Kernel panic - not syncing: Fatal machine check": ("host-hardware-fatal", "host"),
    "{3}[Hardware Error]: event severity: fatal": ("host-hardware-fatal", "host"),
    "{3}[Hardware Error]: event severity: corrected": ("host-hardware-error", "host"),
    "mce: [Hardware Error]: Machine check events logged": ("host-hardware-error", "host"),
    "Memory cgroup out of memory: Killed process 77 (my trainer) total-vm:1kB": ("oom-kill", "host"),
    "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),task=train,pid=77,uid=0": ("oom-kill", "host"),
    "train[77]: segfault at 7f00 ip 7f00 sp 7f00 error 4 in libnccl.so.2[7f00+1000]": ("nccl-segfault", "host"),
    "nvme nvme3: I/O 17 QID 4 timeout, aborting": ("nvme-timeout", "nvme3"),
    "nvme nvme3: controller is down; will reset: CSTS=0xffffffff, PCI_STATUS=0x10": ("nvme-timeout", "nvme3"),
    "nvme nvme3: Disabling device after reset failure: -19": ("nvme-lost", "nvme3"),
    "block nvme3n1: no usable path - failing I/O": ("nvme-path-lost", "nvme3n1"),
    "md/raid0:md5: Disk failure on nvme3n1, failing array.": ("raid-failed", "md5"),
    "md/raid1:md5: Disk failure on nvme3n1, disabling device.": ("raid-degraded", "md5"),
    "I/O error, dev nvme3n1, sector 77 op 0x0:(READ)": ("disk-io-error", "nvme3n1"),
    "blk_update_request: critical medium error, dev nvme3n1, sector 77": ("disk-io-error", "nvme3n1"),
    "Buffer I/O error on device sdb1, logical block 3": ("disk-io-error", "sdb1"),
    "nvme3n1: I/O Cmd(0x2) @ LBA 77, 8 blocks, I/O Error (sct 0x2 / sc 0x81)": ("disk-io-error", "nvme3n1"),
    "EXT4-fs (nvme3n1p1): Remounting filesystem read-only": ("filesystem-readonly", "nvme3n1p1"),
    "EXT4-fs error (device nvme3n1p1): ext4_find_entry:1455: inode #2: comm ls": ("filesystem-io-error", "nvme3n1p1"),
    'XFS (nvme3n1): metadata I/O error in "xfs_buf" at daddr 0x1 len 32 error 5': ("filesystem-io-error", "nvme3n1"),
    "XFS (nvme3n1): Log I/O Error Detected. Shutting down filesystem": ("filesystem-shutdown", "nvme3n1"),
    "mlx5_core 0000:5c:00.1: mlx5_pcie_event:301:(pid 7): Detected insufficient power on the PCIe slot (25W).": (
        "nic-power",
        "0000:5c:00.1",
    ),
    "mlx5_core 0000:5c:00.1: Port module event[error]: module 1, Cable error, Bad/unsupported EEPROM": (
        "nic-cable",
        "0000:5c:00.1",
    ),
    "mlx5_core 0000:5c:00.1 ens3: Link down": ("nic-link-down", "0000:5c:00.1"),
    "mlx5_core 0000:5c:00.1: poll_health:800:(pid 0): device's health compromised - reached miss count": (
        "nic-failed",
        "0000:5c:00.1",
    ),
    "infiniband efa_2: Failed to process command CREATE_QP (opcode 1) comp_status 1 err -12": (
        "efa-command-failed",
        "efa_2",
    ),
    "ena 0000:00:05.0 ens5: Keep alive watchdog timeout.": ("ena-timeout", "0000:00:05.0"),
    "ena 0000:00:05.0: Reset attempt failed. Can not reset the device": ("ena-failed", "0000:00:05.0"),
    "Dec  2 11:38:47 node-a systemd-networkd[99]: ib7: Lost carrier": ("nic-link-down", "ib7"),
    "NEURON_HW_ERR=HBM_UNCORRECTABLE_ERROR affecting neuron devices": ("neuron-hbm-uncorrectable", "unknown"),
    "NEURON_HW_ERR=SOMETHING_NEW affecting neuron devices": ("neuron-something-new", "unknown"),
}

HARMLESS_LINES = (
    "NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  570.1  Release Build",
    "NVRM: Xid (nothing): here",
    "NVRM: Xid",
    "NVRM: _kgspLogXid119: ********* GSP Timeout *********",
    "nvidia-modeset: ERROR: GPU:0: Error while waiting for GPU progress: 0x0000ca7d:0 2:0:200:192",
    "nvidia-nvswitch2: open (major=510)",
    "mlx5_core 0000:5c:00.1: mlx5_cmd_out_err:838:(pid 7): ACCESS_REG(0x805) op_mod(0x1) failed",
    "mlx5_core 0000:5c:00.1 ens3: Link up",
    "I/O error, dev fd0, sector 0 op 0x0:(READ)",
    "I/O error, dev loop3, sector 0 op 0x0:(READ)",
    "EXT4-fs (nvme0n1p1): mounted filesystem with ordered data mode",
    "XFS (nvme3n1): Mounting V5 Filesystem",
    "nvme nvme3: 8/0/0 default/read/poll queues",
    "pcieport 0000:60:01.0: AER: enabled with IRQ 34",
    "EDAC MC1: Giving out device to module skx_edac",
    "train[77]: segfault at 0 ip 7f00 sp 7f00 error 4 in libc.so.6[7f00+1000]",
)


@pytest.mark.parametrize(("line", "shown"), [*XID_LINES.items(), *OTHER_LINES.items()])
def test_a_line_shows_the_fault_of_its_part(line: str, shown: tuple[str, str]) -> None:
    (fault,) = scan([line])
    assert (fault.code, fault.component.id) == shown
    assert fault.evidence == (line,)


@pytest.mark.parametrize("line", HARMLESS_LINES)
def test_a_harmless_line_shows_nothing(line: str) -> None:
    assert scan([line]) == ()


@pytest.mark.parametrize("line", [*XID_LINES, *OTHER_LINES])
def test_each_line_holds_a_word_of_a_family(line: str) -> None:
    assert any(key in line for family in FAMILIES for key in family.keys)


@pytest.mark.parametrize(
    ("line", "fault_class", "rung", "severity"),
    [
        ("144, SAW_MVB Nonfatal XC0 i0 Link 0 (0x1)", FaultClass.WATCH, Rung.NONE, Severity.WARNING),
        ("145, pid=1, name=Fatal, RLW_RX Nonfatal XC0", FaultClass.WATCH, Rung.NONE, Severity.WARNING),
        ("149, NETIR_LINK_EVT  Fatal   XC0 i0 Link -1", FaultClass.FABRIC, Rung.RESET_GPU, Severity.FATAL),
        ("149, NETIR (0x000fe4", FaultClass.FABRIC, Rung.RESET_GPU, Severity.FATAL),
        ("94, Contained: SM (0x1). RST: No, D-RST: No", FaultClass.APPLICATION, Rung.NONE, Severity.WARNING),
        ("94, Contained: SM (0x1). RST: Yes, D-RST: No", FaultClass.GPU, Rung.RESET_GPU, Severity.FATAL),
        ("94, Contained: SM (0x1). RST: No, D-RST: Yes", FaultClass.GPU, Rung.RESET_GPU, Severity.WARNING),
        ("95, Uncontained: L2 (0x1). RST: Yes, D-RST: No", FaultClass.GPU, Rung.RESET_GPU, Severity.FATAL),
        ("95, Uncontained: L2 (0x1). RST: No, D-RST: No", FaultClass.GPU, Rung.STOP_WORKLOAD, Severity.FATAL),
        ("74, NVLink: error on link 3(0x800001, 0x0)", FaultClass.WATCH, Rung.NONE, Severity.WARNING),
        ("74, NVLink: fatal error on link 3(0x10000, 0x0)", FaultClass.FABRIC, Rung.RESET_GPU, Severity.FATAL),
    ],
)
def test_the_words_of_an_xid_line_outrank_its_number(
    line: str, fault_class: FaultClass, rung: Rung, severity: Severity
) -> None:
    (fault,) = scan([f"NVRM: Xid (PCI:0000:3b:00): {line}"])
    assert (fault.fault_class, fault.rung, fault.severity) == (fault_class, rung, severity)


@pytest.mark.parametrize(("word", "rung"), [("Fatal", Rung.REBOOT), ("Non-fatal", Rung.NONE)])
@pytest.mark.parametrize("number", [12028, 20034])
def test_the_word_of_a_switch_error_outranks_its_number(word: str, rung: Rung, number: int) -> None:
    line = f"nvidia-nvswitch0: SXid (PCI:0000:c1:00.0): {number}, "
    (fault,) = scan([f"{line}Severity 1 Engine instance 7", f"{line}{word}, Link 07 something"])
    assert (fault.rung, fault.count) == (rung, 1)


def test_a_gpu_lost_at_probe_is_one_fault_of_three_lines_or_of_one_record() -> None:
    text = [
        "NVRM: The NVIDIA GPU 0000:3b:00.0",
        "NVRM: (PCI ID: 10de:2330) installed in this system has",
        "NVRM: fallen off the bus and is not responding to commands.",
    ]
    for lines in (text, ["3,7,1000000,-;" + "\\x0a".join(text), " SUBSYSTEM=pci", " DEVICE=+pci:0000:3b:00.0"]):
        (fault,) = scan(lines)
        assert (fault.code, fault.component.id, fault.count) == ("gpu-lost", "0000:3b:00", 1)
        assert "0000:3b:00.0" in fault.evidence[0]


def test_a_stack_in_the_driver_makes_a_hung_task_the_drivers() -> None:
    lines = [
        "[ 750.1] INFO: task worker:77 blocked for more than 120 seconds.",
        "[ 750.1]       Tainted: P           OE",
        "[ 750.1] Call Trace:",
        "[ 750.1]  uvm_va_block_lock+0x35/0x50 [nvidia_uvm]",
    ]
    assert [fault.code for fault in scan(lines)] == ["hung-task", "driver-hung"]


def test_a_module_list_is_no_stack_and_a_frame_without_a_hang_is_nothing() -> None:
    hang = "watchdog: BUG: soft lockup - CPU#3 stuck for 26s! [worker:77]"
    assert [fault.code for fault in scan([hang, "Modules linked in: nvidia_uvm(POE) nvidia(POE)"])] == ["soft-lockup"]
    assert scan([" os_acquire_mutex+0x35/0x50 [nvidia]"]) == ()


@pytest.mark.parametrize(("stamp", "code"), [("300.0", "driver-hung"), ("9000.0", "hung-task")])
def test_a_task_that_hangs_soon_after_a_clean_up_hangs_on_the_driver(stamp: str, code: str) -> None:
    lines = [
        "[ 100.0] NVRM: Xid (PCI:0000:3b:00): 45, pid=77, name=train, Ch 0000000a",
        f"[ {stamp}] INFO: task cache:78 blocked for more than 120 seconds.",
    ]
    assert code in {fault.code for fault in scan(lines)}


def test_a_task_that_hangs_after_a_plain_application_fault_is_not_the_drivers() -> None:
    lines = [
        "[ 100.0] NVRM: Xid (PCI:0000:3b:00): 31, pid=77, name=train, Ch 0000000a",
        "[ 200.0] INFO: task mount.nfs:78 blocked for more than 120 seconds.",
    ]
    assert {fault.code for fault in scan(lines)} == {"xid-31", "hung-task"}


@pytest.mark.parametrize(
    ("severity", "code"),
    [
        ("corrected", "host-memory-corrected"),
        ("recoverable", "host-memory-uncorrected"),
        ("fatal", "host-memory-uncorrected"),
    ],
)
def test_a_firmware_record_on_memory_is_as_bad_as_it_says(severity: str, code: str) -> None:
    lines = [
        f"{{1}}[Hardware Error]: event severity: {severity}",
        "{1}[Hardware Error]:   section_type: memory error",
    ]
    assert code in {fault.code for fault in scan(lines)}
