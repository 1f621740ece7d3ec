"""NVML's events through a real child, the real pynvml and the simulated library."""

import os
import signal
import sys
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest

from health.nvml_events import NvmlEvents
from sickbay.faults import Rung
from simulator.host import native
from simulator.host.machine import HostMachine
from tests.eventually import eventually
from tests.simulator.hosts import alive, lost, reset_needed, running_host

AT_ONCE = timedelta(milliseconds=10)


@pytest.fixture
async def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[HostMachine]:
    async with running_host(tmp_path) as running:
        monkeypatch.setenv("SICKBAY_SIM_GPU_STATE", str(running.driver.state_file))
        yield running


@pytest.fixture
async def events(machine: HostMachine) -> AsyncIterator[NvmlEvents]:
    reader = NvmlEvents("boot-1", str(native.build().nvml_library), pause=AT_ONCE)
    reader.start()
    await eventually(reader.ready.is_set)
    yield reader
    reader.stop()


def seen(events: NvmlEvents) -> dict[tuple[str, str], int]:
    return {(fault.code, fault.component.id): fault.count for fault in events.take()}


async def test_an_xid_comes_as_an_event_of_its_gpu_and_the_verdict_opens_nothing(
    machine: HostMachine, events: NvmlEvents
) -> None:
    """detection 8.23"""
    machine.inject(lost(5))
    await eventually(lambda: bool(events.take()))
    machine.inject(reset_needed(3))
    await eventually(lambda: len(events.take()) > 1)
    pcis = [gpu.pci for gpu in machine.driver.gpus]
    assert seen(events) == {("xid-79", pcis[5]): 1, ("xid-95", pcis[3]): 1}
    assert all(fault.rung is not Rung.NONE and fault.boot_id == "boot-1" for fault in events.take())


async def test_after_a_stop_nobody_holds_the_gpus_and_a_start_waits_again(
    machine: HostMachine, events: NvmlEvents
) -> None:
    (child,) = children()
    assert events.stop()
    assert not alive(child)
    assert events.stop()
    machine.inject(lost(1))
    events.start()
    await eventually(lambda: children() not in ([], [child]))
    await eventually(events.ready.is_set)
    machine.inject(lost(2))
    await eventually(lambda: bool(events.take()))
    assert {pci for _, pci in seen(events)} == {machine.driver.gpus[2].pci}


async def test_a_child_that_dies_is_followed_by_another(machine: HostMachine, events: NvmlEvents) -> None:
    (child,) = children()
    os.kill(child, signal.SIGKILL)
    await eventually(lambda: children() not in ([], [child]))
    await eventually(events.ready.is_set)
    machine.inject(lost(2))
    await eventually(lambda: bool(events.take()))


async def test_without_a_driver_nothing_is_heard_and_nothing_breaks() -> None:
    events = NvmlEvents("boot-1", "/nonexistent/libnvidia-ml.so.1", pause=timedelta(minutes=1))
    events.start()
    events.start()
    assert events.take() == ()
    assert events.stop()


async def test_a_child_that_cannot_be_started_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/nonexistent/python")
    events = NvmlEvents("boot-1", pause=timedelta(minutes=1))
    events.start()
    assert events.stop()


def children() -> list[int]:
    """Processes of ours that wait for events."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes()
            parent = int((folder / "stat").read_text().rsplit(")", 1)[1].split()[1])
        except OSError:
            continue
        if b"nvml_events_child" in words and parent == os.getpid():
            found.append(int(folder.name))
    return found
