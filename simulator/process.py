"""The simulator as a whole: API server, cloud, cluster, machines and their agents in one event loop.

`Simulation` is what tests enter in their own loop; `serve` is the process that `python -m simulator` runs and that the
console starts. Nothing here decides anything: it only puts the parts together, and takes them down in an order in which
no process of a machine is left.
"""

import asyncio
import json
import os
import signal
import sys
from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

from aiohttp import web

from simulator.clock import Clock
from simulator.cloud import CloudServer
from simulator.cluster import Cluster, JobOrder
from simulator.control_api import ControlApi
from simulator.host import native
from simulator.host.fleet import Fleet
from simulator.host.machine import Site
from simulator.kube import KubeServer, write_kubeconfig
from simulator.player import play
from simulator.scenario import Scenario
from simulator.tasks import Background

READY_SECONDS = 300.0
"""Real seconds in which the first nodes must be Ready, or the scenario's faults do not begin."""

PARENT_LOOK_SECONDS = 1.0
"""Real seconds between two looks at whether the process that started us still lives."""


class Simulation:
    """A running cluster in a box, an async context manager."""

    def __init__(
        self,
        scenario: Scenario,
        folder: Path,
        *,
        agent: tuple[str, ...] = (),
        environment: Mapping[str, str] | None = None,
        hold: bool = False,
    ) -> None:
        """`folder` gets the kubeconfig and the machines' files. `agent` is the command of the node agent, run on every
        machine with `environment` (by default our own) and SICKBAY_API_SERVER. With `hold` the faults wait for `play`.
        """
        self.scenario = scenario
        self.folder = folder
        self.kubeconfig = folder / "kubeconfig"
        self.stopping = asyncio.Event()
        """Set when somebody asked over the control API for the end."""
        self._agent = agent
        self._environment = dict(os.environ if environment is None else environment)
        self._hold = hold
        self._played = False
        self._tasks = Background()
        self._open = AsyncExitStack()

    async def __aenter__(self) -> Self:
        try:
            await self._start()
        except BaseException:
            await self._open.aclose()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._open.aclose()

    def play(self) -> None:
        """Begin the scenario's faults; a second call does nothing."""
        if not self._played:
            self._played = True
            self._tasks.spawn(self._play_when_ready(), "fault player")

    @property
    def addresses(self) -> dict[str, str]:
        """Where clients find what: kube, aws and control as URLs, kubeconfig as a path."""
        return {
            "kube": self.kube.url,
            "aws": self.cloud.url,
            "control": self.control_url,
            "kubeconfig": str(self.kubeconfig),
        }

    async def _start(self) -> None:
        programs = await asyncio.to_thread(native.build)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.clock = Clock(self.scenario.speed)
        self.kube = await self._open.enter_async_context(KubeServer())
        write_kubeconfig(self.kubeconfig, self.kube.url)
        site = Site(
            clock=self.clock,
            programs=programs,
            folder=self.folder / "machines",
            times=self.scenario.times,
            agent=self._agent,
            environment={**self._environment, "SICKBAY_API_SERVER": self.kube.url},
        )
        self.fleet = Fleet(site)
        self._open.push_async_callback(self.fleet.stop)
        self.cloud = await self._open.enter_async_context(
            CloudServer(self.clock, self.fleet, reuse_node_names=self.scenario.reuse_node_names)
        )
        cluster = Cluster(self.kube.url, self.cloud, self.clock, folder=self.folder / "pods")
        self.cluster = await self._open.enter_async_context(cluster)
        self.kube.pod_logs = self.cluster.processes.log_of
        self._open.push_async_callback(self._tasks.close)
        for pool in self.scenario.pools:
            await self.cluster.add_pool(
                pool.name,
                pool.kind,
                pool.nodes,
                pool.instance_type,
                gpu_operator=pool.gpu_operator,
                monitoring_agent=pool.monitoring_agent,
                admission=pool.admission,
                intolerant=pool.intolerant,
            )
        for job in self.scenario.jobs:
            await self.cluster.add_job(JobOrder(**job.model_dump()))
        self.control_url = await self._serve_control()
        if not self._hold:
            self.play()

    async def _play_when_ready(self) -> None:
        await self.cluster.ready(READY_SECONDS)
        await play(self.scenario.faults, self.fleet, self.clock)

    async def _serve_control(self) -> str:
        api = ControlApi(self.fleet, self.play, self.cloud.throttle, self.stopping.set)
        runner = web.AppRunner(api.application(), access_log=None, shutdown_timeout=1)
        await runner.setup()
        self._open.push_async_callback(runner.cleanup)
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        host, port = runner.addresses[0][:2]
        return f"http://{host}:{port}"


async def serve(simulation: Simulation, *, with_parent: bool = False) -> None:
    """Run until SIGTERM, SIGINT, a request to shut down or, `with_parent`, the end of the process that started us.

    Prints one line of JSON with the addresses when clients can connect.
    """
    stopping = simulation.stopping
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    parent = os.getppid()
    async with simulation:
        sys.stdout.write(json.dumps(simulation.addresses) + "\n")
        sys.stdout.flush()
        while not stopping.is_set():
            try:
                async with asyncio.timeout(PARENT_LOOK_SECONDS if with_parent else None):
                    await stopping.wait()
            except TimeoutError:
                if os.getppid() != parent:
                    return
