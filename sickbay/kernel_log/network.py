"""Network adapters: Mellanox and NVIDIA mlx5, AWS EFA and ENA, and links that lost their carrier.

The driver's ACCESS_REG complaints are left out on purpose: they are a harmless flood (gpud#1164).
"""

import re

from sickbay.faults import Component, ComponentKind
from sickbay.kernel_log.lines import Line
from sickbay.kernel_log.sighting import PCI, UNKNOWN, Memory, Sighting, full_pci

KEYS = ("mlx5_", "Port module event", "infiniband efa", "efa 0", "ena 0", "Lost carrier")

_PATTERNS = (
    (re.compile(rf"mlx5_core (?P<pci>{PCI})\b.*Detected insufficient power on the PCIe slot"), "nic-power"),
    (re.compile(rf"(?:mlx5_core (?P<pci>{PCI})\b.*)?Port module event\[error\]: module \d+"), "nic-cable"),
    (
        re.compile(
            rf"mlx5_core (?P<pci>{PCI})\b.*(?:Fatal error \d+ detected|health recovery failed|reached miss count)"
        ),
        "nic-failed",
    ),
    (re.compile(rf"mlx5_core (?P<pci>{PCI}) (?P<name>\S+): Link down"), "nic-link-down"),
    (
        re.compile(rf"(?:infiniband (?P<name>efa_\d+)|efa (?P<pci>{PCI}) ?\S*): Failed to process command"),
        "efa-command-failed",
    ),
    (
        re.compile(
            rf"ena (?P<pci>{PCI})(?: (?P<name>[\w-]+))?: (?:Reset attempt failed|Can not reset|Failed to re(?:start|set|store))"
        ),
        "ena-failed",
    ),
    (
        re.compile(
            rf"ena (?P<pci>{PCI})(?: (?P<name>[\w-]+))?: "
            r"(?:Keep alive watchdog timeout|Found a Tx that wasn't completed|Trigger reset is on|.*missing TX completions)"
        ),
        "ena-timeout",
    ),
    (re.compile(r"^(?P<name>[\w.@-]+): Lost carrier"), "nic-link-down"),
)


def recognise(line: Line, memory: Memory) -> Sighting | None:  # noqa: ARG001 -- every recogniser has this shape
    """The fault of a network line."""
    for pattern, code in _PATTERNS:
        found = pattern.search(line.text)
        if found:
            return Sighting(code, _adapter(found.groupdict()), line)
    return None


def _adapter(names: dict[str, str | None]) -> Component:
    address, name = names.get("pci"), names.get("name")
    return Component(kind=ComponentKind.NIC, id=full_pci(address) if address else name or UNKNOWN)
