"""Processes that wait in the kernel without an end, inside the GPU driver above all, and zombies.

Called by `health.host`. A process in state D takes no signal; one look proves nothing, since every disk access passes
through it. The bound is gpud's: five looks in a row, a minute apart (facts: detection, 2 and 7). A job that moves much
memory is in state D at most looks and goes on all the same: of it, as for the kernel's own watch, the count of its
switches must stand still. The driver's own tools have nothing to do for minutes, and may poll while they hang.
"""

import re
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Final

from sickbay.checks import CheckMoment, CheckOutcome, judged, unknown
from sickbay.faults import Fault
from sickbay.file_readings import FileReadings, Process, Wanted
from sickbay.host_layer.said import DRIVER, HOST, remembered, seen
from sickbay.model import Frozen

KERNEL_PARENT: Final = "kthreadd"
"""Runs on every host, and is seen by nobody who sees only a container's processes."""
PROCESSES_WANTED: Final = Wanted(processes=True, process_names=(KERNEL_PARENT,))

LOOKS: Final = 5
STUCK_FOR: Final = timedelta(minutes=4)
"""Five looks, a minute apart; looks in between, for a probe, do not shorten it."""
ZOMBIES: Final = 1000

_NVIDIA_NAME: Final = re.compile(r"^nvidia")
_NVIDIA_STACK: Final = re.compile(r"\[nvidia(?:_\w+)?\]")
_NVIDIA_FUNCTION: Final = re.compile(r"^(?:nvidia_|nv_|_nv\d|nvkms_|rm_|uvm_)")


class Stuck(Frozen):
    """A process that was in state D at each of some looks in a row."""

    since: datetime
    looks: int
    switches: int | None = None
    """How often it had given or lost its CPU."""


class ProcessMemory(Frozen):
    """What the check remembers: processes in state D at the last look, by pid and start."""

    stuck: Mapping[str, Stuck] = {}


def judge_processes(readings: FileReadings, moment: CheckMoment) -> CheckOutcome:
    """Processes that hang, and too many zombies."""
    if readings.process_count is None:
        return unknown(f"the processes cannot be listed: {readings.silent or readings.why('/proc')}")
    if not sees_host(readings):
        return unknown("only a container's processes are seen: run the agent with hostPID", moment.memory)
    before = remembered(ProcessMemory, moment).stuck
    now: dict[str, Stuck] = {}
    found: list[Fault] = []
    for process in readings.processes:
        if process.state != "D":
            continue
        key = f"{process.pid} {process.started}"
        now[key] = stuck = _after(process, before.get(key), moment.now)
        if stuck.looks >= LOOKS and moment.now - stuck.since >= STUCK_FOR:
            found.append(_hung(process, stuck.since, moment))
    zombies = readings.process_count.zombies
    if zombies >= ZOMBIES:
        found.append(seen("zombie-processes", HOST, moment, f"{zombies} zombies, the limit is {ZOMBIES}"))
    return judged(found, memory=ProcessMemory(stuck=now).model_dump_json())


def sees_host(readings: FileReadings) -> bool:
    """Whether the processes that were seen are the host's, and not only a container's."""
    return any(process.name == KERNEL_PARENT for process in readings.processes)


def in_driver(process: Process) -> bool:
    """Whether a process that hangs does so inside the GPU driver, or is the driver's own."""
    return bool(
        _NVIDIA_NAME.match(process.name)
        or _NVIDIA_STACK.search(process.stack)
        or _NVIDIA_FUNCTION.match(process.waits_in)
    )


def _after(process: Process, earlier: Stuck | None, now: datetime) -> Stuck:
    """A process in state D at one more look; one that went on meanwhile is counted anew."""
    went_on = (
        earlier is not None
        and None not in (earlier.switches, process.switches)
        and earlier.switches != process.switches
        and not _NVIDIA_NAME.match(process.name)
    )
    if earlier is None or went_on:
        return Stuck(since=now, looks=1, switches=process.switches)
    return earlier.model_copy(update={"looks": earlier.looks + 1})


def _hung(process: Process, since: datetime, moment: CheckMoment) -> Fault:
    minutes = (moment.now - since).total_seconds() / 60
    place = f", in {process.waits_in}" if process.waits_in not in ("", "0") else ""
    evidence = f"process {process.pid} ({process.name}) has waited in the kernel for {minutes:.0f} minutes{place}"
    if in_driver(process):
        return seen("driver-hung", DRIVER, moment, evidence, *process.stack.splitlines()[:3])
    return seen("hung-task", HOST, moment, evidence)
