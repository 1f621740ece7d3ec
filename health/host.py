"""The host layer: the GPUs' driver and services, processes, memory, disks and clock of the machine around them.

Listed in `health.layers`. The rules are in `sickbay.host_layer`; here is what each check reads, when, and for whom.
"""

import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial

from health.check import Check
from health.children import ChildResult, run_child
from health.clock import read_clock
from health.files import FileCheck, HostFiles
from health.settings import NodeSettings
from sickbay.checks import CheckAbout, CheckCost, CheckLayer, CheckMoment, CheckOutcome, HostFacts
from sickbay.faults import ComponentKind
from sickbay.file_readings import Wanted
from sickbay.host_layer import disks, driver_files, gpu_devices, memory, processes, services
from sickbay.host_layer.clock import ClockReading, judge_clock
from sickbay.instance_types import limits_of

HOST_WANTED: Wanted = (
    gpu_devices.GPU_DEVICES_WANTED
    + driver_files.DRIVER_WANTED
    + memory.MEMORY_WANTED
    + disks.DISKS_WANTED
    + processes.PROCESSES_WANTED
    + services.SERVICES_WANTED
)

_SYSTEMCTL_DEADLINE = timedelta(seconds=8)
_PROPERTIES = "Id,LoadState,ActiveState,SubState,Result"


def host_checks(settings: NodeSettings, files: HostFiles) -> tuple[Check, ...]:
    """The checks of this layer. `files` reads at least `HOST_WANTED`."""
    return (
        _gpu_devices(settings, files),
        _driver_files(settings, files),
        ServicesCheck(shlex.split(settings.service_command), settings.starting_seconds, files),
        _processes(files),
        _host_memory(files),
        _disks(files),
        *((ClockCheck(),) if settings.watch_clock else ()),
    )


def _gpu_devices(settings: NodeSettings, files: HostFiles) -> Check:
    about = _about(
        name="gpu-devices",
        judges=(ComponentKind.GPU,),
        looks_at="NVIDIA GPUs on the PCI bus against the number that the machine must have.",
        source="EKS node monitoring agent; Karpenter's list of instance types",
        thresholds=("GPUs of a whole machine (SICKBAY_EXPECTED_GPUS), else those of its EC2 instance type",),
    )
    applicable: Callable[[HostFacts], str] = partial(_has_gpus, wanted=settings.expected_gpus)
    wanted = gpu_devices.GPU_DEVICES_WANTED
    return FileCheck(about=about, wanted=wanted, files=files, applicable=applicable, rule=gpu_devices.judge_gpu_devices)


def _driver_files(settings: NodeSettings, files: HostFiles) -> Check:
    about = _about(
        name="driver-files",
        judges=(ComponentKind.DRIVER,),
        looks_at="Version of the loaded kernel module nvidia against the library libnvidia-ml.so.1; loaded modules.",
        source="open-gpu-kernel-modules#626; gcm",
        starting_for=timedelta(seconds=settings.starting_seconds),
    )
    rule = partial(driver_files.judge_driver_files, bound_seconds=settings.starting_seconds)
    applicable: Callable[[HostFacts], str] = partial(_has_gpus, wanted=None)
    return FileCheck(about=about, wanted=driver_files.DRIVER_WANTED, files=files, applicable=applicable, rule=rule)


def _processes(files: HostFiles) -> Check:
    about = _about(
        name="processes",
        judges=(ComponentKind.DRIVER, ComponentKind.HOST),
        looks_at="Processes that wait in the kernel and take no signal (state D), with the driver's in their stack or"
        " name; zombies.",
        source="gpud",
        thresholds=("5 looks in a row over 4 minutes or more, in which it never ran", f"{processes.ZOMBIES} zombies"),
    )
    wanted = processes.PROCESSES_WANTED
    return FileCheck(about=about, wanted=wanted, files=files, applicable=_everywhere, rule=processes.judge_processes)


