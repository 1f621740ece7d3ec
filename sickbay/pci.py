"""The PCI bus of a host as its sysfs tells it: which functions are GPUs, NVSwitches and network adapters.

Called by `health.host_facts` and by the rules of the network and host layers. The numbers that are read here are kept
by the kernel from the last scan of the bus: reading them touches no device.
"""

import re
from collections.abc import Iterator
from typing import Final

from sickbay.checks import HostFacts
from sickbay.file_readings import FileReadings, Wanted
from sickbay.model import Frozen

PCI_DEVICES: Final = "/sys/bus/pci/devices"
PRODUCT: Final = "/sys/class/dmi/id/product_name"
MAKER: Final = "/sys/class/dmi/id/sys_vendor"

PCI_WANTED: Final = Wanted(
    files=(f"{PCI_DEVICES}/*/uevent",), listings=(PCI_DEVICES,), links=(f"{PCI_DEVICES}/*/physfn",)
)
FACTS_WANTED: Final = PCI_WANTED + Wanted(files=(PRODUCT, MAKER))

NVIDIA: Final = "10de"
MELLANOX: Final = "15b3"
AMAZON: Final = "1d0f"

_GPU_CLASSES: Final = ("300", "302")
"""VGA and 3D controllers; the same vendor's audio and USB functions are no GPUs."""
_SWITCH_CLASS: Final = "680"
_NETWORK_CLASSES: Final = ("200", "207")
"""Ethernet and InfiniBand controllers."""
_EFA_PREFIX: Final = "efa"
"""Devices efa0, efa1, ... are the generations of EFA (facts: detection, 4)."""

_ADDRESS: Final = re.compile(r"^[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]$")


class PciFunction(Frozen):
    """One function on the bus."""

    address: str
    """With domain and function, e.g. `0000:61:00.0`."""
    vendor: str
    """Four hexadecimal digits, lower case, as are the next two."""
    device: str
    class_code: str
    """Class and subclass, e.g. `302`."""
    driver: str = ""
    """Name of the kernel driver that has it."""
    virtual: bool = False
    """A virtual function, which a physical one lends to a guest or a container."""

    @property
    def slot(self) -> str:
        """Its address without the function, e.g. `0000:61:00`."""
        return self.address.rsplit(".", 1)[0]

    @property
    def is_gpu(self) -> bool:
        """An NVIDIA GPU; a share of one that its host lends to guests (SR-IOV) is none, and comes and goes."""
        return self.vendor == NVIDIA and self.class_code in _GPU_CLASSES and not self.virtual

    @property
    def is_nvswitch(self) -> bool:
        """An NVSwitch; those of NVLink 5 are not seen on the bus."""
        return self.vendor == NVIDIA and self.class_code == _SWITCH_CLASS

    @property
    def is_efa(self) -> bool:
        """An EFA device of any generation."""
        return self.vendor == AMAZON and self.device.startswith(_EFA_PREFIX)

    @property
    def is_infiniband(self) -> bool:
        """An adapter that can speak InfiniBand or RoCE, and is no virtual function."""
        return self.vendor == MELLANOX and self.class_code in _NETWORK_CLASSES and not self.virtual


def pci_functions(readings: FileReadings) -> tuple[PciFunction, ...] | None:
    """Every function on the bus, by address; None if the bus or one of its functions could not be read."""
    if PCI_DEVICES not in readings.names:
        return None
    found = tuple(_functions(readings))
    return found if len(found) == len(readings.names[PCI_DEVICES]) else None


def facts_from(readings: FileReadings) -> HostFacts:
    """What the firmware's product name and the bus tell of a machine."""
    functions = pci_functions(readings)
    seen = functions or ()
    return HostFacts(
        instance_type=_instance_type(readings),
        pci_gpus=tuple(function.slot for function in seen if function.is_gpu),
        pci_nvswitches=tuple(function.slot for function in seen if function.is_nvswitch),
        pci_efa=tuple(function.slot for function in seen if function.is_efa),
        pci_infiniband=tuple(function.slot for function in seen if function.is_infiniband),
        pci_known=functions is not None,
    )


def _instance_type(readings: FileReadings) -> str:
    """EC2's firmware gives the instance type as the product's name."""
    return readings.texts.get(PRODUCT, "") if "Amazon" in readings.texts.get(MAKER, "") else ""


def _functions(readings: FileReadings) -> Iterator[PciFunction]:
    for address in sorted(readings.names[PCI_DEVICES]):
        told = dict(line.split("=", 1) for line in _uevent(readings, address) if "=" in line)
        vendor, _, device = told.get("PCI_ID", "").lower().partition(":")
        if not (_ADDRESS.match(address) and device and told.get("PCI_CLASS")):
            continue
        yield PciFunction(
            address=address,
            vendor=vendor,
            device=device,
            # Six digits with the leading zeros left out; the last two are the programming interface.
            class_code=told["PCI_CLASS"].lower()[:-2],
            driver=told.get("DRIVER", ""),
            virtual=f"{PCI_DEVICES}/{address}/physfn" in readings.links,
        )


def _uevent(readings: FileReadings, address: str) -> list[str]:
    return readings.texts.get(f"{PCI_DEVICES}/{address}/uevent", "").splitlines()
