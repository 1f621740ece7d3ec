"""The door by which a simulated host's own programs reach their machine: `nvidia-smi --gpu-reset` and reboot.

One line in, an exit code and text out, over a local socket whose address stands in the state file. The programs are in
native/ and know nothing; what they say and how they end is decided by the machine. A reset that the driver never
answers leaves its caller waiting, as the real one does.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self

REQUEST_SECONDS = 10
"""Real time in which a program must have sent its line."""


@dataclass(frozen=True)
class ProgramEnd:
    """What the asking program prints, and its exit code."""

    code: int
    text: str


ResetGpus = Callable[[Sequence[str]], Awaitable[ProgramEnd]]
"""Resets the GPUs of these UUIDs; returns when that is over, or never."""


class HostControl:
    """Serves one machine's programs while entered."""

    def __init__(self, reset: ResetGpus, reboot: Callable[[], Awaitable[None]]) -> None:
        self._reset = reset
        self._reboot = reboot
        self._open: set[asyncio.Task[None]] = set()

    @property
    def address(self) -> str:
        """host:port."""
        host, port = self._server.sockets[0].getsockname()[:2]
        return f"{host}:{port}"

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.close()
        for task in tuple(self._open):
            task.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)
        await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._open.add(task)
        try:
            async with asyncio.timeout(REQUEST_SECONDS):
                request = (await reader.readline()).decode(errors="replace").split()
            end = await self._answer(request)
            writer.write(f"{end.code}\n{end.text}".encode())
            await writer.drain()
        except (ConnectionError, TimeoutError, asyncio.CancelledError):
            pass  # the program has gone, or the machine has lost power: there is nobody to answer
        finally:
            self._open.discard(task)
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()

    async def _answer(self, request: Sequence[str]) -> ProgramEnd:
        match request:
            case ["reset", *uuids]:
                return await self._reset(uuids)
            case ["reboot"]:
                await self._reboot()
                return ProgramEnd(0, "")
            case _:
                return ProgramEnd(2, f"unknown request: {' '.join(request)}\n")
