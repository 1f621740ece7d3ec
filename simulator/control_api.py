"""A small HTTP API by which the demo, tests and people act on a running simulation from outside its process.

    GET  /machines                     how every machine stands
    POST /play                         begin the scenario's faults, where the simulation was started with --hold
    POST /machines/NAME/faults         one fault, as in a scenario file without `at` and `node`, in JSON
    POST /machines/NAME/kernel-log     raw kernel messages, one a line
    POST /machines/NAME/agent/ACTION   kill (it is started again), hang, resume
    POST /cloud/throttle               refuse the next `calls` EC2 and Auto Scaling calls, of one `action` if given
    POST /shutdown                     end the simulation

NAME is a node name or an instance id. An error is JSON `{"error": ...}`, one line.
"""

import json
from collections.abc import Awaitable, Callable

from aiohttp import web
from pydantic import Field, ValidationError

from sickbay.model import Frozen
from simulator.host.faults import HostFault
from simulator.host.fleet import Fleet
from simulator.host.gpu import Described
from simulator.host.machine import HostMachine
from simulator.machine import Power

LARGEST_LOG = 64 << 20
"""Bytes of kernel log in one request."""


class MachineReport(Frozen):
    """How one machine stands."""

    node: str
    instance_id: str
    instance_type: str
    power: Power
    boot_id: str
    boots: int
    """How often it came up, the first boot included."""
    gpu_resets: int
    """How many GPU resets it began, over all boots."""
    kubelet_alive: bool
    gpu_allocatable: int
    faults: tuple[str, ...]
    """Names of its open faults."""
    agent_running: bool
    agent_starts: int
    folder: str
    """Where its kernel log, GPU state and agent log lie."""


class Throttling(Described):
    """Calls that the cloud is to refuse."""

    calls: int = Field(ge=0)
    action: str | None = None
    """The one action that is refused, e.g. `RebootInstances`; any if none is named."""


Throttle = Callable[[int, str | None], None]


def report(machine: HostMachine) -> MachineReport:
    """One look at a machine."""
    agent = machine.agent
    return MachineReport(
        node=machine.node_name,
        instance_id=machine.instance_id,
        instance_type=machine.instance_type.name,
        power=machine.power,
        boot_id=machine.boot_id,
        boots=machine.boots,
        gpu_resets=machine.gpu_resets,
        kubelet_alive=machine.kubelet_alive,
        gpu_allocatable=machine.gpu_allocatable,
        faults=tuple(open_fault.fault.name for open_fault in machine.driver.faults.open),
        agent_running=agent is not None and agent.running,
        agent_starts=agent.starts if agent else 0,
        folder=str(machine.folder),
    )


class ControlApi:
    """The handlers, over one fleet."""

    def __init__(
        self, fleet: Fleet, play: Callable[[], None], throttle: Throttle, shut_down: Callable[[], None]
    ) -> None:
        self._fleet = fleet
        self._play = play
        self._throttle = throttle
        self._shut_down = shut_down

    def application(self) -> web.Application:
        """The API as an aiohttp application."""
        application = web.Application(client_max_size=LARGEST_LOG, middlewares=[_errors_in_one_line])
        application.add_routes(
            [
                web.get("/machines", self._list),
                web.post("/play", self._start_play),
                web.post("/machines/{name}/faults", self._inject),
                web.post("/machines/{name}/kernel-log", self._write_kernel_log),
                web.post("/machines/{name}/agent/{action:kill|hang|resume}", self._act_on_agent),
                web.post("/cloud/throttle", self._throttle_cloud),
                web.post("/shutdown", self._end),
            ]
        )
        return application

    async def _list(self, _: web.Request) -> web.Response:
        return web.json_response([report(machine).model_dump(mode="json") for machine in self._fleet.machines])

    async def _start_play(self, _: web.Request) -> web.Response:
        self._play()
        return web.json_response({})

    async def _inject(self, request: web.Request) -> web.Response:
        machine = self._machine(request)
        machine.inject(HostFault.model_validate_json(await request.read()))
        return web.json_response(report(machine).model_dump(mode="json"))

    async def _write_kernel_log(self, request: web.Request) -> web.Response:
        lines = (await request.read()).decode(errors="replace").splitlines()
        self._machine(request).write_kernel_log(lines)
        return web.json_response({"lines": len(lines)})

    async def _act_on_agent(self, request: web.Request) -> web.Response:
        machine, action = self._machine(request), request.match_info["action"]
        if machine.agent is None:
            raise ValueError("this simulation runs no agents: start it with --agent")
        if action == "kill":
            machine.agent.kill()
        else:
            machine.hold_agent(action == "hang")
        return web.json_response(report(machine).model_dump(mode="json"))

    async def _throttle_cloud(self, request: web.Request) -> web.Response:
        throttling = Throttling.model_validate_json(await request.read())
        self._throttle(throttling.calls, throttling.action)
        return web.json_response(throttling.model_dump(mode="json"))

    async def _end(self, _: web.Request) -> web.Response:
        self._shut_down()
        return web.json_response({})

    def _machine(self, request: web.Request) -> HostMachine:
        name = request.match_info["name"]
        try:
            return self._fleet.find(name)
        except KeyError:
            names = ", ".join(machine.node_name for machine in self._fleet.machines)
            raise web.HTTPNotFound(reason=f"no machine {name}; there are {names}") from None


@web.middleware
async def _errors_in_one_line(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    try:
        return await handler(request)
    except web.HTTPException as error:
        return web.json_response({"error": error.reason}, status=error.status)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(step) for step in first["loc"])
        return web.json_response({"error": f"{place}: {first['msg']}".lstrip(": ")}, status=400)
    except (ValueError, json.JSONDecodeError) as error:
        return web.json_response({"error": str(error)}, status=400)
