"""NVMe devices, other block devices, software RAID and file systems."""

import re

from sickbay.faults import Component, ComponentKind
from sickbay.kernel_log.lines import Line
from sickbay.kernel_log.sighting import Memory, Sighting

KEYS = (
    "nvme",
    "I/O error",
    "I/O Error",
    "Disk failure on",
    "EXT4-fs",
    "XFS (",
    "Aborting journal",
    "Remounting filesystem",
)

_PATTERNS = (
    (
        re.compile(r"nvme (?P<disk>nvme\d+): (?:Disabling device after reset failure|Removing after probe failure)"),
        "nvme-lost",
    ),
    (re.compile(r"nvme (?P<disk>nvme\d+): Device not ready; aborting"), "nvme-lost"),
    (re.compile(r"nvme (?P<disk>nvme\d+): (?:I/O .*\btimeout\b|controller is down; will reset)"), "nvme-timeout"),
    (re.compile(r"(?P<disk>nvme\w+): no (?:available|usable) path - failing I/O"), "nvme-path-lost"),
    (re.compile(r"md/raid\w*:(?P<disk>md\w+): Disk failure on \S+, disabling device"), "raid-degraded"),
    (re.compile(r"md/raid\w*:?(?P<disk>md\w+): Disk failure on"), "raid-failed"),
    (re.compile(r"EXT4-fs \((?P<disk>[^)]+)\): Remounting filesystem read-only"), "filesystem-readonly"),
    (
        re.compile(r"XFS \((?P<disk>[^)]+)\): .*(?:Shutting down filesystem|Filesystem has been shut down)"),
        "filesystem-shutdown",
    ),
    (re.compile(r"XFS \((?P<disk>[^)]+)\): (?:log|metadata|writeback) I/O error"), "filesystem-io-error"),
    (re.compile(r"EXT4-fs \((?P<disk>[^)]+)\): I/O error"), "filesystem-io-error"),
    (re.compile(r"EXT4-fs error \(device (?P<disk>[^)]+)\)"), "filesystem-io-error"),
    (re.compile(r"Aborting journal on device (?P<disk>[\w-]+)"), "filesystem-io-error"),
    (re.compile(r"(?P<disk>nvme\w+): I/O Cmd\(.*I/O Error"), "disk-io-error"),
    (re.compile(r"Buffer I/O error on (?:dev|device) (?P<disk>[\w-]+)"), "disk-io-error"),
    (re.compile(r"I/O error, dev (?P<disk>[\w-]+)"), "disk-io-error"),
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
