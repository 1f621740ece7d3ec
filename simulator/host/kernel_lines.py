"""Kernel lines that a scenario can name by code, in the format of the NVIDIA driver and the kernel.

The texts are our own; their shapes are those of facts: detection, 1e. A scenario file names a template (`xid-79`) or
gives a raw line of its own.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from simulator.host.gpu import GpuIdentity, RecoveryAction
from simulator.host.gpu_models import GpuModel

ERROR, WARNING, NOTICE, INFO = 3, 4, 5, 6
"""Kernel log levels; facility 0 (kern) leaves them as they are."""

_NOBODY = "pid='<unknown>', name=<unknown>"
_WORKER = "pid={pid}, name=python3"


@dataclass(frozen=True)
class Line:
    """One message; it may have several lines, which the kernel keeps in one record."""

    text: str
    priority: int = ERROR


def _xid(code: int, text: str, who: str = _NOBODY) -> str:
    return f"NVRM: Xid (PCI:{{pci}}): {code}, {who}, {text}"


TEMPLATES: dict[str, tuple[str, ...]] = {
    "xid-13": (
        _xid(13, "Graphics SM Warp Exception on (GPC 2, TPC 1, SM 0): Out Of Range Address", _WORKER),
        _xid(13, "Graphics Exception: ESR 0x514e48=0x2000e 0x514e50=0x4 0x514e44=0xf812b60 0x514e4c=0x17f", _WORKER),
    ),
    "xid-31": (
        _xid(
            31,
            "Ch 0000000a, intr 00000000. MMU Fault: ENGINE GRAPHICS GPC2 GPCCLIENT_T1_4 faulted @ 0x7e21_40000000. "
            "Fault is of type FAULT_PDE ACCESS_TYPE_VIRT_READ",
            _WORKER,
        ),
    ),
    "xid-43": (_xid(43, "Ch 00000010", _WORKER),),
    "xid-45": (_xid(45, "Ch 00000010", _WORKER),),
    "xid-48": (_xid(48, "An uncorrectable double bit error (DBE) has been detected on GPU in the framebuffer"),),
    "xid-63": (_xid(63, "Row Remapper: New row (0x000000042) marked for remapping, reset gpu to activate."),),
    "xid-64": (_xid(64, "Row Remapper: Failed to remap row (0x000000042): no spare row is left in the bank."),),
    "xid-74": (_xid(74, "NVLink: fatal error detected on link 4(0x0, 0x0, 0x10000, 0x0, 0x0, 0x0, 0x0)"),),
    "xid-79": (
        _xid(79, "GPU has fallen off the bus."),
        "NVRM: GPU {pci}.0: GPU has fallen off the bus.",
        "NVRM: GPU {pci}.0: GPU serial number is {serial}.",
    ),
    "xid-94": (_xid(94, "Contained: FB (0x1). RST: No, D-RST: No", _WORKER),),
    "xid-95": (_xid(95, "Uncontained: FB (0x1). RST: Yes, D-RST: No"),),
    "xid-119": (
        _xid(
            119,
            "Timeout after 45s of waiting for RPC response from GPU{index} GSP! Expected function 76 (GSP_RM_CONTROL) "
            "sequence 4021 (0x20800a4c 0x4).",
            _WORKER,
        ),
    ),
    "gpu-lost-at-boot": (
        "NVRM: The NVIDIA GPU {pci}.0 (PCI ID: {device})\nNVRM: installed in this system has\n"
        "NVRM: fallen off the bus and is not responding to commands.",
    ),
    "init-failed": ("NVRM: GPU {pci}.0: RmInitAdapter failed! (0x24:0x72:1568)",),
    "sxid-20034": ("nvidia-nvswitch1: SXid (PCI:0000:06:00.0): 20034, Fatal, Link 48 LTSSM Fault Up",),
    "hung-task": ("INFO: task nvidia-smi:{pid} blocked for more than 120 seconds.",),
}
"""By code: the records that the fault writes, in order."""

_TEMPLATE_NAME = re.compile(r"[a-z][a-z0-9-]*")


def check_entry(entry: str) -> str:
    """A scenario's line: the name of a template, or any raw line. Raises ValueError for an unknown template."""
    if entry not in TEMPLATES and _TEMPLATE_NAME.fullmatch(entry):
        raise ValueError(f"no kernel lines are known for {entry!r}: use one of {', '.join(TEMPLATES)}, or a raw line")
    return entry


def lines_of(entries: Iterable[str], gpu: GpuIdentity | None, model: GpuModel, pid: int) -> list[Line]:
    """The records of a scenario's entries, for one GPU. `pid` is the process that the driver blames.

    A template that names a GPU is written for none as if the address were unknown to the driver.
    """
    values = {
        "pci": gpu.pci if gpu else "0000:00:00",
        "serial": gpu.serial if gpu else "0",
        "index": gpu.index if gpu else 0,
        "device": model.pci_device_id,
        "pid": pid,
    }
    return [
        Line(text.format_map(values)) if entry in TEMPLATES else Line(text)
        for entry in entries
        for text in TEMPLATES.get(entry, (entry,))
    ]


def first_xid_preamble(gpu: GpuIdentity) -> list[Line]:
    """What the driver says of a GPU once per boot, before its first Xid."""
    return [
        Line(f"NVRM: GPU at PCI:{gpu.pci}: {gpu.uuid}"),
        Line(f"NVRM: GPU Board Serial Number: {gpu.serial}"),
    ]


def recovery_action_changed(gpu: GpuIdentity, before: RecoveryAction, after: RecoveryAction) -> Line:
    """Xid 154."""
    text = f"GPU recovery action changed from {before.kernel_text} to {after.kernel_text}"
    return Line(_xid(154, text).format(pci=gpu.pci))


def boot_lines(driver: str) -> list[Line]:
    """What a healthy boot writes, as far as health checks care."""
    return [
        Line("Linux version 6.12.40 (simulated host) #1 SMP PREEMPT_DYNAMIC", NOTICE),
        Line("nvidia: loading out-of-tree module taints kernel.", WARNING),
        Line(f"NVRM: loading NVIDIA UNIX x86_64 Kernel Module  {driver}", NOTICE),
        Line("nvidia_uvm: module uses symbols from proprietary module nvidia, inheriting taint.", INFO),
    ]
