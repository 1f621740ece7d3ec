from datetime import UTC, datetime

import pytest

from sickbay.faults import ComponentKind, Fault, FaultClass, Rung
from sickbay.kube_objects import Condition
from sickbay.other_agents.judgement import Excuse, Standing, excuses, fault_of_condition, standing

SINCE = datetime(2026, 5, 1, 8, 0, tzinfo=UTC)


def said(kind: str, status: str, reason: str = "", message: str = "") -> Condition:
    return Condition(type=kind, status=status, reason=reason, message=message, last_transition_time=SINCE)


def fault(kind: str, status: str, reason: str = "", message: str = "") -> Fault:
    found = fault_of_condition(said(kind, status, reason, message), "node-a", "boot-1")
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("kind", "status", "expected"),
    [
        ("AcceleratedHardwareReady", "True", Standing.GOOD),
        ("AcceleratedHardwareReady", "False", Standing.BAD),
        ("MemoryPressure", "False", Standing.GOOD),
        ("MemoryPressure", "True", Standing.BAD),
        ("KernelDeadlock", "True", Standing.BAD),
        ("KernelDeadlock", "Unknown", Standing.UNKNOWN),
        ("GpuMemWatch", "True", Standing.BAD),
        ("GpuMemWatch", "False", Standing.GOOD),
        ("StorageReady", "true", Standing.UNKNOWN),
        ("OursAndNobodyElses", "True", Standing.FOREIGN),
    ],
)
def test_polarity_is_the_types_own(kind: str, status: str, expected: Standing) -> None:
    assert standing(said(kind, status)) is expected


@pytest.mark.parametrize(
    ("kind", "status", "reason", "message", "code", "fault_class", "rung"),
    [
        ("AcceleratedHardwareReady", "False", "NvidiaDoubleBitError", "", "reported-gpu", "gpu", "block_new_work"),
        ("AcceleratedHardwareReady", "False", "NvidiaXID79Error", "", "reported-gpu", "gpu", "block_new_work"),
        ("AcceleratedHardwareReady", "False", "NvidiaXID74Error", "", "reported-gpu", "fabric", "block_new_work"),
        ("AcceleratedHardwareReady", "False", "NvidiaXID31Error", "", "reported-application", "application", "none"),
        ("AcceleratedHardwareReady", "False", "NvidiaFabricError", "", "reported-fabric", "fabric", "block_new_work"),
        ("AcceleratedHardwareReady", "False", "SomethingNew", "", "reported-gpu", "gpu", "block_new_work"),
        ("NetworkingReady", "False", "IPAMDNotReady", "", "reported-network", "network", "block_new_work"),
        ("StorageReady", "False", "", "", "reported-storage", "storage", "block_new_work"),
        ("KernelReady", "False", "ForkFailedOutOfPIDs", "", "reported-host", "host", "block_new_work"),
        ("ContainerRuntimeReady", "False", "", "", "reported-runtime", "host", "block_new_work"),
        ("ContainerRuntimeReady", "False", "PodStuckTerminating", "", "reported-restarts", "watch", "none"),
        ("ReadonlyFilesystem", "True", "FilesystemIsReadOnly", "", "reported-storage", "storage", "block_new_work"),
        ("FrequentKubeletRestart", "True", "", "", "reported-restarts", "watch", "none"),
        ("GpuNvlinkWatch", "True", "", "", "reported-fabric", "fabric", "block_new_work"),
        ("SysLogsXIDError", "True", "", "ErrorCode:13 GPU:0", "reported-application", "application", "none"),
        ("SysLogsXIDError", "True", "", "Xid (PCI:0000:1b:00): 48, pid=9", "reported-gpu", "gpu", "block_new_work"),
        ("EFAStateCheck", "True", "", "", "reported-network", "network", "block_new_work"),
        ("GPUMissing", "True", "GPUMissing", "", "reported-gpu", "gpu", "block_new_work"),
        ("NVLinkStatusInactive", "True", "", "", "reported-fabric", "fabric", "block_new_work"),
        ("EFAState", "True", "", "", "reported-network", "network", "block_new_work"),
    ],
)
def test_another_agents_word_has_its_class_and_blocks_new_work_at_most(
    kind: str, status: str, reason: str, message: str, code: str, fault_class: str, rung: str
) -> None:
    found = fault(kind, status, reason, message)
    assert (found.code, found.fault_class, found.rung) == (code, FaultClass(fault_class), Rung(rung))
    assert (found.first_seen, found.boot_id) == (SINCE, "boot-1")


