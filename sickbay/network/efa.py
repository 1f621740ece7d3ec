"""The EFA devices of an EC2 instance: whether all that are attached are there, up, and do their work.

Called by `health.network`. Three counts must agree: the functions on the PCI bus, the RDMA devices that the driver made
of them, and the user-space devices (uverbs) that jobs open. What EC2 has attached is known by the controller alone,
which compares it with `efa_devices` from the node's inventory; the instance type's maximum is only told.
"""

from collections.abc import Sequence

from pydantic import ValidationError

from sickbay.catalogue import fault_of
from sickbay.checks import CheckMoment, CheckOutcome, judged, starting, unknown
from sickbay.counter_tracks import CounterMemory
from sickbay.faults import Component, ComponentKind, Fault, merge_faults
from sickbay.file_readings import FileReadings, Wanted
from sickbay.instance_types import limits_of
from sickbay.model import Frozen
from sickbay.network.counters import judge_counters
from sickbay.network.fabric import nic_fault, port_fault
from sickbay.network.limits import Limit
from sickbay.network.ports import Port
from sickbay.network.sysfs import (
    COUNTERS_WANTED,
    RDMA_WANTED,
    VERBS,
    address_of,
    counters_of,
    devices_of,
    lends_devices,
    ports_of,
    vendor_of,
)
from sickbay.pci import AMAZON, PCI_WANTED, pci_functions

MODULE = "/sys/module/efa"

EFA_WANTED = RDMA_WANTED + COUNTERS_WANTED + PCI_WANTED + Wanted(listings=("/sys/module",))


class EfaMemory(Frozen):
    """What the check remembers in one boot."""

    most: int = 0
    """EFA functions that the bus has shown at once."""
    counters: CounterMemory = CounterMemory()
    absent: frozenset[str] = frozenset()
    """Parts that were not there at the last look: a driver that is being loaded anew is no fault."""


def efa_devices(readings: FileReadings) -> tuple[str, ...] | None:
    """Names of the EFA devices that the driver shows, for the node's inventory; None if that cannot be told."""
    devices = devices_of(readings)
    if devices is None:
        return None
    return tuple(device for device in devices if _is_efa(readings, device))


def judge_efa(
    readings: FileReadings,
    moment: CheckMoment,
    limits: tuple[Limit, ...],
    excused: frozenset[str],
    bound_seconds: float,
) -> CheckOutcome:
    """What is wrong with the EFA devices; within `bound_seconds` of the boot, devices may still be coming."""
    memory = _remembered(moment.memory)
    functions, devices = pci_functions(readings), efa_devices(readings)
    if functions is None or devices is None:
        missing = "the PCI bus" if functions is None else "the RDMA devices in sysfs"
        return unknown(f"{missing} cannot be read: {readings.silent or 'run the agent as root'}", moment.memory)
    on_bus = {function.address for function in functions if function.is_efa}
    used = tuple(device for device in devices if device not in excused)
    ports = tuple(port for port in ports_of(readings) if port.device in used)
    grown, counters = judge_counters(_counters_of(readings, used), limits, memory.counters, moment)
    absent = [] if lends_devices(readings) and memory.most else _not_taken(readings, on_bus, devices, moment)
    names = frozenset(fault.component.id for fault in absent)
    kept = EfaMemory(most=max(memory.most, len(on_bus)), counters=counters, absent=names).model_dump_json()
    young = (moment.now - moment.boot_seen_at).total_seconds() < bound_seconds
    if absent and young and len(on_bus) >= memory.most:
        return starting(absent[0].evidence[0], kept)
    sure = [fault for fault in absent if not moment.memory or fault.component.id in memory.absent]
    found = (*_gone(on_bus, memory, moment), *sure, *_down(ports, moment), *grown)
    unread = _unread(readings, used, ports) or _unsure(absent, sure)
    outcome = judged(merge_faults((), found), unread, kept)
    return outcome if outcome.why else outcome.model_copy(update={"why": _told(moment, len(devices), len(on_bus))})


