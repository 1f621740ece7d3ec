"""The node agent of a simulated host: the real program as a child process, which dies with its machine.

Called by the machine: started at each boot, ended at each power-off, started again when it ends by itself, as a
DaemonSet does. Every process runs under `machine-init` (native/machine_init.c), which holds the read end of a pipe of
ours and kills all descendants when it closes; so no agent, nor any child of one, outlives the machine or this process.
"""

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from pathlib import Path

from simulator.clock import Clock

GRACE_SECONDS = 5.0
"""Real time for an agent to end after SIGTERM when its host reboots; a host does not wait longer for a sick service."""

BACKOFF_SECONDS = 10.0
"""Simulated time until the kubelet starts an agent again that has ended by itself."""

LEAST_BACKOFF = 1.0
"""Real time below which an agent that cannot start would only burn the machine."""


class Agent:
    """One machine's agent."""

    def __init__(self, words: Sequence[str], environment: Mapping[str, str], log: Path, clock: Clock) -> None:
        """`words` is the whole command, `machine-init` first; `environment` is the whole environment."""
        self._words = tuple(words)
        self._environment = dict(environment)
        self._log = log
        self._clock = clock
        self._process: asyncio.subprocess.Process | None = None
        self._keeper: asyncio.Task[None] | None = None
        self._frozen = False
        self.starts = 0
        """How often it was started, over all boots."""

    @property
    def running(self) -> bool:
        """Whether the process is there."""
        return self._process is not None and self._process.returncode is None

    def tell(self, names: Mapping[str, str]) -> None:
        """Put these into its environment, from its next start on."""
        self._environment |= names

    def start(self) -> None:
        """Run it from now on; a machine without power calls `stop`."""
        if self._keeper is None:
            self._keeper = asyncio.get_running_loop().create_task(self._keep(), name="node agent")

    async def stop(self, grace: float = 0.0) -> None:
        """End it and all its descendants; with a `grace` in real seconds it is asked first (SIGTERM)."""
        if self._keeper is None:
            return
        process = self._process
        if process is not None and grace > 0 and self._tell(b"t"):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(grace):
                    await process.wait()
        self._keeper.cancel()
        await asyncio.gather(self._keeper, return_exceptions=True)
        self._keeper = None
        self._frozen = False

    def kill(self) -> bool:
        """Kill the agent alone (SIGKILL); it is started again. False if it is not there."""
        return self._tell(b"k")

    def freeze(self, frozen: bool) -> None:
        """Stop or continue the agent's process (SIGSTOP, SIGCONT); one that starts later is frozen as well."""
        if frozen is not self._frozen:
            self._frozen = frozen
            self._tell(b"s" if frozen else b"c")

    def _tell(self, letter: bytes) -> bool:
        process = self._process
        if process is None or process.returncode is not None or process.stdin is None or process.stdin.is_closing():
            return False
        process.stdin.write(letter)
        return True

    async def _keep(self) -> None:
        while True:
            await self._run_once()
            await asyncio.sleep(max(self._clock.real(BACKOFF_SECONDS), LEAST_BACKOFF))

    async def _run_once(self) -> None:
        with self._log.open("ab") as log:
            process = await asyncio.create_subprocess_exec(
                *self._words, stdin=asyncio.subprocess.PIPE, stdout=log, stderr=log, env=self._environment
            )
        self._process = process
        self.starts += 1
        if self._frozen:
            self._tell(b"s")
        try:
            await process.wait()
        finally:
            assert process.stdin is not None
            process.stdin.close()  # with this, machine-init kills whatever is left
            await asyncio.shield(process.wait())
            self._process = None
