"""InfiniBand and RoCE adapters of a host: its compute fabric's ports, their rates, errors, drops and flaps.

Called by `health.network`. Not for EC2, whose fabric is EFA: adapters of this family serve the NVSwitches there. One
is missed at the second look, since its driver may be loaded anew, and not where a pod may have it for itself.
"""

from typing import Final

from pydantic import ValidationError

from sickbay.catalogue import fault_of
from sickbay.checks import CheckMoment, CheckOutcome, judged, starting, unknown
from sickbay.counter_tracks import CounterMemory
from sickbay.faults import Component, ComponentKind, Fault, merge_faults
from sickbay.file_readings import FileReadings
from sickbay.model import Frozen
from sickbay.network.counters import judge_counters
from sickbay.network.fabric import FabricExpectation, FabricJudgement, judge_fabric, nic_fault
from sickbay.network.flaps import LinkMemories, LinkMemory, follow_link
from sickbay.network.limits import Limit
from sickbay.network.ports import Port
from sickbay.network.sysfs import (
    COUNTERS_WANTED,
    RDMA_WANTED,
    carrier_changes_of,
    counters_of,
    devices_of,
    lends_devices,
    ports_of,
    vendor_of,
)
from sickbay.pci import MELLANOX

INFINIBAND_WANTED = RDMA_WANTED + COUNTERS_WANTED

_MISSING: Final = "nic-missing"


class InfinibandMemory(Frozen):
    """What the check remembers in one boot."""

    counters: CounterMemory = CounterMemory()
    links: LinkMemories = LinkMemories()
    devices: frozenset[str] = frozenset()
    """RDMA devices that were there at any look, under their present names."""
    gone: frozenset[str] = frozenset()
    """Those of them that were not there at the last look."""
    short: bool = False
    """Whether there were fewer than the fleet's nodes have at the last look."""


def judge_infiniband(
    readings: FileReadings,
    moment: CheckMoment,
    limits: tuple[Limit, ...],
    expected: FabricExpectation,
    bound_seconds: float,
) -> CheckOutcome:
    """What is wrong with the compute fabric; for `bound_seconds` after the boot, links may still be training."""
    memory = _remembered(moment.memory)
    devices = devices_of(readings)
    if devices is None:
        return unknown(f"the RDMA devices cannot be read: {readings.why('/sys/class/infiniband')}", moment.memory)
    mine = {device for device in devices if vendor_of(readings, device) in (MELLANOX, "")}
    young = (moment.now - moment.boot_seen_at).total_seconds() < bound_seconds
    lends = lends_devices(readings)
    unloaded = (memory.gone and not lends) or not memory.links.seen_up
    if not mine and moment.host.pci_infiniband and unloaded:
        return _without_devices(moment, young=young)
    ports = tuple(port for port in ports_of(readings) if port.device in mine)
    known, gone = _vanished(mine, memory.devices)
    seen_up = frozenset(name for name in memory.links.seen_up if name.partition("/")[0] in known)
    judgement = judge_fabric(ports, expected, moment, seen_up)
    counters = _fabric_counters(readings, judgement.ports)
    before = memory.links.model_copy(update={"seen_up": seen_up})
    links, followed = _follow(judgement.ports, counters, before, moment)
    grown, tracks = judge_counters(counters, limits, memory.counters, moment)
    too_few = tuple(fault for fault in judgement.faults if fault.code == _MISSING)
    kept = InfinibandMemory(
        counters=tracks, links=links, devices=known, gone=frozenset(gone), short=bool(too_few)
    ).model_dump_json()
    if young and (waiting := _never_up(judgement, seen_up)):
        return starting(f"not up yet since the boot: {', '.join(waiting)}", kept)
    used = {name.partition("/")[0] for name in seen_up} - expected.excused
    missed = tuple(device for device in gone if device in used)
    lost, doubts = _lost(missed, too_few, memory, moment)
    if lends:
        lost, doubts = (), _not_lent(too_few, len(judgement.ports) + len(missed), expected)
    dark = sorted(mine - {port.device for port in ports} - expected.excused)
    unread = f"{', '.join(dark)} cannot be read" if dark else ""
    nothing = "" if lends and missed else _nothing_looked_at(judgement, expected)
    unjudged = "; ".join(filter(None, (judgement.unjudged, unread, *doubts)))
    others = (fault for fault in judgement.faults if fault not in too_few)
    return judged(merge_faults((), (*lost, *others, *followed, *grown)), unjudged or nothing, kept)


