"""The host activities against a simulated host: its nvidia-smi, its driver, its reboot program."""

import asyncio
import os
import shlex
import stat
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from temporalio.testing import ActivityEnvironment

from activities.host import HostActivities, ProbeRequest, RebootReport, RebootRequest, ResetReport, ResetRequest
from activities.host_ledger import Entry, HostAct, HostLedger
from health.agent import NodeAgent
from health.settings import NodeSettings
from simulator.host import native
from simulator.host.faults import Cure, HostFault, HostTrouble
from simulator.host.machine import HostMachine
from tests.eventually import eventually
from tests.simulator.hosts import lost, reset_needed, running_host

INCIDENT = "incident-demo-i-0123456789abcdef0"


class Host:
    """A simulated machine with our agent and activities, in this process."""

    def __init__(self, machine: HostMachine, settings: NodeSettings) -> None:
        self.machine = machine
        self.settings = settings
        self.agent = NodeAgent(settings)
        self.activities = HostActivities(settings, self.agent)

    @property
    def pci(self) -> str:
        """The GPU that `reset_needed` breaks."""
        return self.machine.driver.gpus[3].pci

    async def reset(self, attempt: int = 1, **more: Any) -> ResetReport:
        request = {"incident_id": INCIDENT, "attempt": attempt, "boot_id": self.agent.boot_id, "pcis": (self.pci,)}
        return await ActivityEnvironment().run(self.activities.reset_gpus, ResetRequest.model_validate(request | more))

    async def reboot(self, attempt: int = 1, **more: Any) -> RebootReport:
        request = {"incident_id": INCIDENT, "attempt": attempt, "boot_id": self.agent.boot_id}
        return await ActivityEnvironment().run(
            self.activities.reboot_host, RebootRequest.model_validate(request | more)
        )


def services(folder: Path) -> str:
    """A command that works as systemctl does, over files: a unit runs while there is a file of its name."""
    program = folder / "services"
    program.write_text(
        "#!/bin/sh\n"
        f"cd {shlex.quote(str(folder))}\n"
        'echo "$*" >> services.log\n'
        'case "$1" in\n'
        '  is-active) test -e "$3" ;;\n'
        '  stop) test -e "$2.stuck" && { echo "stop job timed out" >&2; exit 1; }; rm "$2" ;;\n'
        '  start) touch "$2" ;;\n'
        "esac\n"
    )
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return str(program)


@pytest.fixture
async def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Host]:
    async with running_host(tmp_path) as machine:
        programs = native.build()
        monkeypatch.setenv("SICKBAY_SIM_GPU_STATE", str(machine.driver.state_file))
        settings = NodeSettings(
            node_name=machine.node_name,
            expected_gpus=8,
            kmsg_path=machine.driver.kernel_log.path,
            boot_id_path=machine.folder / "run" / "boot_id",
            host_root=machine.folder / "run" / "host",
            watch_clock=False,
            nvidia_smi=str(programs.nvidia_smi),
            nvml_library=str(programs.nvml_library),
            reboot_command=str(programs.reboot),
            service_command=services(tmp_path),
            gpu_clients="nvidia-persistenced nvidia-dcgm",
            state_dir=tmp_path / "state",
            kernel_log_seconds=0.02,
            probe_seconds=3600,
        )
        for unit in ("nvidia-persistenced", "nvidia-dcgm"):
            (tmp_path / unit).touch()
        made = Host(machine, settings)
        running = asyncio.create_task(made.agent.run())
        await eventually(lambda: made.agent.passed)
        yield made
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


def orders(folder: Path) -> list[str]:
    """What was asked of the services, questions left out."""
    log = folder / "services.log"
    lines = log.read_text().splitlines() if log.exists() else []
    return [line for line in lines if line.startswith(("stop", "start"))]


def codes(host: Host) -> set[str]:
    return {fault.code for fault in host.agent.report().faults}


async def test_a_probe_is_one_full_pass_of_all_layers(host: Host) -> None:
    host.machine.inject(reset_needed(3))
    request = ProbeRequest(incident_id=INCIDENT)
    probe = await ActivityEnvironment().run(host.activities.probe_host, request)
    assert (probe.gpus_answered, len(probe.gpus), probe.boot_id) == (True, 8, host.machine.boot_id)
    assert {"xid-95", "gpu-reset-required"} <= {fault.code for fault in probe.faults}


