"""Looks at a host of some age, and sysfs texts of its adapters, for tests."""

from datetime import UTC, datetime, timedelta

from sickbay.checks import CheckMoment, CheckOutcome, HostFacts
from sickbay.file_readings import FileReadings

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def moment(minutes: float = 60, *, memory: str = "", host: HostFacts | None = None) -> CheckMoment:
    """A look so many minutes after the boot, with what the look before it left."""
    return CheckMoment(
        now=NOON + timedelta(minutes=minutes),
        boot_id="boot-1",
        boot_seen_at=NOON,
        host=host or HostFacts(pci_known=True),
        memory=memory,
    )


def codes(outcome: CheckOutcome) -> set[tuple[str, str]]:
    """The faults of an outcome, by code and part."""
    return {(fault.code, fault.component.id) for fault in outcome.faults}


class Adapters:
    """RDMA devices in sysfs, to be changed and read again."""

    def __init__(self, vendor: str, names: tuple[str, ...], *, layer: str, speed: str) -> None:
        self.names = list(names)
        self.vendor = vendor
        self.port = {name: port("4: ACTIVE", "5: LinkUp", speed, layer) for name in names}
        self.counters: dict[str, str] = {}
        """Text by path below the device, e.g. `mlx5_0/ports/1/counters/symbol_error`."""
        self.on_bus = list(names)
        self.shared = True
        """Whether all network namespaces see the devices."""
        self.modules: tuple[str, ...] = ("efa", "ib_uverbs")

    def read(self) -> FileReadings:
        """One look at all of them."""
        start = "/sys/class/infiniband"
        texts, links, names = {}, {}, {}
        for name in self.names:
            texts[f"{start}/{name}/device/vendor"] = f"0x{self.vendor}"
            texts |= {f"{start}/{name}/ports/1/{file}": text for file, text in self.port[name].items()}
            links[f"{start}/{name}/device"] = f"../../../{address(name)}"
            texts[f"/sys/class/infiniband_verbs/uverbs{name[-1]}/ibdev"] = name
        texts |= {f"{start}/{path}": text for path, text in self.counters.items()}
        texts["/sys/module/ib_core/parameters/netns_mode"] = "Y" if self.shared else "N"
        bus = "/sys/bus/pci/devices"
        for name in self.on_bus:
            texts[f"{bus}/{address(name)}/uevent"] = f"PCI_CLASS=20000\nPCI_ID={self.vendor}:EFA2"
        names[bus] = tuple(address(name) for name in self.on_bus)
        names[start] = tuple(self.names)
        names["/sys/class/infiniband_verbs"] = ("abi_version", *(f"uverbs{name[-1]}" for name in self.names))
        names["/sys/module"] = self.modules
        return FileReadings(texts=texts, links=links, names=names)


def port(state: str, physical: str, speed: str, layer: str) -> dict[str, str]:
    """The files of a port."""
    return {"state": state, "phys_state": physical, "rate": speed, "link_layer": layer}


def address(name: str) -> str:
    """Where a device is on the bus."""
    return f"0000:{16 + int(name[-1]):02x}:00.0"