def _remembered(memory: str) -> InfinibandMemory:
    try:
        return InfinibandMemory.model_validate_json(memory)
    except ValidationError:
        return InfinibandMemory()


def _without_devices(moment: CheckMoment, *, young: bool) -> CheckOutcome:
    evidence = f"{len(moment.host.pci_infiniband)} adapters on the PCI bus, and no RDMA device of the driver mlx5_ib"
    if young:
        return starting(evidence, moment.memory)
    driver = Component(kind=ComponentKind.DRIVER, id="mlx5_ib")
    fault = fault_of("driver-module-missing", driver, seen=moment.now, boot_id=moment.boot_id, evidence=(evidence,))
    return judged((fault,), memory=moment.memory)


def _fabric_counters(readings: FileReadings, ports: tuple[Port, ...]) -> dict[str, int]:
    """Counters of the fabric's ports, with those of their network interfaces."""
    names = {port.name for port in ports}
    devices = {port.device for port in ports}
    found = {}
    for key, value in counters_of(readings).items():
        place = key.rpartition("/")[0]
        if place in names or (place.endswith("/") and place[:-1] in devices):
            found[key] = value
    for port in ports:
        changes = carrier_changes_of(readings, port.interface) if port.interface else None
        if changes is not None:
            found[f"{port.name}/carrier_changes"] = changes
    return found


def _follow(
    ports: tuple[Port, ...], counters: dict[str, int], memory: LinkMemories, moment: CheckMoment
) -> tuple[LinkMemories, tuple[Fault, ...]]:
    """Drops and flaps of each port whose state is known."""
    links = dict(memory.links)
    found: list[Fault] = []
    for port in ports:
        if port.state is None or port.physical is None:
            continue
        downs = counters.get(f"{port.name}/link_downed")
        faults, links[port.name] = follow_link(port, downs, links.get(port.name, LinkMemory()), moment)
        found += faults
    up = {port.name for port in ports if port.up}
    return LinkMemories(links=links, seen_up=memory.seen_up | up), tuple(found)


def _vanished(devices: set[str], known: frozenset[str]) -> tuple[frozenset[str], tuple[str, ...]]:
    """The devices known from now on, and those of them that are gone.

    Where as many have come as have gone, they were only given other names.
    """
    gone = known - devices
    if len(devices - known) >= len(gone):
        return frozenset(devices), ()
    return known | devices, tuple(sorted(gone))


def _lost(
    missed: tuple[str, ...], too_few: tuple[Fault, ...], memory: InfinibandMemory, moment: CheckMoment
) -> tuple[tuple[Fault, ...], tuple[str, ...]]:
    """Adapters and ports that are not there, and in words those of which only a second look decides."""
    lost = tuple(device for device in missed if device in memory.gone)
    faults = tuple(
        nic_fault(_MISSING, device, f"{device} was up earlier in this boot, and is gone", moment) for device in lost
    )
    doubts = (f"{', '.join(missed)} not there; a second look decides",) if len(missed) > len(lost) else ()
    if memory.short or not moment.memory:
        return (*faults, *too_few), doubts
    return faults, (*doubts, *(f"{line}; a second look decides" for fault in too_few for line in fault.evidence))


def _not_lent(too_few: tuple[Fault, ...], accounted: int, expected: FabricExpectation) -> tuple[str, ...]:
    """Too few ports that those which pods have for themselves do not explain; `accounted` counts them in."""
    if accounted >= (expected.ports or 0):
        return ()
    return tuple(f"{line}; pods may have more for themselves" for fault in too_few for line in fault.evidence)


def _never_up(judgement: FabricJudgement, seen_up: frozenset[str]) -> tuple[str, ...]:
    down = [port for port in judgement.ports if port.state is not None and not port.up]
    return tuple(port.name for port in down) if down and not any(port.name in seen_up for port in down) else ()


def _nothing_looked_at(judgement: FabricJudgement, expected: FabricExpectation) -> str:
    """Adapters of which no port belongs to a compute fabric give no answer, unless the operator excused them all."""
    if judgement.ports or expected.ports == 0 or expected.excused:
        return ""
    return "no port is up, and nothing says which ones are used: set SICKBAY_INFINIBAND_PORTS or SICKBAY_EXCUSED_PORTS"
