"""The network layer: EFA devices, and InfiniBand or RoCE ports, as the host's sysfs shows them.

Listed in `health.layers`. The rules are in `sickbay.network`; here is what each check reads, how often, and for whom.
"""

from collections.abc import Callable
from datetime import timedelta
from functools import partial

from health.files import FileCheck, HostFiles
from health.settings import NodeSettings
from sickbay.checks import CheckAbout, CheckCost, CheckLayer, HostFacts
from sickbay.faults import ComponentKind
from sickbay.file_readings import Wanted
from sickbay.network.efa import EFA_WANTED, judge_efa
from sickbay.network.fabric import FabricExpectation
from sickbay.network.infiniband import INFINIBAND_WANTED, judge_infiniband
from sickbay.network.limits import EFA_LIMITS, INFINIBAND_LIMITS, Limit, limits_from

NETWORK_WANTED: Wanted = EFA_WANTED + INFINIBAND_WANTED

_STARTING = timedelta(minutes=10)


def network_checks(settings: NodeSettings, files: HostFiles) -> tuple[FileCheck, ...]:
    """The checks of this layer. `files` reads at least `NETWORK_WANTED`."""
    return (_efa(settings, files), _infiniband(settings, files))


def _efa(settings: NodeSettings, files: HostFiles) -> FileCheck:
    limits = limits_from(settings.nic_limits, EFA_LIMITS)
    about = _about(
        name="efa",
        looks_at="EFA devices of the driver against the functions on the PCI bus and the uverbs devices that jobs open;"
        " state of each port; growth of the error counters.",
        source="EKS node monitoring agent, NVSentinel; AWS' EFA driver for the counters' names",
        thresholds=(*_words(limits), *_BOUNDS),
    )
    rule = partial(
        judge_efa, limits=limits, excused=_excused(settings), bound_seconds=about.starting_for.total_seconds()
    )
    return FileCheck(about=about, wanted=EFA_WANTED, files=files, applicable=_has_efa, rule=rule)


def _infiniband(settings: NodeSettings, files: HostFiles) -> FileCheck:
    limits = limits_from(settings.nic_limits, INFINIBAND_LIMITS)
    about = _about(
        name="infiniband",
        looks_at="Ports of the compute fabric (InfiniBand, or RoCE where there is none): state, physical state, rate,"
        " network interface, growth of the error counters, drops and flaps.",
        source="gpud, gcm, Azure's node health checks, NVSentinel",
        thresholds=(
            "ports and Gb/s of the fleet (SICKBAY_INFINIBAND_PORTS, SICKBAY_INFINIBAND_RATE), else most of the peers'",
            "dropped: down for 4 minutes without a count of it; told until 10 minutes after it is back",
            "flapping: 3 times down for 25 seconds or more within 12 hours",
            *_words(limits),
            *_BOUNDS,
        ),
    )
    expected = FabricExpectation(
        ports=settings.infiniband_ports, rate=settings.infiniband_rate, excused=_excused(settings)
    )
    rule = partial(judge_infiniband, limits=limits, expected=expected, bound_seconds=about.starting_for.total_seconds())
    applicable: Callable[[HostFacts], str] = partial(_has_infiniband, wanted=settings.infiniband_ports)
    return FileCheck(about=about, wanted=INFINIBAND_WANTED, files=files, applicable=applicable, rule=rule)


_BOUNDS = ("ports that are no part of the fabric are left out (SICKBAY_EXCUSED_PORTS)",)


def _about(*, name: str, looks_at: str, source: str, thresholds: tuple[str, ...]) -> CheckAbout:
    return CheckAbout(
        name=name,
        layer=CheckLayer.NETWORK,
        judges=(ComponentKind.NIC,),
        cost=CheckCost.FREE,
        looks_at=looks_at,
        source=source,
        thresholds=thresholds,
        every=timedelta(minutes=1),
        deadline=timedelta(seconds=30),
        fresh_for=timedelta(minutes=5),
        starting_for=_STARTING,
    )


def _words(limits: tuple[Limit, ...]) -> tuple[str, ...]:
    told = ", ".join(limit.words for limit in limits)
    return (f"growth of counters, those with ! block new work (SICKBAY_NIC_LIMITS): {told}",)


def _excused(settings: NodeSettings) -> frozenset[str]:
    return frozenset(filter(None, (name.strip() for name in settings.excused_ports.split(","))))


def _has_efa(host: HostFacts) -> str:
    if host.pci_efa or not host.pci_known:
        return ""
    return "no EFA function on the PCI bus"


def _has_infiniband(host: HostFacts, *, wanted: int | None) -> str:
    if host.instance_type:
        return "an EC2 instance, whose fabric is EFA"
    if host.pci_infiniband or wanted or not host.pci_known:
        return ""
    return "no InfiniBand or RoCE adapter on the PCI bus"
