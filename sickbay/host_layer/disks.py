"""NVMe controllers that are not live, and file systems that the kernel has made read-only.

Called by `health.host`. A file system is bad when its superblock turned read-only in this boot, or is read-only below
the kubelet or the container runtime: a mount that is read-only by itself, as pods and immutable hosts have many, is
none of it, and a volume of a pod may be given out read-only after it was written. A controller is lost when it is dead
at two looks, since one whose volume is being detached is dead for a moment before it goes. Free space is told and not
judged: the kubelet does that.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from sickbay.checks import CheckMoment, CheckOutcome, judged, unknown
from sickbay.faults import Component, ComponentKind, Fault
from sickbay.file_readings import FileReadings, Wanted
from sickbay.host_layer.said import remembered, seen
from sickbay.model import Frozen

_MOUNTS: Final = "/proc/1/mountinfo"
_NVME: Final = "/sys/class/nvme"
_WRITTEN: Final = ("/var/lib/kubelet", "/var/lib/containerd")
"""Folders of every Kubernetes node that must be writable."""

_OF_PODS: Final = ("/var/lib/kubelet/pods/", "/var/lib/kubelet/plugins/")
"""Where the kubelet and CSI drivers mount volumes of pods."""

DISKS_WANTED: Final = Wanted(files=(f"{_NVME}/*/state", _MOUNTS), spaces=(_WRITTEN[0],))

_DISK_TYPES: Final = ("ext4", "ext3", "xfs", "btrfs", "f2fs")
"""File systems on disks that turn read-only when the disk fails them."""
_LOST_STATES: Final = ("dead",)
_LIVE: Final = "live"


class Mount(Frozen):
    """One mounted file system."""

    device: str
    """Major and minor number: the same for all mounts of one file system."""
    point: str
    kind: str
    source: str
    read_only: bool
    """The file system itself, not only this mount of it."""


class DiskMemory(Frozen):
    """What the check remembers in one boot."""

    written: frozenset[str] = frozenset()
    """Devices whose file system was writable at an earlier look."""
    not_live: Mapping[str, str] = {}
    """State of each NVMe controller that was not live at the last look."""


def judge_disks(readings: FileReadings, moment: CheckMoment) -> CheckOutcome:
    """Controllers that are lost or keep resetting, and file systems that turned read-only."""
    memory = remembered(DiskMemory, moment)
    if _MOUNTS not in readings.texts:
        return unknown(f"{readings.why(_MOUNTS)} (the agent needs hostPID)", moment.memory)
    listed = tuple(mounts_of(readings.texts[_MOUNTS]))
    mounts = tuple(mount for mount in listed if not mount.point.startswith(_OF_PODS))
    states = {path.split("/")[4]: text for path, text in readings.texts.items() if path.startswith(f"{_NVME}/")}
    not_live = {name: state for name, state in states.items() if state != _LIVE}
    kept = DiskMemory(
        written=memory.written | {mount.device for mount in mounts if not mount.read_only}, not_live=not_live
    )
    found = [*_controllers(not_live, memory, moment), *_read_only(mounts, memory, moment)]
    unjudged = _doubts(not_live, memory, moment) or (
        "" if listed else f"no file system on a disk is listed in {_MOUNTS}"
    )
    outcome = judged(found, unjudged, kept.model_dump_json())
    return outcome if outcome.why else outcome.model_copy(update={"why": _space(readings)})


def mounts_of(text: str) -> Iterator[Mount]:
    """The mounts of file systems on disks in a `mountinfo`; lines that cannot be read are left out."""
    for line in text.splitlines():
        mount, dash, system = line.partition(" - ")
        fields, more = mount.split(), system.split()
        if dash and len(fields) >= 6 and len(more) >= 3 and more[0] in _DISK_TYPES:
            read_only = "ro" in more[2].split(",")
            yield Mount(device=fields[2], point=fields[4], kind=more[0], source=more[1], read_only=read_only)


def _controllers(not_live: Mapping[str, str], memory: DiskMemory, moment: CheckMoment) -> Iterator[Fault]:
    for name, state in sorted(not_live.items()):
        disk, path = Component(kind=ComponentKind.DISK, id=name), f"{_NVME}/{name}/state"
        if state in _LOST_STATES and (name in memory.not_live or not moment.memory):
            yield seen("nvme-lost", disk, moment, f"{path}: {state}")
        elif name in memory.not_live:
            words = f"{path}: {state}, and {memory.not_live[name]} at the look before"
            yield seen("nvme-not-live", disk, moment, words)


def _doubts(not_live: Mapping[str, str], memory: DiskMemory, moment: CheckMoment) -> str:
    """Controllers of which only a second look decides whether they are lost."""
    dead = [name for name, state in not_live.items() if state in _LOST_STATES and name not in memory.not_live]
    return f"{', '.join(sorted(dead))} dead; a second look decides" if dead and moment.memory else ""


def _read_only(mounts: tuple[Mount, ...], memory: DiskMemory, moment: CheckMoment) -> Iterator[Fault]:
    needed = {mount.device for folder in _WRITTEN if (mount := _holding(mounts, folder))}
    told = set()
    for mount in mounts:
        turned = mount.device in memory.written
        if not mount.read_only or mount.device in told or not (turned or mount.device in needed):
            continue
        told.add(mount.device)
        words = "it was writable earlier in this boot" if turned else "the kubelet or the runtime must write there"
        evidence = f"{mount.point} ({mount.kind} on {mount.source}) is read-only; {words}"
        disk = Component(kind=ComponentKind.DISK, id=mount.source.rpartition("/")[2] or "unknown")
        yield seen("filesystem-readonly", disk, moment, evidence)


def _holding(mounts: tuple[Mount, ...], folder: str) -> Mount | None:
    """The mount on which a folder lies; the later of two at one point covers the other."""
    on_the_way = [mount for mount in mounts if f"{folder}/".startswith(f"{mount.point.rstrip('/')}/")]
    return max(on_the_way, key=lambda mount: len(mount.point), default=None)


def _space(readings: FileReadings) -> str:
    space = readings.spaces.get(_WRITTEN[0])
    return f"{100 * space.free // space.size} % free in {_WRITTEN[0]}" if space and space.size else ""
