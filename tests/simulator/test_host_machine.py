"""A simulated host's life: boots, faults, repairs, its agent, and the end of every process on it."""

import asyncio
import json
import os
import signal
import sys
from pathlib import Path

import pytest

from sickbay.kernel_log import scan
from simulator.host import native
from simulator.host.faults import Cure, HostFault, HostTrouble
from simulator.host.gpu import GpuTrouble
from simulator.host.machine import HostMachine, RepairTimes
from simulator.machine import Machine, Power
from tests.simulator.hosts import alive, kernel_log, lost, nvidia_smi, reset_needed, run_program, running_host
from tests.simulator.waiting import until

SLEEPER = (sys.executable, "-c", "import time; time.sleep(600)")

FAMILY = """
import os, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import signal, time; signal.pthread_sigmask(signal.SIG_BLOCK,"
                          " [signal.SIGTERM]); time.sleep(600)"], start_new_session=True)
with open(os.environ["SICKBAY_STATE_DIR"] + "/pids.new", "w") as file:
    file.write(f"{os.getpid()} {child.pid}")
os.rename(file.name, file.name[:-4])
time.sleep(600)
"""
"""An agent with a child in a session of its own that ignores SIGTERM."""


def family(folder: Path) -> list[int]:
    """Process ids that the agent FAMILY wrote."""
    files = list(folder.rglob("pids"))
    return [int(pid) for pid in files[0].read_text().split()] if files else []


async def reboot(machine: HostMachine) -> None:
    before = machine.boot_id
    await machine.reboot()
    await until(lambda: machine.boot_id not in ("", before))


async def test_a_machine_is_off_until_started_and_has_a_boot_id_only_while_it_runs(tmp_path: Path) -> None:
    async with running_host(tmp_path) as machine:
        protocol: Machine = machine
        assert protocol.boot_id == (machine.folder / "run" / "boot_id").read_text().strip()
        assert (protocol.kubelet_alive, protocol.gpu_capacity, protocol.gpu_allocatable) == (True, 8, 8)
        await machine.reboot()
        assert (machine.power, machine.boot_id, machine.kubelet_alive) == (Power.BOOTING, "", False)
    assert (machine.power, machine.boot_id, machine.gpu_allocatable) == (Power.OFF, "", 0)


async def test_each_boot_has_its_own_boot_id_and_kernel_log(tmp_path: Path) -> None:
    async with running_host(tmp_path) as machine:
        first = machine.boot_id
        machine.write_kernel_log(["a word of the first boot"])
        await reboot(machine)
        assert machine.boot_id != first
        assert "first boot" not in kernel_log(machine)
        assert kernel_log(machine).startswith("5,0,")


async def test_the_reboot_program_reboots_the_machine(tmp_path: Path) -> None:
    async with running_host(tmp_path) as machine:
        first = machine.boot_id
        assert (await run_program(machine, native.build().reboot)).code == 0
        await until(lambda: machine.boot_id not in ("", first))


async def test_a_reset_cures_what_it_can_and_the_driver_says_so(tmp_path: Path) -> None:
    async with running_host(tmp_path) as machine:
        machine.inject(reset_needed(gpu=3))
        assert machine.gpu_allocatable == 7
        assert next(fault.code for fault in scan(kernel_log(machine).splitlines())) == "xid-95"
        end = await nvidia_smi(machine, "--gpu-reset", "-i", "0000:86:00.0")
        assert (end.code, "00000000:86:00.0 was successfully reset" in end.text) == (0, True)
        assert machine.gpu_allocatable == 8
        assert "changed from 0x1 (GPU Reset Required) to 0x0 (None)" in kernel_log(machine)
        assert json.loads((machine.folder / "host" / "devices.json").read_text()) == {"lost": []}


async def test_a_reset_of_another_gpu_cures_nothing(tmp_path: Path) -> None:
    async with running_host(tmp_path) as machine:
        machine.inject(reset_needed(gpu=3))
        assert (await nvidia_smi(machine, "--gpu-reset", "-i", "4")).code == 0
        assert machine.gpu_allocatable == 7


