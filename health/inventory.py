"""Counts what the machine has, for whoever knows how much there should be: the controller, who knows what EC2 attached.

Asked by the agent now and then. Whether the parts are well is the checks' business.
"""

from typing import NamedTuple

from health.files import read_files
from health.settings import NodeSettings
from sickbay.checks import HostFacts
from sickbay.network.efa import efa_devices
from sickbay.network.sysfs import RDMA_WANTED
from sickbay.pci import FACTS_WANTED, facts_from


class Machine(NamedTuple):
    """What one look at the machine tells, without its GPUs' driver."""

    host: HostFacts
    efa_devices: int | None
    """EFA devices that the driver shows; None where that cannot be told."""


def look_at_machine(settings: NodeSettings) -> Machine:
    """One look, by a child with a deadline of a few seconds. Blocking; raises nothing."""
    readings = read_files(settings.host_root, FACTS_WANTED + RDMA_WANTED)
    devices = efa_devices(readings)
    return Machine(host=facts_from(readings), efa_devices=None if devices is None else len(devices))
