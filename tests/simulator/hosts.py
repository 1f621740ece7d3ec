"""Simulated hosts for tests, and the programs that run on them."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from simulator.clock import Clock
from simulator.host import native
from simulator.host.faults import Cure, HostFault
from simulator.host.gpu import GpuTrouble
from simulator.host.machine import HostMachine, RepairTimes, Site
from simulator.machine import Power
from tests.simulator.waiting import until

AT_ONCE = RepairTimes(boot=0, reboot=0, gpu_reset=0)


@dataclass(frozen=True)
class Ended:
    """How a program ended."""

    code: int
    text: str


@asynccontextmanager
async def running_host(
    folder: Path,
    *,
    agent: tuple[str, ...] = (),
    times: RepairTimes = AT_ONCE,
    instance_type: str = "p5.48xlarge",
    speed: float = 1000,
) -> AsyncIterator[HostMachine]:
    """A machine that has booted, and is powered off at the end."""
    site = Site(Clock(speed), native.build(), folder, times, agent, dict(os.environ))
    machine = HostMachine("i-0123456789abcdef0", "node-a", instance_type, site)
    await machine.start()
    try:
        await until(lambda: machine.power is Power.RUNNING)
        yield machine
    finally:
        await machine.stop()


def environment(machine: HostMachine) -> dict[str, str]:
    """What a program on this machine finds in its environment."""
    return {"PATH": os.environ["PATH"], "SICKBAY_SIM_GPU_STATE": str(machine.driver.state_file)}


async def run_program(machine: HostMachine, program: Path, *words: str) -> Ended:
    """Run one of the simulated host's programs to its end."""
    process = await asyncio.create_subprocess_exec(
        program, *words, env=environment(machine), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    text = await _output(process)
    return Ended(process.returncode or 0, text)


async def nvidia_smi(machine: HostMachine, *words: str) -> Ended:
    """Run the simulated nvidia-smi."""
    return await run_program(machine, native.build().nvidia_smi, *words)


async def pynvml(machine: HostMachine, code: str) -> Any:
    """What the real pynvml says in a process of its own: `code` sets `answer`; an NVML error becomes its number."""
    script = f"""
import json, pynvml as nvml
try:
    nvml.nvmlInit()
    gpu = nvml.nvmlDeviceGetHandleByIndex
{"".join(f"    {line}" + chr(10) for line in code.splitlines())}
except nvml.NVMLError as error:
    answer = {{"error": error.value}}
print(json.dumps(answer))
"""
    variables = environment(machine) | {"LD_LIBRARY_PATH": str(native.build().folder)}
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", script, env=variables, stdout=asyncio.subprocess.PIPE
    )
    return json.loads(await _output(process))


async def _output(process: asyncio.subprocess.Process) -> str:
    try:
        text, _ = await process.communicate()
        return text.decode()
    finally:
        if process.returncode is None:  # the test gave up on a program that hangs
            process.kill()
            await process.wait()


def reset_needed(gpu: int = 3, **more: Any) -> HostFault:
    """A fault that a GPU reset cures."""
    trouble = GpuTrouble.model_validate({"reset_required": True, "recovery_action": "gpu_reset"})
    return HostFault(gpu=gpu, kernel_log=("xid-95",), gpu_trouble=trouble, cured_by=Cure.RESET, **more)


def lost(gpu: int = 5, cured_by: Cure = Cure.REBOOT) -> HostFault:
    """A GPU off the bus, and not found at a boot that does not cure it."""
    return HostFault(
        gpu=gpu,
        kernel_log=("xid-79",),
        kernel_log_at_boot=("gpu-lost-at-boot",),
        gpu_trouble=GpuTrouble.model_validate({"lost": True, "recovery_action": "node_reboot"}),
        gpu_trouble_at_boot=GpuTrouble(absent=True),
        cured_by=cured_by,
    )


def alive(pid: int) -> bool:
    """Whether a process still runs; one that has ended but was not reaped does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def kernel_log(machine: HostMachine) -> str:
    """The kernel log of this boot."""
    return machine.driver.kernel_log.path.read_text()
