"""The services that GPUs need beside their driver: fabric manager, persistence daemon, IMEX.

Called by `health.host`. Where NVSwitches join the GPUs, no new work can use them without the fabric manager, though the
GPUs go on saying that their fabric is complete (detection 8.15). It may run as a unit of systemd or in a container: a
process of its name proves it either way, and it must be down at two looks in a row, since a restart is no fault. The
other two are judged only where their unit has failed.
"""

import re
from collections.abc import Mapping
from typing import Final

from sickbay.checks import CheckMoment, CheckOutcome, HostFacts, judged, starting
from sickbay.faults import Component, ComponentKind, Fault
from sickbay.file_readings import FileReadings, Wanted
from sickbay.host_layer.processes import PROCESSES_WANTED, sees_host
from sickbay.host_layer.said import DRIVER, HOST, remembered, seen, young
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
_BOARD: Final = 8
"""GPUs of such a board; a virtual machine that was given fewer has no switches to set up."""

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


class ServiceMemory(Frozen):
    """What the check remembers in one boot."""

    down: bool = False
    """Whether the fabric manager did not run at the last look."""


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
    if host.pci_nvswitches or (limits and limits.nvswitches):
        return True
    whole = not host.pci_known or len(host.pci_gpus) >= _BOARD
    return whole and bool(_SWITCHED_PRODUCT.search(host.gpu_product))


def judge_services(
    readings: FileReadings, systemd: UnitReadings, moment: CheckMoment, bound_seconds: float
) -> CheckOutcome:
    """Services that are needed and do not run; within `bound_seconds` of the boot they may still be coming."""
    down, unjudged = _fabric_manager(readings, systemd) if needs_fabric_manager(moment.host) else ("", "")
    kept = ServiceMemory(down=bool(down)).model_dump_json()
    if down and young(moment, bound_seconds):
        return starting(f"{FABRIC_MANAGER}: {down}", kept)
    found = _failed(systemd, moment)
    if down and moment.memory and not remembered(ServiceMemory, moment).down:
        unjudged = f"{FABRIC_MANAGER}: {down}; a second look decides"
    elif down:
        found.append(seen("fabric-manager-down", _NVSWITCH, moment, f"{FABRIC_MANAGER}: {down}"))
    return judged(found, unjudged, kept)


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
