"""The node conditions that are known here: who writes each, which of its words is bad, and what part it is about.

Used by `sickbay.other_agents.judgement`. A type without a row is told and judges nothing: its polarity is a guess.
Sources: facts on detection, 5 (EKS node-monitoring-agent 1.7, node-problem-detector's shipped configurations); the
documents of AKS and Nebius on what their node-problem-detector adds; and the profile of NVSentinel, 1 (its conditions
bear the names of its checks).
"""

from enum import StrEnum
from typing import Final

from sickbay import names
from sickbay.model import Frozen


class Speaker(StrEnum):
    """Who writes a condition."""

    KUBELET = "kubelet"
    EKS = "EKS node-monitoring-agent"
    NPD = "node-problem-detector"
    NVSENTINEL = "NVSentinel"
    SICKBAY = "Sickbay"


class Subject(StrEnum):
    """What a condition is about; the end of the code of its fault, `reported-gpu`."""

    GPU = "gpu"
    FABRIC = "fabric"
    NETWORK = "network"
    STORAGE = "storage"
    HOST = "host"
    RUNTIME = "runtime"
    RESTARTS = "restarts"
    PRESSURE = "pressure"
    MONITOR = "monitor"
    APPLICATION = "application"

    @property
    def code(self) -> str:
        """The fault code in the catalogue."""
        return f"reported-{self.value}"


class ConditionType(Frozen):
    """One type of condition."""

    name: str
    speaker: Speaker
    subject: Subject
    good: str
    """The status that is good, `True` or `False`; the other one is bad, and any third word is unknown."""


_GOOD_WHEN_TRUE: Final = {
    Speaker.EKS: {
        "AcceleratedHardwareReady": Subject.GPU,
        "NetworkingReady": Subject.NETWORK,
        "StorageReady": Subject.STORAGE,
        "KernelReady": Subject.HOST,
        "ContainerRuntimeReady": Subject.RUNTIME,
    },
    Speaker.SICKBAY: {
        names.CONDITION_GPU: Subject.GPU,
        names.CONDITION_FABRIC: Subject.FABRIC,
        names.CONDITION_NETWORK: Subject.NETWORK,
        names.CONDITION_HOST: Subject.HOST,
    },
}

_GOOD_WHEN_FALSE: Final = {
    Speaker.KUBELET: {
        "MemoryPressure": Subject.PRESSURE,
        "DiskPressure": Subject.PRESSURE,
        "PIDPressure": Subject.PRESSURE,
        "OutOfDisk": Subject.PRESSURE,
        "NetworkUnavailable": Subject.NETWORK,
    },
    Speaker.NPD: {
        "KernelDeadlock": Subject.HOST,
        "CperHardwareErrorFatal": Subject.HOST,
        "ReadonlyFilesystem": Subject.STORAGE,
        "XfsShutdown": Subject.STORAGE,
        "CorruptDockerOverlay2": Subject.RUNTIME,
        "ContainerRuntimeUnhealthy": Subject.RUNTIME,
        "KubeletUnhealthy": Subject.RUNTIME,
        "FrequentKubeletRestart": Subject.RESTARTS,
        "FrequentDockerRestart": Subject.RESTARTS,
        "FrequentContainerdRestart": Subject.RESTARTS,
        "FrequentUnregisterNetDevice": Subject.NETWORK,
        # What managed services add to it (AKS, Nebius).
        "FilesystemCorruptionProblem": Subject.STORAGE,
        "KubeletProblem": Subject.RUNTIME,
        "ContainerRuntimeProblem": Subject.RUNTIME,
        "GPUMissing": Subject.GPU,
        "XIDErrors": Subject.GPU,
        "NVLinkStatusInactive": Subject.FABRIC,
        "IBLinkFlapping": Subject.NETWORK,
        "UnhealthyNvidiaDevicePlugin": Subject.RUNTIME,
        "NebiusGPUError": Subject.GPU,
        "NebiusBootDiskIOError": Subject.STORAGE,
    },
    Speaker.NVSENTINEL: {
        "GpuMemWatch": Subject.GPU,
        "GpuThermalWatch": Subject.GPU,
        "GpuThermalMarginWatch": Subject.GPU,
        "GpuPcieWatch": Subject.GPU,
        "GpuPowerWatch": Subject.GPU,
        "GpuInforomWatch": Subject.GPU,
        "GpuSmWatch": Subject.GPU,
        "GpuMcuWatch": Subject.GPU,
        "GpuPmuWatch": Subject.GPU,
        "GpuDriverWatch": Subject.GPU,
        "GpuCpusetWatch": Subject.GPU,
        "GpuNvlinkWatch": Subject.FABRIC,
        "GpuNvswitchFatalWatch": Subject.FABRIC,
        "GpuNvswitchNonfatalWatch": Subject.FABRIC,
        "GpuDcgmConnectivityFailure": Subject.MONITOR,
        "GpuDcgmUnresponsive": Subject.MONITOR,
        "SysLogsXIDError": Subject.GPU,
        "SysLogsSXIDError": Subject.FABRIC,
        "SysLogsGPUFallenOff": Subject.GPU,
        "SysLogsNICDriverError": Subject.NETWORK,
        "InfiniBandStateCheck": Subject.NETWORK,
        "InfiniBandDegradationCheck": Subject.NETWORK,
        "EthernetStateCheck": Subject.NETWORK,
        "EthernetDegradationCheck": Subject.NETWORK,
        "EFAStateCheck": Subject.NETWORK,
        "EFADegradationCheck": Subject.NETWORK,
    },
}

_SUFFIX: Final = "Check"
"""NVSentinel's network checks are written with and without it."""


def _rows() -> dict[str, ConditionType]:
    rows: dict[str, ConditionType] = {}
    for good, table in (("True", _GOOD_WHEN_TRUE), ("False", _GOOD_WHEN_FALSE)):
        for speaker, types in table.items():
            for name, subject in types.items():
                row = ConditionType(name=name, speaker=speaker, subject=subject, good=good)
                rows[name] = row
                rows.setdefault(name.removesuffix(_SUFFIX), row)
    return rows


_ROWS: Final = _rows()


def condition_type(name: str) -> ConditionType | None:
    """The row of a type; None for one that is not known here, and for the kubelet's Ready, which is its own rule."""
    return _ROWS.get(name)
