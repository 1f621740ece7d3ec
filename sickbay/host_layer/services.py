"""The services that GPUs need beside their driver: fabric manager, persistence daemon, IMEX.

Called by `health.host`. Where NVSwitches join the GPUs, no new work can use them without the fabric manager, though the
GPUs go on saying that their fabric is complete (detection 8.15). It may run as a unit of systemd or in a container: a
process of its name proves it either way. The other two are judged only where their unit has failed.
"""

import re
from collections.abc import Mapping
from typing import Final

from sickbay.checks import CheckMoment, CheckOutcome, HostFacts, judged, starting
from sickbay.faults import Component, ComponentKind, Fault
from sickbay.file_readings import FileReadings, Wanted
from sickbay.host_layer.processes import PROCESSES_WANTED, sees_host
from sickbay.host_layer.said import DRIVER, HOST, seen, young
from sickbay.instance_types import limits_of
from sickbay.model import Frozen

FABRIC_MANAGER: Final = "nvidia-fabricmanager"
PERSISTENCE: Final = "nvidia-persistenced"
IMEX: Final = "nvidia-imex"
UNITS: Final = (FABRIC_MANAGER, PERSISTENCE, IMEX)

_FABRIC_PROCESS: Final = "nv-fabricmanager"[:15]
SERVICES_WANTED: Final = PROCESSES_WANTED + Wanted(process_names=(_FABRIC_PROCESS,), processes=True)

_SWITCHED_PRODUCT: Final = re.compile(r"\b(?:B200|B300)\b")
"""GPUs of NVLink 5 in boards of eight, whose switches are not seen on the PCI bus; a GB200 is another product."""

_NVSWITCH: Final = Component(kind=ComponentKind.NVSWITCH, id="unknown")
_GOING: Final = ("active", "reloading")


class Unit(Frozen):
    """A unit of systemd."""

    load: str = ""
    """`loaded`, `not-found`, `masked`, ..."""
    active: str = ""
    """`active`, `activating`, `inactive`, `failed`, ..."""
    sub: str = ""
    result: str = ""

    @property
    def words(self) -> str:
        """For a person."""
        return f"{self.active} ({self.sub}), result {self.result or 'unknown'}"


class UnitReadings(Frozen):
    """What systemd says of some units."""

    units: Mapping[str, Unit] = {}
    silent: str = ""
    """Why it said nothing."""


def units_from(text: str) -> Mapping[str, Unit]:
    """The units that `systemctl show` has printed, by name without `.service`."""
    found = {}
    for block in re.split(r"\n\s*\n", text):
        told = dict(line.split("=", 1) for line in block.splitlines() if "=" in line)
        if "Id" in told and "ActiveState" in told:
            found[told["Id"].removesuffix(".service")] = Unit(
                load=told.get("LoadState", ""),
                active=told["ActiveState"],
                sub=told.get("SubState", ""),
                result=told.get("Result", ""),
            )
    return found


def needs_fabric_manager(host: HostFacts) -> bool:
    """Whether this host's GPUs are joined by NVSwitches that its own fabric manager must set up."""
    limits = limits_of(host.instance_type)
    switched = bool(limits and limits.nvswitches) or bool(_SWITCHED_PRODUCT.search(host.gpu_product))
    return bool(host.pci_nvswitches) or switched


def judge_services(
    readings: FileReadings, systemd: UnitReadings, moment: CheckMoment, bound_seconds: float
) -> CheckOutcome:
    """Services that are needed and do not run; within `bound_seconds` of the boot they may still be coming."""
    found, unjudged = [], ""
    if needs_fabric_manager(moment.host):
        down, unjudged = _fabric_manager(readings, systemd)
        if down and young(moment, bound_seconds):
            return starting(f"{FABRIC_MANAGER}: {down}")
        if down:
            found.append(seen("fabric-manager-down", _NVSWITCH, moment, f"{FABRIC_MANAGER}: {down}"))
    found += _failed(systemd, moment)
    return judged(found, unjudged)


def _fabric_manager(readings: FileReadings, systemd: UnitReadings) -> tuple[str, str]:
    """Why it is down, and why that cannot be told; both empty if it runs."""
    running = [process for process in readings.processes if process.name == _FABRIC_PROCESS]
    if any(process.state not in ("Z", "X") for process in running):
        return "", ""
    unit = systemd.units.get(FABRIC_MANAGER)
    if unit is not None and unit.load == "loaded":
        return ("", "") if unit.active in _GOING else (unit.words, "")
    if readings.process_count is not None and sees_host(readings):
        return "no process of it runs on the host, and systemd knows no unit of it", ""
    cure = "run the agent with hostPID, or set SICKBAY_SERVICE_COMMAND to a command that reaches the host's systemd"
    return (
        "",
        f"whether the fabric manager runs cannot be told: {systemd.silent or 'systemd knows no unit of it'}; {cure}",
    )


def _failed(systemd: UnitReadings, moment: CheckMoment) -> list[Fault]:
    found = []
    for name, code, part in ((PERSISTENCE, "persistence-service-down", DRIVER), (IMEX, "imex-down", HOST)):
        unit = systemd.units.get(name)
        if unit is not None and unit.active == "failed":
            found.append(seen(code, part, moment, f"{name}: {unit.words}"))
    return found