async def test_a_reset_is_refused_while_a_process_is_on_the_gpu(tmp_path: Path) -> None:
    async with running_host(tmp_path) as machine:
        machine.occupy("pod-1", 8)
        machine.inject(reset_needed(gpu=3))
        refused = await nvidia_smi(machine, "--gpu-reset", "-i", "3")
        assert (refused.code, "In use by another client" in refused.text) == (255, True)
        machine.vacate("pod-1")
        assert (await nvidia_smi(machine, "--gpu-reset", "-i", "3")).code == 0


async def test_a_reset_is_refused_while_a_monitor_has_the_gpus_open(tmp_path: Path) -> None:
    async with running_host(tmp_path) as machine:
        machine.open_gpus("exporter")
        refused = await nvidia_smi(machine, "--gpu-reset", "-i", "3")
        assert (refused.code, "In use by another client" in refused.text) == (255, True)
        machine.vacate("exporter")
        assert (await nvidia_smi(machine, "--gpu-reset", "-i", "3")).code == 0


async def test_a_lost_gpu_cannot_be_reset(tmp_path: Path) -> None:
    async with running_host(tmp_path) as machine:
        machine.inject(lost(gpu=5))
        assert (await nvidia_smi(machine, "--gpu-reset", "-i", "5")).code == 15


async def test_a_host_may_not_support_resets(tmp_path: Path) -> None:
    async with running_host(tmp_path) as machine:
        refuses = HostTrouble(reset_refused="GPU reset is not supported on this platform")
        machine.inject(HostFault(host_trouble=refuses, cured_by=Cure.REPLACE))
        refused = await nvidia_smi(machine, "--gpu-reset")
    assert (refused.code, refused.text) == (3, "GPU reset is not supported on this platform\n")


async def test_a_fault_beyond_a_reset_comes_back_after_it(tmp_path: Path) -> None:
    relapsing = HostFault(
        gpu=1,
        kernel_log=("xid-119",),
        gpu_trouble=GpuTrouble(reset_required=True),
        cured_by=Cure.REBOOT,
        relapse_after=50,
    )
    async with running_host(tmp_path, speed=100) as machine:
        machine.inject(relapsing)
        assert (await nvidia_smi(machine, "--gpu-reset", "-i", "1")).code == 0
        assert machine.gpu_allocatable == 8
        await until(lambda: machine.gpu_allocatable == 7)
        assert kernel_log(machine).count(": 119, ") == 2
        await reboot(machine)
        assert machine.gpu_allocatable == 8


async def test_a_reboot_cures_a_lost_gpu_but_not_a_dead_one(tmp_path: Path) -> None:
    async with running_host(tmp_path) as machine:
        machine.inject(lost(gpu=5, cured_by=Cure.REBOOT))
        machine.inject(lost(gpu=6, cured_by=Cure.REPLACE))
        await reboot(machine)
        listed = (await nvidia_smi(machine, "-L")).text
        assert machine.driver.gpus[5].uuid in listed
        assert machine.driver.gpus[6].uuid not in listed
        assert len(listed.splitlines()) == 7
        assert [fault.code for fault in scan(kernel_log(machine).splitlines())] == ["gpu-lost"]


async def test_a_fault_that_passes_by_itself_leaves_the_host_well(tmp_path: Path) -> None:
    silent = HostFault(host_trouble=HostTrouble(kubelet_silent=True), cured_by=Cure.ITSELF, passes_after=100)
    async with running_host(tmp_path) as machine:
        machine.inject(silent)
        assert not machine.kubelet_alive
        await until(lambda: machine.kubelet_alive)


async def test_a_repeating_fault_writes_again_until_it_is_cured(tmp_path: Path) -> None:
    async with running_host(tmp_path) as machine:
        machine.inject(reset_needed(gpu=3, repeat_every=20))
        await until(lambda: kernel_log(machine).count(": 95, ") > 2)
        await nvidia_smi(machine, "--gpu-reset", "-i", "3")
        assert not machine.driver.faults.open


