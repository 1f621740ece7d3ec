"""NVMe devices, other block devices, software RAID and file systems."""

import re

from sickbay.faults import Component, ComponentKind
from sickbay.kernel_log.lines import Line
from sickbay.kernel_log.sighting import Memory, Sighting

KEYS = (
    "nvme nvme",
    "failing I/O",
    "I/O error",
    "I/O Error",
    "critical medium error",
    "critical target error",
    "Disk failure on",
    "EXT4-fs",
    "XFS (",
    "Aborting journal",
)

_PATTERNS = tuple(
    (re.compile(pattern), code)
    for pattern, code in (
        (r"nvme (?P<disk>nvme\d+): Disabling device after reset failure", "nvme-lost"),
        (r"nvme (?P<disk>nvme\d+): Removing after probe failure", "nvme-lost"),
        (r"nvme (?P<disk>nvme\d+): Device not ready; aborting", "nvme-lost"),
        (r"nvme (?P<disk>nvme\d+): (?:I/O .*\btimeout\b|controller is down; will reset)", "nvme-timeout"),
        (r"(?P<disk>nvme\w+): no (?:available|usable) path - failing I/O", "nvme-path-lost"),
        (r"md/raid\w*:(?P<disk>md\w+): Disk failure on \S+, disabling device", "raid-degraded"),
        (r"md/raid(?:\d+:?)?(?P<disk>md\w+): Disk failure on", "raid-failed"),
        (r"EXT4-fs \((?P<disk>[^)]+)\): Remounting filesystem read-only", "filesystem-readonly"),
        (r"XFS \((?P<disk>[^)]+)\): .*Shutting down filesystem", "filesystem-shutdown"),
        (r"XFS \((?P<disk>[^)]+)\): .*Filesystem has been shut down", "filesystem-shutdown"),
        (r"XFS \((?P<disk>[^)]+)\): (?:log|metadata|writeback) I/O error", "filesystem-io-error"),
        (r"EXT4-fs \((?P<disk>[^)]+)\): I/O error", "filesystem-io-error"),
        (r"EXT4-fs error \(device (?P<disk>[^)]+)\)", "filesystem-io-error"),
        (r"Aborting journal on device (?P<disk>[\w-]+)", "filesystem-io-error"),
        (r"(?P<disk>nvme\w+): I/O Cmd\(.*I/O Error", "disk-io-error"),
        (r"Buffer I/O error on (?:dev|device) (?P<disk>[\w-]+)", "disk-io-error"),
        (r"(?:I/O|critical (?:medium|target)) error, dev (?P<disk>[\w-]+)", "disk-io-error"),
    )
)
_NOT_A_DISK = re.compile(r"(?:fd|sr|loop)\d")
"""Floppy, optical and loop devices: their errors are no disk's."""


def recognise(line: Line, memory: Memory) -> Sighting | None:  # noqa: ARG001 -- every recogniser has this shape
    """The fault of a storage line; the first pattern that fits tells most."""
    for pattern, code in _PATTERNS:
        found = pattern.search(line.text)
        if found and not _NOT_A_DISK.match(found["disk"]):
            return Sighting(code, Component(kind=ComponentKind.DISK, id=found["disk"]), line)
    return None
