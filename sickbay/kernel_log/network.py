"""Network adapters: Mellanox and NVIDIA mlx5, AWS EFA and ENA, and links that lost their carrier.

The driver's ACCESS_REG complaints are left out on purpose: they are a harmless flood (gpud#1164).
"""

import re

from sickbay.faults import Component, ComponentKind
from sickbay.kernel_log.lines import Line
from sickbay.kernel_log.sighting import PCI, UNKNOWN, Memory, Sighting, full_pci

KEYS = ("mlx5_core ", "Port module event[error]", "Failed to process command", "ena 0000:", "Lost carrier")

_MLX5 = rf"mlx5_core (?P<pci>{PCI})\b"
_EFA = rf"(?:infiniband (?P<name>efa_\d+)|efa (?P<pci>{PCI}))(?: \S+)?"
_ENA = rf"ena (?P<pci>{PCI})(?: (?P<name>[\w-]+))?"

_PATTERNS = tuple(
    (re.compile(pattern), code)
    for pattern, code in (
        (rf"{_MLX5}.*Detected insufficient power on the PCIe slot", "nic-power"),
        (rf"(?:{_MLX5}.*)?Port module event\[error\]: module \d+", "nic-cable"),
        (rf"{_MLX5}.*(?:Fatal error \d+ detected|health recovery failed|reached miss count)", "nic-failed"),
        (rf"{_MLX5} \S+: Link down", "nic-link-down"),
        (rf"{_EFA}: Failed to process command", "efa-command-failed"),
        (rf"{_ENA}: (?:Reset attempt failed|Can not reset|Failed to re(?:start|set|store))", "ena-failed"),
        (
            rf"{_ENA}: (?:Keep alive watchdog timeout|Found a Tx that wasn't completed|Trigger reset is on)",
            "ena-timeout",
        ),
        (rf"{_ENA}: .*missing TX completions", "ena-timeout"),
        (r"^(?P<name>[\w.@-]+): Lost carrier", "nic-link-down"),
    )
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