async def test_a_host_may_never_come_back_from_a_reboot(tmp_path: Path) -> None:
    async with running_host(tmp_path) as machine:
        machine.inject(HostFault(host_trouble=HostTrouble(reboot_hangs=True, impaired=True), cured_by=Cure.REPLACE))
        await machine.reboot()
        await asyncio.sleep(0)
        assert (machine.power, machine.impaired) == (Power.BOOTING, True)


async def test_a_fault_of_a_gpu_that_is_not_there_is_refused_in_words(tmp_path: Path) -> None:
    async with running_host(tmp_path, instance_type="g5.xlarge") as machine:
        with pytest.raises(ValueError, match="node-a has GPUs 0 to 0"):
            machine.inject(lost(gpu=5))


async def test_a_machine_without_power_takes_no_fault(tmp_path: Path) -> None:
    async with running_host(tmp_path) as machine:
        await machine.stop()
        with pytest.raises(ValueError, match="node-a is off"):
            machine.inject(lost())


async def test_the_agent_gets_its_host_s_names_and_starts_anew_with_each_boot(tmp_path: Path) -> None:
    telling = "import os, json, time; print(json.dumps(dict(os.environ)), flush=True); time.sleep(600)"
    async with running_host(tmp_path, agent=(sys.executable, "-c", telling)) as machine:
        log = machine.folder / "agent.log"
        await until(lambda: log.read_text().count("SICKBAY_NODE_NAME") == 1)
        for name in ("KMSG_PATH", "BOOT_ID_PATH", "NVIDIA_SMI", "NVML_LIBRARY", "STATE_DIR", "EXPECTED_GPUS"):
            assert f'"SICKBAY_{name}": ' in log.read_text()
        await reboot(machine)
        await until(lambda: log.read_text().count("SICKBAY_NODE_NAME") == 2)


async def test_a_killed_agent_is_started_again(tmp_path: Path) -> None:
    async with running_host(tmp_path, agent=SLEEPER) as machine:
        agent = machine.agent
        assert agent is not None
        await until(lambda: agent.running)
        assert agent.kill()
        await until(lambda: agent.starts == 2 and agent.running)


async def test_a_held_agent_stands_still_until_it_is_let_go(tmp_path: Path) -> None:
    async with running_host(tmp_path, agent=(sys.executable, "-c", FAMILY)) as machine:
        await until(lambda: bool(family(tmp_path)))
        state = Path(f"/proc/{family(tmp_path)[0]}/stat")
        machine.hold_agent(True)
        await until(lambda: ") T " in state.read_text())
        machine.hold_agent(False)
        await until(lambda: ") S " in state.read_text())


@pytest.mark.parametrize("end", ["stop", "reboot"])
async def test_no_process_outlives_its_machine_s_power(tmp_path: Path, end: str) -> None:
    async with running_host(tmp_path, agent=(sys.executable, "-c", FAMILY), times=RepairTimes(reboot=1e6)) as machine:
        await until(lambda: len(family(tmp_path)) == 2)
        pids = family(tmp_path)
        assert all(alive(pid) for pid in pids)
        await (machine.stop() if end == "stop" else machine.reboot())
        await until(lambda: not any(alive(pid) for pid in pids))


SIMULATOR = """
import asyncio, sys
from pathlib import Path
from tests.simulator.hosts import running_host

async def main():
    async with running_host(Path(sys.argv[1]), agent=(sys.executable, "-c", sys.argv[2])):
        await asyncio.sleep(600)

asyncio.run(main())
"""


async def test_no_process_outlives_a_simulator_that_is_killed(tmp_path: Path) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", SIMULATOR, str(tmp_path), FAMILY, env={**os.environ, "PYTHONPATH": os.getcwd()}
    )
    await until(lambda: len(family(tmp_path)) == 2)
    pids = family(tmp_path)
    process.send_signal(signal.SIGKILL)
    await process.wait()
    await until(lambda: not any(alive(pid) for pid in pids))
