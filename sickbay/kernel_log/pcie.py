"""PCIe Advanced Error Reporting: what root ports and devices tell of errors on the bus.

An error is printed twice or more: by the port that received it and by the device that made it. The device's own line
counts, where it is a GPU; a port's fault then follows the GPU's (`sickbay.diagnosis`).
"""

import re

from sickbay.faults import Component, ComponentKind, FaultClass, Rung, Severity
from sickbay.kernel_log.lines import Line
from sickbay.kernel_log.sighting import PCI, Judgement, Memory, Sighting, full_pci, gpu

KEYS = ("AER: ", "PCIe Bus Error")

_DEVICE = rf"(?:(?P<driver>[\w-]+) (?P<pci>{PCI}): )?"
_RECEIVED = re.compile(
    rf"{_DEVICE}AER: (?:Multiple )?(?P<word>Uncorrect\w+ \((?:Non-)?Fatal\)|Correct\w+) error(?: message)? received"
    rf"(?::| from:?) (?P<source>{PCI})",
    re.IGNORECASE,
)
_BUS_ERROR = re.compile(
    rf"{_DEVICE}(?:AER: )?PCIe Bus Error: severity=(?P<word>Uncorrect\w+ \((?:Non-)?Fatal\)|Correct\w+)", re.IGNORECASE
)
_NOT_RECOVERED = re.compile(rf"{_DEVICE}AER: (?:can't recover|device recovery failed)")

_GPU_CUT_OFF = Judgement(FaultClass.GPU, Rung.REBOOT, Severity.FATAL)


def recognise(line: Line, memory: Memory) -> Sighting | None:  # noqa: ARG001 -- every recogniser has this shape
    """The fault of an AER line."""
    found = _RECEIVED.search(line.text)
    if found:
        return _sighting(found["word"], _component(found["driver"], found["source"]), line)
    found = _BUS_ERROR.search(line.text)
    if found:
        return _sighting(found["word"], _component(found["driver"], found["pci"]), line, companion=True)
    found = _NOT_RECOVERED.search(line.text)
    if found and found["driver"] == "nvidia":
        # Only uncorrectable errors are recovered from at all, and a GPU that was not is as good as lost.
        return _sighting("uncorrected (fatal)", gpu(found["pci"]), line)
    return None


def _sighting(word: str, component: Component, line: Line, *, companion: bool = False) -> Sighting:
    code = _code(word)
    of_a_gpu = code == "pcie-aer-fatal" and component.kind is ComponentKind.GPU
    return Sighting(code, component, line, _GPU_CUT_OFF if of_a_gpu else None, companion=companion)


def _code(word: str) -> str:
    word = word.lower()
    if word.startswith("correct"):
        return "pcie-aer-correctable"
    return "pcie-aer-nonfatal" if "non-fatal" in word else "pcie-aer-fatal"


def _component(driver: str | None, address: str | None) -> Component:
    if driver == "nvidia":
        return gpu(address)
    return Component(kind=ComponentKind.PCIE, id=full_pci(address or ""))
