"""What one line shows: the currency between the recognisers of lines and the ledger that adds them up."""

import re
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from sickbay.catalogue import lookup
from sickbay.faults import Component, ComponentKind, FaultClass, Moment, Rung, Severity, Workload
from sickbay.kernel_log.lines import Line
from sickbay.kernel_log.recovery import RecoveryAction

UNKNOWN: Final = "unknown"
"""Id of a component that the line does not name."""

PCI: Final = r"(?:[0-9A-Fa-f]{4,8}:)?[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}(?:\.[0-9A-Fa-f])?"
"""A PCI address as lines print it: domain and function may be missing."""

_PCI_PARTS = re.compile(r"(?:([0-9A-Fa-f]{4,8}):)?([0-9A-Fa-f]{2}):([0-9A-Fa-f]{2})(?:\.([0-9A-Fa-f]))?")


class Judgement(NamedTuple):
    """What the words of a line say, where they outrank the catalogue's row."""

    fault_class: FaultClass
    rung: Rung
    severity: Severity


_IDENTITIES_KEPT: Final = 64
_IDENTITY_LINES_KEPT: Final = 2
_CLEANUP: Final = "xid-45"

WATCH_ONLY: Final = Judgement(FaultClass.WATCH, Rung.NONE, Severity.WARNING)


@dataclass(frozen=True, slots=True)
class Sighting:
    """One line's worth of one fault."""

    code: str
    component: Component
    line: Line
    judgement: Judgement | None = None
    """None where the line says no more than its code."""
    workload: Workload | None = None
    caused_by: str | None = None
    """Code of the fault that the driver names as the cause of this one."""
    recovery_action: RecoveryAction | None = None
    companion: bool = False
    """A second line on the same event, which does not count again."""


@dataclass(slots=True)
class Memory:
    """What recognisers remember from line to line; a few words, however long the log is."""

    probed: Line | None = None
    """The line that names a GPU at probe time, a line or two before the one that says that it is lost."""
    named_gpu: Component | None = None
    """The GPU whose serial number the next line tells."""
    troubled_gpu: Component | None = None
    """The GPU whose driver last cleaned up after trouble, and when: what a task that hangs soon after hangs on."""
    troubled_at: Moment | None = None
    stack_lines_left: int = 0
    """Lines of a hung task's stack that may still come."""
    firmware_severity: str = ""
    """Severity of the firmware's error record under way."""
    identities: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Lines that tell a GPU's UUID or serial number, by GPU."""

    def note_identity(self, component: Component, raw: str) -> None:
        """Remembers a line that tells who a GPU is, for the first GPUs that a node can hold."""
        known = self.identities.get(component.id, ())
        if len(known) < _IDENTITY_LINES_KEPT and (known or len(self.identities) < _IDENTITIES_KEPT):
            self.identities[component.id] = (*known, raw)

    def note_trouble(self, sighting: Sighting) -> None:
        """Remembers the GPU of a sighting after which a task that hangs hangs on the driver.

        Xid 45 tells that the driver was taking a workload off the GPU; a fault that needs a rung, that it is in worse
        trouble. A plain application fault is neither.
        """
        rung = sighting.judgement.rung if sighting.judgement else lookup(sighting.code).rung
        if sighting.code == _CLEANUP or rung is not Rung.NONE:
            self.troubled_gpu, self.troubled_at = sighting.component, sighting.line.moment


def short_pci(address: str) -> str:
    """`00000000:B3:00.0` gives `0000:b3:00`: how a GPU or a switch is named. Anything else gives `UNKNOWN`."""
    parts = _PCI_PARTS.fullmatch(address)
    if not parts:
        return UNKNOWN
    domain = (parts[1] or "0000").lower().lstrip("0").rjust(4, "0")
    return f"{domain}:{parts[2].lower()}:{parts[3].lower()}"


def full_pci(address: str) -> str:
    """As `short_pci`, with the function: how a network adapter or a PCIe port is named."""
    parts = _PCI_PARTS.fullmatch(address)
    return f"{short_pci(address)}.{(parts[4] or '0').lower()}" if parts else UNKNOWN


def gpu(address: str | None) -> Component:
    """The GPU at a PCI address, or the unknown GPU."""
    return Component(kind=ComponentKind.GPU, id=short_pci(address or ""))


HOST: Final = Component(kind=ComponentKind.HOST, id="host")
NVIDIA_DRIVER: Final = Component(kind=ComponentKind.DRIVER, id="nvidia")
