"""Programs that the demo starts beside itself, each in a process group of its own, none of which outlives it."""

import asyncio
import os
import shlex
import shutil
import signal
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

GRACE_SECONDS = 10.0
"""From SIGTERM to SIGKILL."""

_OF_OTHER_CLUSTERS = ("SICKBAY_", "TEMPORAL_", "AWS_")
"""What a user's shell may hold for a real cluster of theirs, and must not reach a simulated one."""


@asynccontextmanager
async def running(
    command: Sequence[str], log: Path, environment: Mapping[str, str], *, stdout: int | None = None
) -> AsyncIterator[asyncio.subprocess.Process]:
    """A program while the block runs; what it prints goes to `log`, unless its stdout is wanted (PIPE)."""
    with log.open("ab") as out:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=out if stdout is None else stdout,
            stderr=out,
            env=dict(environment),
            start_new_session=True,
        )
    try:
        yield process
    finally:
        await _end(process)


async def _end(process: asyncio.subprocess.Process) -> None:
    if process.returncode is not None:
        return
    _signal(process.pid, signal.SIGTERM)
    try:
        await asyncio.wait_for(process.wait(), GRACE_SECONDS)
    except TimeoutError:
        _signal(process.pid, signal.SIGKILL)
        await process.wait()


def _signal(group: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.killpg(group, number)


def own_environment() -> dict[str, str]:
    """The environment without what points to a real cluster, account or Temporal server of the user's.

    Temporal's own configuration file is left out too: a profile there can name a namespace that a new server lacks.
    """
    kept = {name: value for name, value in os.environ.items() if not name.startswith(_OF_OTHER_CLUSTERS)}
    return {**kept, "TEMPORAL_CONFIG_FILE": os.devnull}


def program() -> str:
    """What a person types for this program in another shell: its name, or its place where PATH does not lead to it."""
    return "sickbay" if shutil.which("sickbay") else shlex.quote(str(Path(sys.executable).with_name("sickbay")))


def last_lines(log: Path, count: int = 5) -> str:
    """The end of a program's log, for the message about its failure."""
    return " | ".join(log.read_text(errors="replace").splitlines()[-count:]) or "it printed nothing"
