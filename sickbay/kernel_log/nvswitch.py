"""SXid lines of the NVSwitch driver, and Fabric Manager's account of the same errors."""

import re

from sickbay.faults import Component, ComponentKind, FaultClass, Rung, Severity
from sickbay.kernel_log.lines import Line
from sickbay.kernel_log.sighting import PCI, WATCH_ONLY, Judgement, Memory, Sighting, short_pci

KEYS = ("SXid (PCI:", "detected NVSwitch")

_SXID = re.compile(rf"SXid \(PCI:(?P<pci>{PCI})\): (?P<number>\d{{1,6}})(?!\d)(?:, ?(?P<rest>.*))?")
_FABRIC_MANAGER = re.compile(
    rf"detected NVSwitch (?P<word>non-fatal|fatal) error (?P<number>\d{{1,6}})\b.*?bus id (?P<pci>{PCI})", re.IGNORECASE
)
_WORD = re.compile(r"(?P<word>Fatal|Non-?fatal)\b", re.IGNORECASE)
_FOLLOW_UP = re.compile(r"(?:Severity \d|Data \{)")

_FABRIC_DOWN = Judgement(FaultClass.FABRIC, Rung.REBOOT, Severity.FATAL)


def recognise(line: Line, memory: Memory) -> Sighting | None:  # noqa: ARG001 -- every recogniser has this shape
    """The fault of an SXid line. The lines that follow with severity and data are companions of the same event."""
    found = _FABRIC_MANAGER.search(line.text)
    if found:
        return _sighting(found, line, found["word"])
    found = _SXID.search(line.text)
    if not found:
        return None
    rest = found["rest"] or ""
    word = _WORD.match(rest)
    return _sighting(found, line, word["word"] if word else "", companion=_FOLLOW_UP.match(rest) is not None)


def _sighting(found: re.Match[str], line: Line, word: str, *, companion: bool = False) -> Sighting:
    judgement = None
    if word:
        judgement = _FABRIC_DOWN if word.lower() == "fatal" else WATCH_ONLY
    return Sighting(
        code=f"sxid-{int(found['number'])}",
        component=Component(kind=ComponentKind.NVSWITCH, id=short_pci(found["pci"])),
        line=line,
        judgement=judgement,
        companion=companion,
    )