def _remembered(memory: str) -> EfaMemory:
    try:
        return EfaMemory.model_validate_json(memory)
    except ValidationError:
        return EfaMemory()


def _is_efa(readings: FileReadings, device: str) -> bool:
    """By its vendor; by its name where the vendor is not told, since a name may be changed by a rule of udev."""
    vendor = vendor_of(readings, device)
    return vendor == AMAZON if vendor else device.startswith("efa_")


def _counters_of(readings: FileReadings, devices: Sequence[str]) -> dict[str, int]:
    return {key: value for key, value in counters_of(readings).items() if key.split("/", 1)[0] in devices}


def _gone(on_bus: set[str], memory: EfaMemory, moment: CheckMoment) -> list[Fault]:
    if len(on_bus) >= memory.most:
        return []
    evidence = f"the PCI bus has {len(on_bus)} EFA functions, and had {memory.most} earlier in this boot"
    return [nic_fault("efa-missing", "unknown", evidence, moment)]


def _not_taken(readings: FileReadings, on_bus: set[str], devices: Sequence[str], moment: CheckMoment) -> list[Fault]:
    """Functions on the bus of which the driver has made no device, and devices that no job could open."""
    if on_bus and readings.absent(MODULE):
        driver = Component(kind=ComponentKind.DRIVER, id="efa")
        evidence = (f"{len(on_bus)} EFA functions on the PCI bus, and the kernel module efa is not loaded",)
        return [fault_of("driver-module-missing", driver, seen=moment.now, boot_id=moment.boot_id, evidence=evidence)]
    if len(devices) < len(on_bus):
        taken = {address_of(readings, device) for device in devices}
        left = sorted(on_bus - taken) if len(on_bus - taken) == len(on_bus) - len(devices) else ["unknown"]
        counts = f"{len(on_bus)} EFA functions on the PCI bus, and {len(devices)} devices of the driver"
        return [nic_fault("efa-not-started", address.rsplit(".", 1)[0], counts, moment) for address in left]
    return [
        nic_fault("efa-not-started", device, f"{device} has no uverbs device, which jobs open", moment)
        for device in _closed(readings, devices)
    ]


def _closed(readings: FileReadings, devices: Sequence[str]) -> list[str]:
    """Devices without a user-space device; none while any of those could not be read."""
    opened = [text for path, text in readings.texts.items() if path.startswith(f"{VERBS}/")]
    listed = [name for name in readings.names.get(VERBS, ()) if name.startswith("uverbs")]
    told = VERBS in readings.names or readings.absent(VERBS)
    return [device for device in devices if device not in opened] if told and len(opened) == len(listed) else []


def _unsure(absent: Sequence[Fault], sure: Sequence[Fault]) -> str:
    """What only a second look decides."""
    return f"{absent[0].evidence[0]}; a second look decides" if len(absent) > len(sure) else ""


def _down(ports: Sequence[Port], moment: CheckMoment) -> list[Fault]:
    return [
        port_fault("nic-port-down", port, f"state {port.state}, physical state {port.physical}", moment)
        for port in ports
        if port.state is not None and port.physical is not None and not port.up
    ]


def _unread(readings: FileReadings, devices: Sequence[str], ports: Sequence[Port]) -> str:
    dark = sorted(
        {device for device in devices if device not in {port.device for port in ports}}
        | {port.device for port in ports if port.state is None or port.physical is None}
    )
    if not dark:
        return ""
    path = f"/sys/class/infiniband/{dark[0]}/ports/1/state"
    return f"the state of {', '.join(dark)} cannot be read; {readings.why(path)}"


def _told(moment: CheckMoment, devices: int, on_bus: int) -> str:
    limits = limits_of(moment.host.instance_type)
    words = f"{devices} EFA devices, {on_bus} functions on the PCI bus"
    if limits is not None and limits.max_efa is not None and on_bus < limits.max_efa:
        words += f"; a {moment.host.instance_type} can have {limits.max_efa}, and fewer may have been attached"
    return words
