"""Xid lines: the NVIDIA driver's numbered errors of a GPU, in the forms of every driver since the 3xx series.

The words of the line outrank the number: Fatal and Nonfatal of NVLink 5, RST and D-RST of memory errors, the
registers of an NVLink error, the recovery action of 154 and the cause that 45 names.
"""

import re

from sickbay.faults import FaultClass, Rung, Severity, Workload
from sickbay.kernel_log.lines import Line
from sickbay.kernel_log.recovery import read_recovery_action
from sickbay.kernel_log.sighting import PCI, WATCH_ONLY, Judgement, Memory, Sighting, gpu

KEYS = ("NVRM: Xid (",)

_XID = re.compile(r"NVRM: Xid \((?:PCI:)?(?P<where>[^)]*)\): (?P<number>\d{1,6})(?!\d)(?:, ?(?P<rest>.*))?")
_WHERE = re.compile(rf"(?P<pci>{PCI})(?:\s+GPU-I:.*)?")
_PID = re.compile(r"pid='?(?P<pid>\d{1,10}|<unknown>)'?(?:, |$)")
_NAME = re.compile(r"name=(?P<name>[^,]*)(?:, |$)")
_CAUSE = re.compile(r"caused by previous Xid (\d{1,6})")
_FATAL_WORD = re.compile(r"\b(?P<word>Fatal|Non-?fatal)\b", re.IGNORECASE)
_RESET_WORDS = re.compile(r"\bRST: (?P<reset>Yes|No)(?:, D-RST: (?P<drain>Yes|No))?")
_NVLINK_REGISTERS = re.compile(r"\(0x(?P<first>[0-9a-fA-F]{1,8})[,)]")

_NVLINK5 = range(144, 151)
_NVLINK4 = 74
_UNCONTAINED = 95
_HARMLESS_NVLINK4_BITS = (1 << 0) | (1 << 23) | (1 << 30)

_MUST_RESET = Judgement(FaultClass.GPU, Rung.RESET_GPU, Severity.FATAL)
_RESET_AFTER_DRAIN = Judgement(FaultClass.GPU, Rung.RESET_GPU, Severity.WARNING)
_STOP_ALL_WORK = Judgement(FaultClass.GPU, Rung.STOP_WORKLOAD, Severity.FATAL)
_NVLINK_DOWN = Judgement(FaultClass.FABRIC, Rung.RESET_GPU, Severity.FATAL)


def recognise(line: Line, memory: Memory) -> Sighting | None:
    """The fault of an Xid line; None of any other line, and of one whose number cannot be read."""
    found = _XID.search(line.text)
    if not found:
        return None
    number, rest = int(found["number"]), found["rest"] or ""
    where = _WHERE.match(found["where"])
    component = gpu(where["pci"] if where else None)
    workload, words = _workload(rest)
    cause = _CAUSE.search(words)
    sighting = Sighting(
        code=f"xid-{number}",
        component=component,
        line=line,
        judgement=_judge(number, words),
        workload=workload,
        caused_by=f"xid-{int(cause[1])}" if cause else None,
        recovery_action=read_recovery_action(words) if number == 154 else None,
    )
    memory.note_trouble(sighting)
    return sighting


def _workload(rest: str) -> tuple[Workload | None, str]:
    """The process that a line names, if any, and the words after it."""
    pid = _PID.match(rest)
    if pid:
        rest = rest[pid.end() :]
    name = _NAME.match(rest)
    if name:
        rest = rest[name.end() :]
    if not pid or pid["pid"] == "<unknown>":
        return None, rest
    return Workload(pid=int(pid["pid"]), name=name["name"].strip() if name else ""), rest


def _judge(number: int, words: str) -> Judgement | None:
    if number in _NVLINK5:
        return _judge_nvlink5(words)
    if number == _NVLINK4:
        return _judge_nvlink4(words)
    return _judge_reset_words(number, words)


def _judge_nvlink5(words: str) -> Judgement | None:
    found = _FATAL_WORD.search(words)
    if not found:
        return None
    return _NVLINK_DOWN if found["word"].lower() == "fatal" else WATCH_ONLY


def _judge_nvlink4(words: str) -> Judgement | None:
    """Bits 0, 23 and 30 of the first register are to be ignored where they stand alone (facts: detection, 1d)."""
    found = _NVLINK_REGISTERS.search(words)
    bits = int(found["first"], 16) if found else 0
    return WATCH_ONLY if bits and not bits & ~_HARMLESS_NVLINK4_BITS else None


def _judge_reset_words(number: int, words: str) -> Judgement | None:
    """RST: reset the GPU. D-RST: drain it, then reset it. Neither: an uncontained error still ends all work on it."""
    found = _RESET_WORDS.search(words)
    if not found:
        return None
    if found["reset"] == "Yes":
        return _MUST_RESET
    if found["drain"] == "Yes":
        return _RESET_AFTER_DRAIN
    return _STOP_ALL_WORK if number == _UNCONTAINED else None
