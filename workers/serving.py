"""The small HTTP server of every long-running process: `/healthz`, `/readyz`, `/metrics`, and pages of its own.

It runs in the process's own event loop on purpose: a loop that hangs does not answer, and the kubelet restarts the
container. Which parts must be alive and ready is said by the process through `Health`; nothing is decided here.
"""

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, REGISTRY, CollectorRegistry, generate_latest

Page = Callable[[], Awaitable[bytes]]
"""Makes a page of JSON anew for each request. Raises LookupError, with the reason in words, where there is none now."""

NO_PAGES: Final[Mapping[str, Page]] = {}

_IDLE_SECONDS: Final = 10.0
_SHUTDOWN_SECONDS: Final = 1.0


@dataclass
class Health:
    """Which parts of a process are ready, and which still show signs of life.

    `monotonic` is a clock in seconds that never goes back; given by tests.
    """

    monotonic: Callable[[], float] = time.monotonic
    _not_ready: dict[str, str] = field(default_factory=dict)
    _due: dict[str, float] = field(default_factory=dict)

    def expect(self, *parts: str) -> None:
        """Name parts that must report ready before the process is."""
        self._not_ready.update(dict.fromkeys(parts, "starting"))

    def ready(self, part: str) -> None:
        """A part does its work."""
        self._not_ready.pop(part, None)

    def not_ready(self, part: str, reason: str) -> None:
        """A part cannot do its work now; the process lives on without it."""
        self._not_ready[part] = reason

    def beat(self, part: str, within: timedelta) -> None:
        """A part lives, and will beat again within this time or count as dead."""
        self._due[part] = self.monotonic() + within.total_seconds()

    def problems(self) -> tuple[str, ...]:
        """What keeps the process from being ready, one line a part."""
        return tuple(f"{part}: {reason}" for part, reason in sorted(self._not_ready.items()))

    def dead(self) -> tuple[str, ...]:
        """Parts whose next beat is overdue."""
        now = self.monotonic()
        return tuple(f"{part}: no sign of life" for part, due in sorted(self._due.items()) if due < now)


@asynccontextmanager
async def serve(
    health: Health,
    host: str,
    port: int,
    registry: CollectorRegistry = REGISTRY,
    pages: Mapping[str, Page] = NO_PAGES,
) -> AsyncIterator[tuple[str, int]]:
    """Serve while the block runs; gives the address bound to, which tells the port where 0 was asked for.

    `pages` are further ones by their path, e.g. `/ranks`. Raises OSError if the address cannot be bound.
    """

    async def metrics(_: web.Request) -> web.Response:
        return web.Response(body=generate_latest(registry), headers={"Content-Type": CONTENT_TYPE_LATEST})

    async def alive(_: web.Request) -> web.Response:
        return _answer(health.dead())

    async def ready(_: web.Request) -> web.Response:
        return _answer(health.dead() + health.problems())

    application = web.Application()
    application.add_routes([web.get("/metrics", metrics), web.get("/healthz", alive), web.get("/readyz", ready)])
    application.add_routes([web.get(path, _serving(page)) for path, page in pages.items()])
    runner = web.AppRunner(
        application, access_log=None, keepalive_timeout=_IDLE_SECONDS, shutdown_timeout=_SHUTDOWN_SECONDS
    )
    await runner.setup()
    try:
        await web.TCPSite(runner, host, port).start()
        bound_host, bound_port = runner.addresses[0][:2]
        yield str(bound_host), int(bound_port)
    finally:
        await runner.cleanup()


def _serving(page: Page) -> Callable[[web.Request], Awaitable[web.Response]]:
    async def answer(_: web.Request) -> web.Response:
        try:
            return web.Response(body=await page(), content_type="application/json")
        except LookupError as reason:
            return web.Response(status=503, text=f"{reason}\n")

    return answer


def _answer(problems: tuple[str, ...]) -> web.Response:
    return web.Response(status=503 if problems else 200, text="\n".join(problems or ("ok",)) + "\n")
