"""A port of an RDMA adapter, as sysfs and the tools that read it tell it.

Made by `sickbay.network.sysfs` and `sickbay.network.listings`, judged by `sickbay.network.fabric`. A word that is not
known stays None: it is neither up nor down.
"""

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from sickbay.faults import Component, ComponentKind
from sickbay.model import Frozen


class PortState(StrEnum):
    """Logical state of a port, in the kernel's words."""

    NOP = "NOP"
    DOWN = "DOWN"
    INIT = "INIT"
    ARMED = "ARMED"
    ACTIVE = "ACTIVE"
    ACTIVE_DEFER = "ACTIVE_DEFER"


class PhysicalState(StrEnum):
    """Physical state of a port, in the kernel's words without space and underscore, in lower case."""

    SLEEP = "sleep"
    POLLING = "polling"
    DISABLED = "disabled"
    TRAINING = "portconfigurationtraining"
    LINK_UP = "linkup"
    RECOVERY = "linkerrorrecovery"
    PHY_TEST = "phytest"


class LinkLayer(StrEnum):
    """What a port speaks."""

    INFINIBAND = "InfiniBand"
    ETHERNET = "Ethernet"
    UNSPECIFIED = "Unspecified"
    """EFA's own protocol."""


class Port(Frozen):
    """One port at one look; what was not told is None or empty."""

    device: str
    """Name of the RDMA device, e.g. `mlx5_3`, `efa_0`."""
    number: str = "1"
    state: PortState | None = None
    physical: PhysicalState | None = None
    rate: float | None = None
    """Gb/s."""
    link_layer: LinkLayer | None = None
    model: str = ""
    """What kind of adapter it is, as its source tells it, e.g. `MT4129` or `0x1021`."""
    interface: str = ""
    """Its network interface, e.g. `ib0`."""
    interface_state: str = ""
    """The interface's operstate, e.g. `up`."""
    virtual: bool = False
    """A virtual function."""
    missing: tuple[str, ...] = ()
    """What of the things that tell its health was not told, or in a word that is not known."""

    @property
    def name(self) -> str:
        """Device and port, e.g. `mlx5_3/1`."""
        return f"{self.device}/{self.number}"

    @property
    def component(self) -> Component:
        """The part that its faults are in: the adapter."""
        return Component(kind=ComponentKind.NIC, id=self.device)

    @property
    def kind(self) -> str:
        """Its model, or else the family of its device's name: only ports of one kind can be compared."""
        return self.model or self.device.rstrip("0123456789").rstrip("_")

    @property
    def up(self) -> bool:
        """Whether it carries traffic."""
        return self.state is PortState.ACTIVE and self.physical is PhysicalState.LINK_UP


_NUMBERED = re.compile(r"^\d+:\s*")
_RATE = re.compile(r"^(\d+(?:\.\d+)?) Gb/sec\b")


def port_state(text: str) -> PortState | None:
    """The state in `4: ACTIVE`, `Active` or `ACTIVE`; None for any other word, of a text that was cut too."""
    # ibstat says `Initializing` where the kernel says INIT.
    word = _NUMBERED.sub("", text.strip()).upper()
    return _STATES.get("INIT" if word == "INITIALIZING" else word)


def physical_state(text: str) -> PhysicalState | None:
    """The state in `5: LinkUp` or `LINK_UP`; None for any other word."""
    word = _NUMBERED.sub("", text.strip())
    return _PHYSICAL.get(re.sub(r"[\s_]", "", word).lower())


def link_layer(text: str) -> LinkLayer | None:
    """The link layer of this name; None for any other word."""
    return _LAYERS.get(text.strip())


def rate(text: str) -> float | None:
    """Gb/s of `200 Gb/sec (4X HDR)`; None for anything else."""
    found = _RATE.match(text.strip())
    return float(found[1]) if found else None


def port_from(device: str, number: str, told: Mapping[str, str], *, bare_rate: bool = False) -> Port:
    """A port from what was told of it by the names of sysfs' files (`state`, `phys_state`, `rate`, `link_layer`).

    `bare_rate` says that the rate stands without its unit, as ibstat prints it.
    """
    speed = told.get("rate", "")
    port = Port(
        device=device,
        number=number,
        state=port_state(told.get("state", "")),
        physical=physical_state(told.get("phys_state", "")),
        rate=rate(f"{speed} Gb/sec" if bare_rate else speed),
        link_layer=link_layer(told.get("link_layer", "")),
    )
    unread = {"state": port.state, "phys_state": port.physical, "rate": port.rate, "link_layer": port.link_layer}
    return port.model_copy(update={"missing": tuple(name for name, value in unread.items() if value is None)})


_STATES: Final = {state.value: state for state in PortState}
_PHYSICAL: Final = {state.value: state for state in PhysicalState}
_LAYERS: Final = {layer.value: layer for layer in LinkLayer}