async def test_a_reset_cures_restores_its_clients_and_is_done_once(host: Host, tmp_path: Path) -> None:
    host.machine.inject(reset_needed(3))
    await eventually(lambda: "xid-95" in codes(host))
    report = await host.reset()
    assert (report.reset, report.already, report.refused) == (True, False, "")
    assert report.clients_stopped == ("nvidia-persistenced", "nvidia-dcgm")
    assert codes(host) == set()
    assert orders(tmp_path) == [
        "stop nvidia-persistenced",
        "stop nvidia-dcgm",
        "start nvidia-dcgm",
        "start nvidia-persistenced",
    ]
    again = await host.reset()
    assert (again.reset, again.already) == (True, True)
    assert len(orders(tmp_path)) == 4


async def test_a_client_that_did_not_run_is_not_started(host: Host, tmp_path: Path) -> None:
    (tmp_path / "nvidia-dcgm").unlink()
    assert (await host.reset()).clients_stopped == ("nvidia-persistenced",)
    assert not (tmp_path / "nvidia-dcgm").exists()
    assert (tmp_path / "nvidia-persistenced").exists()


async def test_a_reset_is_refused_in_words_while_a_process_uses_the_gpu(host: Host, tmp_path: Path) -> None:
    host.machine.occupy("pod-1", 4)
    report = await host.reset()
    assert not report.reset
    assert "a process still uses the GPU" in report.refused
    assert (tmp_path / "nvidia-dcgm").exists()
    host.machine.vacate("pod-1")
    assert (await host.reset()).reset


async def test_a_reset_that_is_not_supported_here_is_refused_in_words(host: Host) -> None:
    trouble = HostTrouble(reset_refused="GPU Reset couldn't run because GPU 0000:86:00.0 is in a virtual machine")
    host.machine.inject(HostFault(host_trouble=trouble, cured_by=Cure.REBOOT))
    report = await host.reset()
    assert report.refused.startswith("nvidia-smi refused: this GPU or virtual machine does not support a reset")


async def test_a_driver_that_hangs_is_given_up(host: Host, tmp_path: Path) -> None:
    host.machine.inject(HostFault(host_trouble=HostTrouble(driver_hangs=True), cured_by=Cure.REBOOT))
    host.activities = HostActivities(host.settings.model_copy(update={"reset_seconds": 0.5}), host.agent)
    report = await host.reset()
    assert report.refused == "nvidia-smi hangs: the driver does not answer"
    assert (tmp_path / "nvidia-persistenced").exists()


async def test_a_client_that_does_not_stop_keeps_the_gpu_from_being_reset(host: Host, tmp_path: Path) -> None:
    (tmp_path / "nvidia-dcgm.stuck").touch()
    report = await host.reset()
    assert report.refused == "cannot stop nvidia-dcgm: exit code 1: stop job timed out"
    assert (tmp_path / "nvidia-persistenced").exists()


async def test_a_gpu_that_is_lost_is_not_cured_by_a_reset(host: Host) -> None:
    host.machine.inject(lost(3))
    await eventually(lambda: "xid-79" in codes(host))
    report = await host.reset()
    assert not report.reset
    assert report.refused


async def test_nothing_is_reset_in_another_boot_than_the_one_that_was_judged(host: Host, tmp_path: Path) -> None:
    report = await host.reset(boot_id="an-earlier-boot")
    assert report.refused == "the host was rebooted since the reset was decided"
    assert orders(tmp_path) == []


async def test_a_cancelled_reset_is_brought_to_its_end_first(host: Host, tmp_path: Path) -> None:
    environment = ActivityEnvironment()
    request = ResetRequest(incident_id=INCIDENT, attempt=1, boot_id=host.agent.boot_id, pcis=(host.pci,))
    resetting = asyncio.create_task(environment.run(host.activities.reset_gpus, request))
    await eventually(lambda: not (tmp_path / "nvidia-persistenced").exists())
    environment.cancel()
    with pytest.raises(asyncio.CancelledError):
        await resetting
    assert (tmp_path / "nvidia-persistenced").exists()
    assert (await host.reset()).already


