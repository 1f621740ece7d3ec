"""The real controller process of a stage, which stories may kill."""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

from console.stage import Stage, controlled

PATIENT = {"SICKBAY_SETTLE_SECONDS": "5"}
"""On a busy machine the simulated kubelets stutter; only a node that is silent for longer is a story's."""


class Controller:
    """One controller at a time, an async context manager."""

    def __init__(self, stage: Stage, policy: Path) -> None:
        self._stage = stage
        self._policy = policy
        self._processes = AsyncExitStack()
        self._process: asyncio.subprocess.Process | None = None
        self.starts = 0
        self.turn = asyncio.Lock()
        """Held by who kills it, until another is started: each death is of one story."""

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._processes.aclose()

    async def start(self) -> None:
        """Start a new one; it connects and reconciles by itself."""
        self.starts += 1
        self._process = await self._processes.enter_async_context(controlled(self._stage, self._policy, PATIENT))

    async def kill(self) -> None:
        """SIGKILL: nothing of it runs any more when this returns."""
        assert self._process is not None
        self._process.kill()
        await self._process.wait()
