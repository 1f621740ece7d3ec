"""The Temporal server of a stage, killed and started again: its data lie in a file that survives it."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from console.processes import running
from tests.scenarios.waiting import seen


@asynccontextmanager
async def killed_and_started_again(folder: Path) -> AsyncIterator[None]:
    """SIGKILL for the server whose data lie in this folder; another one, at the same address, while the block runs."""
    pid, command = _server(str(folder / "temporal.db"))
    os.kill(pid, signal.SIGKILL)
    await seen("the killed server is gone", lambda: asyncio.to_thread(lambda: not Path(f"/proc/{pid}").exists()))
    async with running(command, folder / "temporal.log", os.environ):
        yield


def _server(data: str) -> tuple[int, list[str]]:
    """Process id and command line of the server that holds this file."""
    for process in Path("/proc").iterdir():
        if not process.name.isdecimal():
            continue
        try:
            words = (process / "cmdline").read_bytes().decode(errors="replace").split("\0")[:-1]
        except OSError:  # it has ended meanwhile
            continue
        if data in words and "start-dev" in words:
            return int(process.name), words
    raise AssertionError(f"no Temporal server holds {data}")
