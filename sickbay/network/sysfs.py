"""The RDMA devices of a host as its sysfs shows them, and their counters.

Read live by `health.network` and from recorded listings by `sickbay.network.recorded`; a device may stand under
`/sys/class/infiniband` or under its PCI function, as the dumps of others have it.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Final

from sickbay.file_readings import FileReadings, Wanted
from sickbay.network.ports import Port, port_from

RDMA_DEVICES: Final = "/sys/class/infiniband"
VERBS: Final = "/sys/class/infiniband_verbs"
_NET: Final = "/sys/class/net"
_SHARED: Final = "/sys/module/ib_core/parameters/netns_mode"
"""Whether RDMA devices are in all network namespaces at once, or each in one alone."""

_PORT_FILES: Final = ("state", "phys_state", "rate", "link_layer")
_DEVICE_FILES: Final = ("device/vendor", "device/device")

RDMA_WANTED: Final = Wanted(
    files=(
        *(f"{RDMA_DEVICES}/*/ports/*/{name}" for name in _PORT_FILES),
        *(f"{RDMA_DEVICES}/*/{name}" for name in _DEVICE_FILES),
        f"{RDMA_DEVICES}/*/device/net/*/operstate",
        f"{VERBS}/uverbs*/ibdev",
        _SHARED,
    ),
    listings=(RDMA_DEVICES,),
    links=(f"{RDMA_DEVICES}/*/device", f"{RDMA_DEVICES}/*/device/physfn"),
)

COUNTERS_WANTED: Final = Wanted(
    files=(
        f"{RDMA_DEVICES}/*/ports/*/counters/*",
        f"{RDMA_DEVICES}/*/ports/*/hw_counters/*",
        f"{RDMA_DEVICES}/*/hw_counters/*",
        f"{_NET}/*/carrier_changes",
    )
)

_CLASS: Final = re.compile(
    r"^(?P<folder>(?:.*/)?(?:class/infiniband|infiniband)/(?P<device>[\w.-]+))/ports/(?P<port>\d+)/(?P<file>\w+)$"
)
_COUNTER: Final = re.compile(
    r"^(?:.*/)?infiniband/(?P<device>[\w.-]+)(?:/ports/(?P<port>\d+))?/(?:hw_)?counters/(?P<name>\w+)$"
)
_NUMBER: Final = re.compile(r"^\d+$")


def ports_of(readings: FileReadings) -> tuple[Port, ...]:
    """Every port that the files tell of, by device and number."""
    told: dict[tuple[str, str], dict[str, str]] = {}
    folders: dict[str, str] = {}
    for path, text in readings.texts.items():
        found = _CLASS.match(path)
        if found and found["file"] in _PORT_FILES:
            told.setdefault((found["device"], found["port"]), {})[found["file"]] = text
            folders[found["device"]] = found["folder"]
    return tuple(
        _of_device(readings, folders[device], port_from(device, number, files))
        for (device, number), files in sorted(told.items())
    )


def devices_of(readings: FileReadings) -> tuple[str, ...] | None:
    """Names of the RDMA devices; None if that cannot be told."""
    if RDMA_DEVICES in readings.names:
        return readings.below(RDMA_DEVICES)
    return () if readings.absent(RDMA_DEVICES) else None


def lends_devices(readings: FileReadings) -> bool:
    """Whether a pod may have an RDMA device for itself, which its host then does not see (`rdma system`, exclusive)."""
    return readings.texts.get(_SHARED) == "N"


def vendor_of(readings: FileReadings, device: str) -> str:
    """PCI vendor of an RDMA device, four digits; empty if it was not told."""
    return readings.texts.get(f"{RDMA_DEVICES}/{device}/device/vendor", "").lower().removeprefix("0x")


def address_of(readings: FileReadings, device: str) -> str:
    """PCI address of an RDMA device, with its function; empty if it was not told."""
    return readings.links.get(f"{RDMA_DEVICES}/{device}/device", "").rpartition("/")[2]


def counters_of(readings: FileReadings) -> Mapping[str, int]:
    """Every counter that is a number, by `device/port/name`, the device's own by `device//name`.

    A counter that an adapter lacks, or answers with words, is not there: absent is not zero.
    """
    return dict(_counters(readings))


def _counters(readings: FileReadings) -> Iterator[tuple[str, int]]:
    for path, text in readings.texts.items():
        if not _NUMBER.match(text):
            continue
        found = _COUNTER.match(path)
        if found:
            yield f"{found['device']}/{found['port'] or ''}/{found['name']}", int(text)


def carrier_changes_of(readings: FileReadings, interface: str) -> int | None:
    """How often a network interface lost or gained its carrier since the boot; None if that is not told."""
    text = readings.texts.get(f"{_NET}/{interface}/carrier_changes", "")
    return int(text) if _NUMBER.match(text) else None


def _of_device(readings: FileReadings, folder: str, port: Port) -> Port:
    """The port, with what its device's files tell."""
    pci = folder.removesuffix(f"/infiniband/{port.device}") if "/class/" not in folder else f"{folder}/device"
    interface, state = _interface(readings, pci)
    update = {
        "model": readings.texts.get(f"{pci}/device", "").lower(),
        "virtual": f"{pci}/physfn" in readings.links,
        "interface": interface,
        "interface_state": state,
    }
    return port.model_copy(update=update)


def _interface(readings: FileReadings, pci: str) -> tuple[str, str]:
    """The network interface of the same PCI function, and its state; empty where it has none, or several."""
    start, end = f"{pci}/net/", "/operstate"
    found = [
        (path[len(start) : -len(end)], text)
        for path, text in readings.texts.items()
        if path.startswith(start) and path.endswith(end)
    ]
    return found[0] if len(found) == 1 else ("", "")
