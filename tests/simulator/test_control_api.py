"""The HTTP API by which a running simulation is acted on."""

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp.test_utils import TestClient, TestServer

from simulator.clock import Clock
from simulator.control_api import ControlApi
from simulator.host import native
from simulator.host.fleet import Fleet
from simulator.host.machine import Site
from simulator.machine import Power
from tests.simulator.hosts import AT_ONCE, kernel_log
from tests.simulator.waiting import until

SLEEPER = (sys.executable, "-c", "import time; time.sleep(600)")


class Box:
    """A fleet of one running machine, node-a, behind the API."""

    def __init__(self, fleet: Fleet, client: TestClient[Any, Any], called: list[str]) -> None:
        self.fleet = fleet
        self.client = client
        self.called = called

    async def post(self, path: str, body: str = "") -> tuple[int, Any]:
        async with self.client.post(path, data=body.encode()) as answer:
            return answer.status, await answer.json()


@asynccontextmanager
async def box(folder: Path, agent: tuple[str, ...] = ()) -> AsyncIterator[Box]:
    fleet = Fleet(Site(Clock(1000), native.build(), folder, AT_ONCE, agent))
    machine = fleet("i-0123456789abcdef0", "node-a", "p5.48xlarge")
    called: list[str] = []
    api = ControlApi(
        fleet,
        lambda: called.append("play"),
        lambda calls, action: called.append(f"throttle {calls} {action}"),
        lambda: called.append("shutdown"),
    )
    async with TestClient(TestServer(api.application())) as client:
        await machine.start()
        await until(lambda: machine.power is Power.RUNNING)
        try:
            yield Box(fleet, client, called)
        finally:
            await fleet.stop()


async def test_machines_are_listed_with_how_they_stand(tmp_path: Path) -> None:
    async with box(tmp_path) as running, running.client.get("/machines") as answer:
        (machine,) = await answer.json()
        assert (machine["node"], machine["power"], machine["gpu_allocatable"]) == ("node-a", "running", 8)
        assert machine["boot_id"] == running.fleet.machines[0].boot_id


async def test_a_fault_can_be_injected_by_node_name_and_by_instance_id(tmp_path: Path) -> None:
    fault = '{"name": "gone", "gpu": 2, "kernel_log": ["xid-79"], "gpu_trouble": {"lost": true}, "cured_by": "reboot"}'
    async with box(tmp_path) as running:
        status, machine = await running.post("/machines/node-a/faults", fault)
        assert (status, machine["faults"], machine["gpu_allocatable"]) == (200, ["gone"], 7)
        status, _ = await running.post("/machines/i-0123456789abcdef0/faults", fault.replace("2", "3"))
        assert status == 200
        assert ": 79, " in kernel_log(running.fleet.machines[0])


@pytest.mark.parametrize(
    ("path", "body", "status", "error"),
    [
        ("/machines/node-z/faults", "{}", 404, "no machine node-z; there are node-a"),
        ("/machines/node-a/faults", "{}", 400, "cured_by: Field required"),
        ("/machines/node-a/faults", "nonsense", 400, "Invalid JSON: expected"),
        ("/machines/node-a/faults", '{"gpu": 9, "cured_by": "reset"}', 400, "node-a has GPUs 0 to 7"),
        ("/machines/node-a/agent/kill", "", 400, "this simulation runs no agents: start it with --agent"),
        ("/cloud/throttle", '{"calls": -1}', 400, "calls: Input should be greater than or equal to 0"),
        ("/nonsense", "", 404, "Not Found"),
    ],
)
async def test_an_error_is_told_in_one_line(tmp_path: Path, path: str, body: str, status: int, error: str) -> None:
    async with box(tmp_path) as running:
        answered, text = await running.post(path, body)
    assert answered == status
    assert text["error"].startswith(error)


async def test_raw_kernel_lines_reach_the_log(tmp_path: Path) -> None:
    async with box(tmp_path) as running:
        assert await running.post("/machines/node-a/kernel-log", "one\ntwo\n") == (200, {"lines": 2})
        assert kernel_log(running.fleet.machines[0]).splitlines()[-1].endswith(";two")


async def test_an_agent_can_be_killed_held_and_let_go(tmp_path: Path) -> None:
    async with box(tmp_path, agent=SLEEPER) as running:
        agent = running.fleet.machines[0].agent
        assert agent is not None
        await until(lambda: agent.running)
        assert (await running.post("/machines/node-a/agent/kill"))[0] == 200
        await until(lambda: agent.starts == 2)
        assert (await running.post("/machines/node-a/agent/hang"))[0] == 200
        assert (await running.post("/machines/node-a/agent/resume"))[0] == 200


async def test_boots_and_resets_are_counted(tmp_path: Path) -> None:
    async with box(tmp_path) as running:
        machine = running.fleet.machines[0]
        await machine.reset_gpus([machine.driver.gpus[0].uuid])
        await machine.reboot()
        await until(lambda: machine.power is Power.RUNNING)
        async with running.client.get("/machines") as answer:
            (told,) = await answer.json()
    assert (told["boots"], told["gpu_resets"]) == (2, 1)


async def test_what_is_asked_of_the_simulation_and_its_cloud_reaches_them(tmp_path: Path) -> None:
    async with box(tmp_path) as running:
        await running.post("/play")
        await running.post("/cloud/throttle", '{"calls": 3, "action": "RebootInstances"}')
        await running.post("/shutdown")
    assert running.called == ["play", "throttle 3 RebootInstances", "shutdown"]
