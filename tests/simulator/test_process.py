"""The simulator as a process: it starts, plays, answers, and leaves nothing behind."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.simulator.hosts import alive
from tests.simulator.waiting import until

SCENARIO = """
speed: 200
times: {boot: 5, reboot: 5, gpu_reset: 1}
pools: [{name: g5, kind: nobody, nodes: 2, instance_type: g5.xlarge}]
jobs: [{name: train, pool: g5, workers: 1, gpus_per_worker: 1}]
faults:
  - {name: lost GPU, node: 1, gpu: 0, kernel_log: [xid-79], gpu_trouble: {lost: true}, cured_by: reboot}
"""

AGENT = "import os, time; open(os.environ['SICKBAY_STATE_DIR'] + f'/{os.getpid()}.pid', 'w'); time.sleep(600)"


def agent_pids(folder: Path) -> list[int]:
    return [int(path.stem) for path in folder.rglob("*.pid")]


@asynccontextmanager
async def simulator(folder: Path, *words: str) -> AsyncIterator[asyncio.subprocess.Process]:
    scenario = folder / "scenario.yaml"
    scenario.write_text(SCENARIO)
    agent = f'{sys.executable} -c "{AGENT}"'
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "simulator", str(scenario), "--folder", str(folder / "box"), "--agent", agent, *words),
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def addresses(process: asyncio.subprocess.Process) -> dict[str, str]:
    assert process.stdout is not None
    async with asyncio.timeout(30):
        found: dict[str, str] = json.loads(await process.stdout.readline())
    return found


async def get(url: str) -> Any:
    async with aiohttp.ClientSession() as session, session.get(url) as answer:
        return await answer.json()


async def post(url: str) -> None:
    async with aiohttp.ClientSession() as session, session.post(url):
        pass


async def ended_without_a_trace(process: asyncio.subprocess.Process, folder: Path) -> None:
    async with asyncio.timeout(20):
        assert await process.wait() == 0
    assert not any(alive(pid) for pid in agent_pids(folder))


async def machine_with_fault(control: str) -> Any:
    async with asyncio.timeout(30):
        while True:
            ill = [machine for machine in await get(f"{control}/machines") if machine["faults"]]
            if ill:
                return ill[0]
            await asyncio.sleep(0.1)


async def test_it_plays_its_scenario_and_ends_without_a_trace_at_sigterm(tmp_path: Path) -> None:
    async with simulator(tmp_path) as process:
        found = await addresses(process)
        machine = await machine_with_fault(found["control"])
        assert (machine["node"], machine["faults"]) == ("g5-1", ["lost GPU"])
        nodes = await get(f"{found['kube']}/api/v1/nodes")
        assert {node["metadata"]["name"] for node in nodes["items"]} == {"g5-0", "g5-1"}
        assert found["kube"] in (tmp_path / "box" / "kubeconfig").read_text()
        await until(lambda: len(agent_pids(tmp_path)) == 2)
        process.terminate()
        await ended_without_a_trace(process, tmp_path)


async def test_held_faults_wait_until_asked_for_and_a_shutdown_can_be_asked_for(tmp_path: Path) -> None:
    async with simulator(tmp_path, "--hold") as process:
        found = await addresses(process)
        await until(lambda: len(agent_pids(tmp_path)) == 2)
        assert not any(machine["faults"] for machine in await get(f"{found['control']}/machines"))
        await post(f"{found['control']}/play")
        assert (await machine_with_fault(found["control"]))["faults"] == ["lost GPU"]
        await post(f"{found['control']}/shutdown")
        await ended_without_a_trace(process, tmp_path)


async def test_it_ends_with_its_parent_if_so_asked(tmp_path: Path) -> None:
    (tmp_path / "scenario.yaml").write_text(SCENARIO)
    start = (
        "import subprocess, sys, time; p = subprocess.Popen(sys.argv[1:]); print(p.pid, flush=True); time.sleep(600)"
    )
    words = (sys.executable, "-m", "simulator", str(tmp_path / "scenario.yaml"), "--with-parent", "--hold")
    parent = await asyncio.create_subprocess_exec(
        sys.executable, "-c", start, *words, stdout=asyncio.subprocess.PIPE, start_new_session=True
    )
    assert parent.stdout is not None
    async with asyncio.timeout(30):
        pid = int(await parent.stdout.readline())
        assert json.loads(await parent.stdout.readline())
    parent.send_signal(signal.SIGKILL)
    await parent.wait()
    await until(lambda: not alive(pid))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["no-such-scenario"], "no-such-scenario: No such file or directory"),
        (["demo", "--speed", "0"], "--speed 0: give a number above 0"),
    ],
)
async def test_a_user_s_mistake_ends_with_one_line_and_code_2(words: list[str], message: str) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "simulator", *words, stderr=asyncio.subprocess.PIPE, env=dict(os.environ)
    )
    _, said = await process.communicate()
    assert process.returncode == 2
    assert said.decode().startswith(message)
    assert said.decode().count("\n") == 1
