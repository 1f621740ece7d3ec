"""All that Sickbay needs, in one box: Temporal, a simulated cluster with its node agents, and the real controller.

Called by `sickbay demo` and `sickbay simulate`, and by the scenario tests. Each part is a process of its own that talks
over sockets, as in a real cluster; this module only starts and ends them.
"""

import asyncio
import json
import shlex
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Final

import aiohttp
from pydantic import ValidationError

from console.embedded_temporal import DATABASE, TemporalAddresses, embedded_temporal, free_ports
from console.errors import UserError
from console.processes import last_lines, own_environment, running
from sickbay.model import Frozen

CLUSTER: Final = "demo"
START_SECONDS: Final = 120.0
LOOK_SECONDS: Final = 0.2
CONTROLLER_LOG: Final = "controller.log"
SICKBAY: Final = (sys.executable, "-m", "console")

_AGENT_SETTINGS: Final = {
    "SICKBAY_SERVE_HOST": "127.0.0.1",
    "SICKBAY_SERVE_PORT": "0",
    "SICKBAY_PROBE_SECONDS": "3",
    "SICKBAY_HEARTBEAT_SECONDS": "15",
    "SICKBAY_STARTING_SECONDS": "20",
    "SICKBAY_QUIET_SECONDS": "10",
    "SICKBAY_GPU_CLIENTS": "",
    "SICKBAY_TRUST_USER_RECORDS": "true",
    "SICKBAY_RANK_SECONDS": "2",
}
"""A node agent in a hurry: the simulated cluster's time runs faster than ours."""

_CONTROLLER_SETTINGS: Final = {
    "SICKBAY_SERVE_HOST": "127.0.0.1",
    "SICKBAY_CLUSTER": CLUSTER,
    "SICKBAY_AWS_REGION": "eu-west-1",
    "SICKBAY_LEADER_ELECTION": "false",
    "SICKBAY_SETTLE_SECONDS": "1",
    "SICKBAY_COOLDOWN_SECONDS": "2",
    "SICKBAY_RECONCILE_SECONDS": "5",
    "SICKBAY_JOB_LOOK_SECONDS": "0.5",
    "SICKBAY_JOB_RANKS_SECONDS": "2",
    "SICKBAY_JOB_CHECKPOINTS_SECONDS": "2",
    "SICKBAY_JOB_SLOW_SECONDS": "6",
}

_NO_CREDENTIALS: Final = {"AWS_ACCESS_KEY_ID": "simulated", "AWS_SECRET_ACCESS_KEY": "simulated"}
"""What boto3 signs with; the simulated cloud takes anything, and a user's own keys never leave their machine."""


class SimulatorAddresses(Frozen):
    """What the simulator prints when clients can connect."""

    kube: str
    aws: str
    control: str
    kubeconfig: Path


class Stage(Frozen):
    """Where everything is."""

    folder: Path
    temporal: TemporalAddresses
    simulator: SimulatorAddresses
    controller_port: int
    """Where a controller of this stage serves its health."""

    @property
    def environment(self) -> dict[str, str]:
        """What the controller needs to find it all."""
        return {
            **_CONTROLLER_SETTINGS,
            **_NO_CREDENTIALS,
            "TEMPORAL_ADDRESS": self.temporal.server,
            "SICKBAY_SERVE_PORT": str(self.controller_port),
            "SICKBAY_KUBECONFIG": str(self.simulator.kubeconfig),
            "SICKBAY_AWS_ENDPOINT": self.simulator.aws,
        }


def working_folder(chosen: Path | None, purpose: str) -> Path:
    """The folder for logs and reports; a temporary one that stays, if none is chosen.

    Raises UserError for one that cannot be made, or that holds an earlier run, whose incidents would mix with ours.
    """
    folder = chosen or Path(tempfile.mkdtemp(prefix=f"sickbay-{purpose}-"))
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"--folder {folder}: {error.strerror}; name a folder that can be made") from error
    if (folder / DATABASE).exists():
        raise UserError(f"--folder {folder}: an earlier run is in it; name another, or delete it")
    return folder.resolve()


@asynccontextmanager
async def staged(
    scenario: str, folder: Path, *, speed: float | None = None, agent_settings: Mapping[str, str] | None = None
) -> AsyncIterator[Stage]:
    """Temporal and a simulated cluster while the block runs; its faults wait for POST /play.

    `agent_settings` are for the node agents, beside those of all stages. Raises UserError.
    """
    async with AsyncExitStack() as stack:
        temporal = await stack.enter_async_context(embedded_temporal(folder))
        agent = shlex.join((*SICKBAY, "node"))
        command = [sys.executable, "-m", "simulator", scenario, "--agent", agent, "--folder", str(folder / "cluster")]
        command += ["--hold", "--with-parent", *(["--speed", str(speed)] if speed is not None else [])]
        settings = {**_AGENT_SETTINGS, **(agent_settings or {}), "TEMPORAL_ADDRESS": temporal.server}
        log = folder / "simulator.log"
        process = await stack.enter_async_context(
            running(command, log, {**own_environment(), **settings}, stdout=asyncio.subprocess.PIPE)
        )
        simulator = await _ready(process, log)
        yield Stage(folder=folder, temporal=temporal, simulator=simulator, controller_port=free_ports(1)[0])


@asynccontextmanager
async def controlled(
    stage: Stage, policy: Path, settings: Mapping[str, str] | None = None
) -> AsyncIterator[asyncio.subprocess.Process]:
    """The real controller on this stage, while the block runs."""
    environment = {**own_environment(), **stage.environment, "SICKBAY_POLICY_FILE": str(policy), **(settings or {})}
    async with running((*SICKBAY, "controller"), stage.folder / CONTROLLER_LOG, environment) as process:
        yield process


async def until_controlled(stage: Stage) -> None:
    """Wait until the stage's controller serves incidents. Raises UserError if it does not come to that."""
    async with aiohttp.ClientSession(f"http://127.0.0.1:{stage.controller_port}") as session:
        try:
            async with asyncio.timeout(START_SECONDS):
                while not await _answers_ready(session):  # noqa: ASYNC110 - what it waits for is in another process
                    await asyncio.sleep(LOOK_SECONDS)
        except TimeoutError as error:
            raise UserError(f"the controller is not ready: {last_lines(stage.folder / CONTROLLER_LOG)}") from error


async def _answers_ready(session: aiohttp.ClientSession) -> bool:
    try:
        async with session.get("/readyz") as answer:
            return answer.ok
    except aiohttp.ClientError:
        return False


async def _ready(process: asyncio.subprocess.Process, log: Path) -> SimulatorAddresses:
    assert process.stdout is not None
    try:
        line = await asyncio.wait_for(process.stdout.readline(), START_SECONDS)
        return SimulatorAddresses.model_validate(json.loads(line))
    except TimeoutError as error:
        raise UserError(f"the simulated cluster is not ready after {START_SECONDS:g} s; see {log}") from error
    except (ValueError, ValidationError) as error:
        raise UserError(f"the simulated cluster did not start: {last_lines(log)}") from error