def _host_memory(files: HostFiles) -> Check:
    about = _about(
        name="host-memory",
        judges=(ComponentKind.MEMORY,),
        looks_at="Counts of the memory controllers (EDAC) and HardwareCorrupted of /proc/meminfo.",
        source="the kernel's documentation of EDAC",
        thresholds=("any uncorrected error", f"{memory.CORRECTED_AN_HOUR} corrected errors of a controller in an hour"),
    )
    wanted = memory.MEMORY_WANTED
    return FileCheck(about=about, wanted=wanted, files=files, applicable=_everywhere, rule=memory.judge_memory)


def _disks(files: HostFiles) -> Check:
    about = _about(
        name="disks",
        judges=(ComponentKind.DISK,),
        looks_at="State of the NVMe controllers; file systems on disks that turned read-only; free space, which is"
        " only told.",
        source="node-problem-detector; the kernel's NVMe driver",
        thresholds=("a controller that is not live at two looks in a row",),
    )
    wanted = disks.DISKS_WANTED
    return FileCheck(about=about, wanted=wanted, files=files, applicable=_everywhere, rule=disks.judge_disks)


@dataclass(frozen=True)
class ServicesCheck:
    """The services that GPUs need, asked of systemd and looked for among the processes."""

    command: Sequence[str]
    bound_seconds: float
    files: HostFiles

    @property
    def about(self) -> CheckAbout:
        """What it looks at."""
        return _about(
            name="services",
            judges=(ComponentKind.NVSWITCH,),
            looks_at="The fabric manager where NVSwitches join the GPUs, as a process or a unit of systemd; failed"
            " units of the persistence daemon and of IMEX.",
            source="NVSentinel#883, AWS' awsome-distributed-training",
            cost=CheckCost.CHEAP,
            starting_for=timedelta(seconds=self.bound_seconds),
        )

    def applies(self, host: HostFacts) -> str:
        """Only to hosts with GPUs."""
        return _has_gpus(host, wanted=None)

    def run(self, moment: CheckMoment) -> CheckOutcome:
        """Look for the processes, and ask systemd."""
        command = [*self.command, "show", "--no-pager", f"--property={_PROPERTIES}", "--", *services.UNITS]
        systemd = read_units(run_child(command, _SYSTEMCTL_DEADLINE))
        return services.judge_services(self.files.look(), systemd, moment, self.bound_seconds)


def read_units(result: ChildResult) -> services.UnitReadings:
    """What `systemctl show` said, or why it said nothing."""
    if result.exit_code != 0:
        return services.UnitReadings(silent=f"systemctl: {result.words}")
    return services.UnitReadings(units=services.units_from(result.stdout))


@dataclass(frozen=True)
class ClockCheck:
    """Whether something keeps the host's clock right."""

    read: Callable[[], ClockReading] = read_clock

    @property
    def about(self) -> CheckAbout:
        """What it looks at."""
        return _about(
            name="clock",
            judges=(ComponentKind.HOST,),
            looks_at="Whether the kernel calls its clock synchronised, as adjtimex tells it.",
            source="EKS node monitoring agent (ClockUnsynchronized)",
        )

    def applies(self, host: HostFacts) -> str:
        """Everywhere."""
        return _everywhere(host)

    def run(self, moment: CheckMoment) -> CheckOutcome:
        """Ask the kernel."""
        return judge_clock(self.read(), moment)


def _about(
    *,
    name: str,
    judges: tuple[ComponentKind, ...],
    looks_at: str,
    source: str,
    thresholds: tuple[str, ...] = (),
    cost: CheckCost = CheckCost.FREE,
    starting_for: timedelta = timedelta(minutes=10),
) -> CheckAbout:
    return CheckAbout(
        name=name,
        layer=CheckLayer.HOST,
        judges=judges,
        cost=cost,
        looks_at=looks_at,
        source=source,
        thresholds=thresholds,
        every=timedelta(minutes=1),
        deadline=timedelta(seconds=40),
        fresh_for=timedelta(minutes=5),
        starting_for=starting_for,
    )


def _everywhere(host: HostFacts) -> str:  # noqa: ARG001 -- the shape of an applicability
    return ""


def _has_gpus(host: HostFacts, *, wanted: int | None) -> str:
    limits = limits_of(host.instance_type)
    if host.pci_gpus or wanted or (limits and limits.gpus) or not host.pci_known:
        return ""
    return "no NVIDIA GPU on the PCI bus"
