"""Host memory and firmware errors, and processes that were killed or crashed."""

import re

from sickbay.faults import Component, ComponentKind
from sickbay.kernel_log.lines import Line
from sickbay.kernel_log.sighting import HOST, UNKNOWN, Memory, Sighting

KEYS = (
    "EDAC MC",
    "[Hardware Error]",
    "CMCI storm",
    "hardware memory error",
    "Memory failure: 0x",
    "Fatal machine check",
    "oom-kill",
    "Killed process",
    "in libnccl",
)

_EDAC = re.compile(r"EDAC MC\w*: (?:\d+ )?(?P<kind>UE|CE) .*? on (?P<module>[^\s(]+)")
_MEMORY_FAILURE = re.compile(r"Memory failure: 0x[0-9a-f]+: |Uncorrected hardware memory error")
_FATAL_MACHINE_CHECK = re.compile(r"Fatal machine check|\[Hardware Error\]: CPU \d+: Machine Check Exception")
_RECORD_SEVERITY = re.compile(r"\[Hardware Error\]: event severity: (?P<severity>\w+)")
_RECORD_OF_MEMORY = re.compile(r"\[Hardware Error\]:\s+section_type: memory error")
_MACHINE_CHECK = re.compile(r"\[Hardware Error\]: Machine check events logged|CMCI storm detected")
_KILLED = re.compile(r"\bKilled process \d+")
_OUT_OF_MEMORY = re.compile(r"oom-kill:constraint=|invoked oom-killer")
_NCCL_SEGFAULT = re.compile(r"segfault at .* in libnccl")

_MEMORY = Component(kind=ComponentKind.MEMORY, id=UNKNOWN)


def recognise(line: Line, memory: Memory) -> Sighting | None:
    """The fault of a line on host memory, host hardware or a process's end."""
    return _memory_error(line) or _firmware_record(line, memory) or _machine_check(line) or _process_end(line)


def _memory_error(line: Line) -> Sighting | None:
    edac = _EDAC.search(line.text)
    if edac:
        code = "host-memory-uncorrected" if edac["kind"] == "UE" else "host-memory-corrected"
        return Sighting(code, Component(kind=ComponentKind.MEMORY, id=edac["module"]), line)
    if _MEMORY_FAILURE.search(line.text):
        return Sighting("host-memory-uncorrected", _MEMORY, line)
    return None


def _firmware_record(line: Line, memory: Memory) -> Sighting | None:
    """A record of the platform's firmware: its severity first, then what it is about."""
    severity = _RECORD_SEVERITY.search(line.text)
    if severity:
        memory.firmware_severity = severity["severity"]
        fatal = memory.firmware_severity == "fatal"
        return Sighting("host-hardware-fatal" if fatal else "host-hardware-error", HOST, line)
    if _RECORD_OF_MEMORY.search(line.text):
        lost = memory.firmware_severity in ("fatal", "recoverable")
        return Sighting("host-memory-uncorrected" if lost else "host-memory-corrected", _MEMORY, line)
    return None


def _machine_check(line: Line) -> Sighting | None:
    if _FATAL_MACHINE_CHECK.search(line.text):
        return Sighting("host-hardware-fatal", HOST, line)
    if _MACHINE_CHECK.search(line.text):
        return Sighting("host-hardware-error", HOST, line)
    return None


def _process_end(line: Line) -> Sighting | None:
    if _KILLED.search(line.text):
        return Sighting("oom-kill", HOST, line)
    if _OUT_OF_MEMORY.search(line.text):
        return Sighting("oom-kill", HOST, line, companion=True)
    if _NCCL_SEGFAULT.search(line.text):
        return Sighting("nccl-segfault", HOST, line)
    return None
