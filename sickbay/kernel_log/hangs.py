"""Tasks and CPUs that hang in the kernel: the only sign of a driver that waits for a GPU for ever.

A hung task alone may wait for a file server. It hangs on the GPU driver when a frame of its stack is in an nvidia
module, when it is a program of the driver, or when the driver had been taking work off a GPU shortly before.
"""

import re
from typing import Final

from sickbay.faults import Component
from sickbay.kernel_log.lines import Line, seconds_between
from sickbay.kernel_log.sighting import HOST, NVIDIA_DRIVER, Memory, Sighting

KEYS = ("blocked for more than", "soft lockup", "hard LOCKUP")

STACK_LINES: Final = 64
"""Lines after the message that are read for the stack: longer than the kernel prints for one task."""
TROUBLE_LASTS: Final = 600.0
"""Seconds after an Xid in which a task that hangs is taken to hang on the driver. The kernel tells of a task when it
has hung for 120 seconds, and again every 120 seconds."""

_HUNG_TASK = re.compile(r"INFO: task (?P<name>.{1,64}?):(?P<pid>\d+) blocked for more than \d+ seconds")
_SOFT_LOCKUP = re.compile(r"BUG: soft lockup - CPU#\d+ stuck for \d+s")
_HARD_LOCKUP = re.compile(r"hard LOCKUP on cpu \d+", re.IGNORECASE)
_NVIDIA_FRAME = re.compile(r"\+0x[0-9a-f]+/0x[0-9a-f]+ \[nvidia(?:_\w+)?\]")
_NVIDIA_PROGRAM = re.compile(r"(?:nvidia|nv_|nv-|dcgm|irq/\d+-nvidia|UVM )", re.IGNORECASE)


def recognise(line: Line, memory: Memory) -> Sighting | None:
    """The fault of a line that tells of a hang."""
    task = _HUNG_TASK.search(line.text)
    if task:
        memory.stack_lines_left = STACK_LINES
        troubled = _troubled_gpu(line, memory)
        if troubled or _NVIDIA_PROGRAM.match(task["name"]):
            return Sighting("driver-hung", troubled or NVIDIA_DRIVER, line)
        return Sighting("hung-task", HOST, line)
    if _SOFT_LOCKUP.search(line.text):
        memory.stack_lines_left = STACK_LINES
        return Sighting("soft-lockup", HOST, line)
    if _HARD_LOCKUP.search(line.text):
        return Sighting("hard-lockup", HOST, line)
    return None


def recognise_frame(line: Line, memory: Memory) -> Sighting | None:
    """The fault of a frame in the stack of a hang, if the frame is in a module of the GPU driver."""
    if not memory.stack_lines_left or not _NVIDIA_FRAME.search(line.text):
        return None
    memory.stack_lines_left = 0
    return Sighting("driver-hung", _troubled_gpu(line, memory) or NVIDIA_DRIVER, line)


def _troubled_gpu(line: Line, memory: Memory) -> Component | None:
    """The GPU in trouble shortly before this line; where stamps cannot be compared, at any time before it."""
    if memory.troubled_gpu is None:
        return None
    passed = seconds_between(memory.troubled_at, line.moment)
    return memory.troubled_gpu if passed is None or 0 <= passed <= TROUBLE_LASTS else None
