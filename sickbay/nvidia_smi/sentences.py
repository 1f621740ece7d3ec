"""The sentences that nvidia-smi prints in the place of its output, or between the rows of it.

A sentence that names a GPU is a fault of that GPU. One that tells why nothing was read is no fault of any GPU: software
that does not fit, rights that are missing, devices that a container does not have.
"""

import re
from collections.abc import Iterable
from typing import Final

from sickbay.catalogue import fault_of
from sickbay.faults import Component, ComponentKind, Fault
from sickbay.model import Frozen
from sickbay.nvidia_smi import cells

_HANDLE: Final = re.compile(r"unable to determine the device handle for (?P<which>.*)", re.IGNORECASE)
_INFOROM: Final = re.compile(r"inforom is corrupted at gpu (?P<which>\S+)", re.IGNORECASE)
_LOST: Final = re.compile(r"\bGPU is lost\b|\bfallen off the bus\b", re.IGNORECASE)
_RESET_REQUIRED: Final = re.compile(r"\bGPU requires reset\b", re.IGNORECASE)
_NO_DEVICES: Final = re.compile(r"^\s*No devices (?:were )?found", re.IGNORECASE)
_ROW: Final = re.compile(r",.*,|\[")
"""A row of csv, where the words of an error stand in the place of values."""

_CODES: Final = {cells.LOST: "gpu-lost", cells.RESET_REQUIRED: "gpu-reset-required"}

_NOTHING_READ: Final = (
    (
        re.compile(r"failed to initialize nvml: driver/library version mismatch", re.IGNORECASE),
        "kernel module and library of the driver differ in version, so that no GPU was read: load the driver anew",
    ),
    (
        re.compile(r"failed to initialize nvml: driver not loaded|couldn't communicate with the NVIDIA driver", re.I),
        "the NVIDIA driver is not loaded, so that no GPU was read",
    ),
    (
        re.compile(r"failed to initialize nvml: (?P<words>.*)", re.IGNORECASE),
        "NVML did not start, so that no GPU was read: in a container, lost access to the devices is the usual cause",
    ),
    (re.compile(r"^\s*NVML library version:", re.IGNORECASE), ""),
    (
        re.compile(r"command not found|no such file or directory|nvidia-smi: not found", re.IGNORECASE),
        "there is no nvidia-smi where it was called",
    ),
    (
        re.compile(r"currently being used by|in use by|could not be reset|couldn't be reset|reset couldn't", re.I),
        "a GPU was to be reset and was not: whatever the reset was to clear is still there",
    ),
    (
        re.compile(r"was successfully reset", re.IGNORECASE),
        "a GPU was reset, which tells nothing of how it is since",
    ),
    (
        re.compile(r"^\s*(?:All done\.|Terminating early due to|Treating as warning|Please first kill)", re.IGNORECASE),
        "",
    ),
    (re.compile(r"insufficient permissions", re.IGNORECASE), "the caller had too few rights to read the GPUs"),
    (
        re.compile(r"^\s*(?:unable to|failed to|error:|error -|invalid|unrecognized)", re.IGNORECASE),
        "the command refused",
    ),
)
"""Sentences after which no GPU is known, and what they mean; those without a meaning belong to another one."""


class Said(Frozen):
    """What the sentences of an output say."""

    faults: tuple[Fault, ...] = ()
    open: tuple[str, ...] = ()
    """Why nothing can be judged, in words."""
    rest: str = ""
    """The output without them."""


def read_sentences(lines: Iterable[str], expected_gpus: int | None) -> Said:
    """The sentences among some lines. Raises nothing."""
    faults: list[Fault] = []
    open_questions: list[str] = []
    rest: list[str] = []
    for line in lines:
        fault = _fault(line, expected_gpus)
        meaning = None if fault else _meaning(line)
        if fault:
            faults.append(fault)
        elif meaning is not None:
            open_questions.append(meaning)
        else:
            rest.append(line)
    found = tuple(dict.fromkeys(words for words in open_questions if words))
    return Said(faults=tuple(faults), open=found, rest="\n".join(rest))


def _fault(line: str, expected_gpus: int | None) -> Fault | None:
    if _is_reading(line):
        return None
    handle = _HANDLE.search(line)
    if handle:
        error = cells.error_in(handle["which"]) or 0
        code = _CODES.get(error, "gpu-not-answering")
        return None if error == cells.NO_PERMISSION else _of_gpu(code, handle["which"], line)
    inforom = _INFOROM.search(line)
    if inforom:
        return _of_gpu("inforom-corrupted", inforom["which"], line)
    if _NO_DEVICES.match(line) and expected_gpus:
        evidence = f"{line.strip()}, where another recording counts {expected_gpus}"
        return _of_gpu("gpu-missing", "", evidence)
    if _ROW.search(line):
        return None
    if _LOST.search(line):
        return _of_gpu("gpu-lost", line, line)
    if _RESET_REQUIRED.search(line):
        return _of_gpu("gpu-reset-required", line, line)
    return None


def _is_reading(line: str) -> bool:
    """Whether it is a line of a table, of XML, or of a name and its value."""
    return line.lstrip().startswith(("|", "+", "<")) or line.partition(":")[0].endswith("  ")


def _of_gpu(code: str, which: str, evidence: str) -> Fault:
    component = Component(kind=ComponentKind.GPU, id=cells.address(which) or "unknown")
    return fault_of(code, component, evidence=(evidence.strip(),))


def _meaning(line: str) -> str | None:
    if _NO_DEVICES.match(line):
        return "no GPU was seen: whether there should be one is not in this output"
    if _is_reading(line):
        return None
    for pattern, meaning in _NOTHING_READ:
        found = pattern.search(line)
        if found:
            return meaning and f"{meaning} ({line.strip()})"
    return None