async def test_clients_left_stopped_by_an_agent_that_died_are_started_at_the_next_start(
    host: Host, tmp_path: Path
) -> None:
    (tmp_path / "nvidia-dcgm").unlink()
    entry = Entry(
        act=HostAct.RESET,
        incident_id=INCIDENT,
        attempt=1,
        boot_id=host.agent.boot_id,
        asked_at=host.agent.report().reported_at,
        clients_stopped=("nvidia-dcgm",),
    )
    HostLedger(host.settings.state_dir).write(entry)
    assert await host.activities.restore_clients() == ()
    assert (tmp_path / "nvidia-dcgm").exists()
    # What came of the reset nobody knows: it is done again.
    report = await host.reset()
    assert (report.reset, report.already) == (True, False)


async def test_a_reboot_is_asked_for_once_and_the_next_boot_knows_of_it(host: Host) -> None:
    before = host.agent.boot_id
    assert (await host.reboot()).requested
    await eventually(lambda: host.machine.boot_id not in ("", before))
    after = await host.reboot(boot_id=before)
    assert (after.requested, after.already, after.refused) == (False, True, "")


async def test_a_repeated_order_in_the_same_boot_is_one_reboot(host: Host, tmp_path: Path) -> None:
    asked = tmp_path / "asked"
    command = tmp_path / "reboot"
    command.write_text(f"#!/bin/sh\necho reboot >> {shlex.quote(str(asked))}\n")
    command.chmod(0o755)
    host.activities = HostActivities(host.settings.model_copy(update={"reboot_command": str(command)}), host.agent)
    assert (await host.reboot()).requested
    assert (await host.reboot()).already
    assert asked.read_text() == "reboot\n"
    assert (await host.reboot(attempt=2)).requested


async def test_a_later_incident_of_the_machine_is_not_taken_for_an_earlier_one(host: Host, tmp_path: Path) -> None:
    first, second = (datetime(2026, 11, day, tzinfo=UTC) for day in (1, 8))
    asked = tmp_path / "asked"
    command = f"sh -c 'echo reboot >> {shlex.quote(str(asked))}'"
    host.activities = HostActivities(host.settings.model_copy(update={"reboot_command": command}), host.agent)
    assert (await host.reset(decided_at=first)).reset
    assert not (await host.reset(decided_at=second)).already
    assert (await host.reboot(decided_at=first)).requested
    assert (await host.reboot(decided_at=second)).requested
    assert (await host.reboot(decided_at=second)).already
    assert asked.read_text() == "reboot\nreboot\n"


async def test_a_host_that_refuses_to_reboot_says_why_and_may_be_asked_again(host: Host) -> None:
    command = "sh -c 'echo Access denied >&2; exit 4'"
    host.activities = HostActivities(host.settings.model_copy(update={"reboot_command": command}), host.agent)
    for _ in range(2):
        report = await host.reboot()
        assert report.refused == "the host refused to reboot: exit code 4: Access denied"


async def test_a_pass_tells_temporal_that_it_lives(host: Host) -> None:
    beats: list[object] = []
    environment = ActivityEnvironment()
    environment.on_heartbeat = lambda *details: beats.append(details)
    request = ProbeRequest(incident_id=INCIDENT)
    await environment.run(host.activities.probe_host, request)
    assert beats


def test_the_ledger_keeps_only_its_newest_entries(tmp_path: Path) -> None:
    ledger = HostLedger(tmp_path)
    entries = [
        Entry.model_validate(
            {
                "act": "reset",
                "incident_id": "a",
                "attempt": attempt,
                "boot_id": "b",
                "asked_at": "2026-11-30T12:00:00Z",
            }
        )
        for attempt in range(60)
    ]
    for entry in entries:
        ledger.write(entry)
    assert ledger.find(entries[9]) is None
    assert ledger.find(entries[10]) is not None
    assert os.listdir(tmp_path) == ["host-acts.json"]