@pytest.mark.parametrize(
    "condition",
    [
        said("AcceleratedHardwareReady", "False", "DCGMError", "DCGM cannot be reached"),
        said("AcceleratedHardwareReady", "False", "DCGMError"),
        said("GpuDcgmConnectivityFailure", "True", "", "no connection to the host engine"),
        said("GpuDcgmUnresponsive", "True"),
    ],
)
def test_dcgm_out_of_reach_is_a_monitors_trouble_and_says_nothing_of_gpus(condition: Condition) -> None:
    """Detection 8.12."""
    found = fault_of_condition(condition, "node-a")
    assert found is not None
    assert (found.code, found.fault_class) == ("reported-monitor", FaultClass.MONITOR_UNAVAILABLE)
    assert (found.rung, found.component.kind) == (Rung.BLOCK_NEW_WORK, ComponentKind.MONITOR)


def test_the_last_reason_of_several_does_not_hide_the_hardware_that_an_earlier_one_named() -> None:
    """Detection 8.11: reasons alternate, messages are joined."""
    found = fault("AcceleratedHardwareReady", "False", "DCGMError", "GPU 3 has uncorrectable errors; DCGM is not there")
    assert found.code == "reported-gpu"
    found = fault("AcceleratedHardwareReady", "False", "NvidiaXID31Error", "GPU 3 is missing; Xid 31 was seen")
    assert (found.code, found.rung) == ("reported-gpu", Rung.BLOCK_NEW_WORK)


@pytest.mark.parametrize(
    ("kind", "status", "message", "part"),
    [
        ("GpuMemWatch", "True", "ErrorCode:DCGM_FR_VOLATILE_DBE_DETECTED PCI:0000:3B:00.0 GPU:2", "0000:3b:00"),
        ("SysLogsGPUFallenOff", "True", "NVRM: GPU 00000000:9d:00.0 is gone", "0000:9d:00"),
        ("GpuMemWatch", "True", "PCI:0000:3b:00.0 and PCI:0000:86:00.0", "unknown"),
        ("GpuMemWatch", "True", "GPU:2 since 2026-05-01T08:00:00Z", "unknown"),
        ("NetworkingReady", "False", 'Interface Name: "ens7f1", MAC: "02:00:00:00:00:01" is not up', "ens7f1"),
        ("NetworkingReady", "False", "the address manager is not ready", "unknown"),
    ],
)
def test_a_part_is_named_only_where_the_words_name_one(kind: str, status: str, message: str, part: str) -> None:
    assert fault(kind, status, "", message).component.id == part


@pytest.mark.parametrize(
    ("text", "condition", "covered"),
    [
        ("NetworkingReady", said("NetworkingReady", "False", "InterfaceNotRunning", "a"), True),
        ("StorageReady,NetworkingReady", said("NetworkingReady", "False"), True),
        ("NetworkingReady:ens9", said("NetworkingReady", "False", "", "ens9 is not up"), True),
        ("NetworkingReady:ens9", said("NetworkingReady", "False", "", "ens9 is not up; ens3 is not up"), False),
        ("NetworkingReady: InterfaceNotUp", said("NetworkingReady", "False", "InterfaceNotUp", "x"), True),
        ("NetworkingReady:ens9", said("StorageReady", "False", "", "ens9"), False),
        ("", said("NetworkingReady", "False"), False),
    ],
)
def test_an_operator_excuses_types_and_single_words_of_them(text: str, condition: Condition, covered: bool) -> None:
    assert any(excuse.covers(condition) for excuse in excuses(text)) is covered


def test_excuses_are_read_with_spaces_and_empty_entries() -> None:
    assert excuses(" A , ,B:c ") == (Excuse(type="A"), Excuse(type="B", word="c"))
