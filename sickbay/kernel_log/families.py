"""The families of lines that the scanner knows, each with the words that such a line must hold.

The words decide cheaply that a line is none of ours; only a family whose word is there runs its patterns. A new kind
of line is a new row here (and a row of the catalogue for its code).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from sickbay.kernel_log import gpu_driver, hangs, host, network, neuron, nvswitch, pcie, storage, xid
from sickbay.kernel_log.lines import FABRIC_MANAGER, KERNEL, Line
from sickbay.kernel_log.sighting import Memory, Sighting


@dataclass(frozen=True, slots=True)
class Family:
    """Lines of one subject."""

    keys: tuple[str, ...]
    """At least one of these is in every line of the family."""
    recognise: Callable[[Line, Memory], Sighting | None]
    programs: frozenset[str] = frozenset({KERNEL})
    """Who is believed on this subject."""


FAMILIES: Final = (
    Family(xid.KEYS, xid.recognise),
    Family(nvswitch.KEYS, nvswitch.recognise, frozenset({KERNEL, FABRIC_MANAGER, "nvidia-fabricmanager"})),
    Family(gpu_driver.KEYS, gpu_driver.recognise),
    Family(pcie.KEYS, pcie.recognise),
    Family(hangs.KEYS, hangs.recognise),
    Family(host.KEYS, host.recognise),
    Family(storage.KEYS, storage.recognise),
    Family(network.KEYS, network.recognise, frozenset({KERNEL, "systemd-networkd"})),
    Family(neuron.KEYS, neuron.recognise),
)


def recognise(line: Line, memory: Memory) -> Sighting | None:
    """What a line shows, by the first family that knows it."""
    for family in FAMILIES:
        if line.program in family.programs and any(key in line.text for key in family.keys):
            sighting = family.recognise(line, memory)
            if sighting is not None:
                return sighting
    return None
