"""The HTTP face of the simulated API server, on the loopback interface alone.

Started by `sickbay simulate` in a process of its own, and by tests in their loop. Plain HTTP and no authentication: the
listener never leaves 127.0.0.1. All work on objects is synchronous and short; only watches and ordered faults wait.
"""

import asyncio
import json
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import replace
from typing import Any, Self

from aiohttp import web
from pydantic import ValidationError

from simulator.kube import errors
from simulator.kube.discovery import HEALTH_PATHS, discover
from simulator.kube.faults import PATH as FAULTS_PATH
from simulator.kube.faults import FaultOrder, Faults, Trouble, suffer
from simulator.kube.listing import selection
from simulator.kube.operations import Operations
from simulator.kube.requests import Target, WriteOptions, parse_list_options, parse_path
from simulator.kube.resources import NAMESPACES
from simulator.kube.routing import Call, perform
from simulator.kube.storage import HISTORY, Store
from simulator.kube.watching import BOOKMARK_EVERY, Watch

HOST = "127.0.0.1"
FIRST_NAMESPACES = ("default", "kube-system", "kube-public", "kube-node-lease")
LARGEST_BODY = 3 * 1024 * 1024
"""Bytes, as the real server's limit."""


class KubeServer:
    """A simulated Kubernetes API server: `async with KubeServer() as server: ... server.url`."""

    def __init__(self, port: int = 0, *, bookmark_every: float = BOOKMARK_EVERY, history: int = HISTORY) -> None:
        """Port 0 takes any free one. `bookmark_every` is in seconds; `history` is the number of events kept."""
        self.faults = Faults()
        self.store = Store(history)
        self.pod_logs: Callable[[str, str], bytes | None] | None = None
        """What a pod of this namespace and name has printed; set by whoever runs pods."""
        self._operations = Operations(self.store)
        self._port = port
        self._bookmark_every = bookmark_every
        self._runner: web.AppRunner | None = None
        self._site: web.TCPSite | None = None
        self._restarting: asyncio.Task[None] | None = None
        for name in FIRST_NAMESPACES:
            self._operations.create(Target(NAMESPACES), {"metadata": {"name": name}}, WriteOptions())

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://{HOST}:{self._port}"

    @property
    def watches(self) -> int:
        """How many watches are open now."""
        return self.store.subscriptions

    async def __aenter__(self) -> Self:
        application = web.Application(client_max_size=LARGEST_BODY)
        application.router.add_route("*", FAULTS_PATH, self._handle_faults)
        application.router.add_route("*", "/{path:.*}", self._handle)
        self._runner = web.AppRunner(application, handler_cancellation=True, shutdown_timeout=1.0, access_log=None)
        await self._runner.setup()
        await self._listen()
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._restarting:
            self._restarting.cancel()
        self.store.close_subscriptions()
        if self._runner:
            await self._runner.cleanup()

    def drop_watches(self) -> None:
        """End every open watch without an error, as a load balancer does."""
        self.store.close_subscriptions()

    def compact(self) -> None:
        """Make every resourceVersion given out so far too old to resume from."""
        self.store.compact()

    async def restart(self, down: float = 0.0) -> None:
        """Cut all connections, and listen again on the same port after `down` seconds. Objects and history stay."""
        if self._site is None or self._runner is None or self._runner.server is None:
            return
        await self._site.stop()
        for connection in self._runner.server.connections:
            if connection.transport is not None:
                connection.transport.abort()
        await asyncio.sleep(down)
        await self._listen()

    async def _listen(self) -> None:
        if self._runner is None:
            raise RuntimeError("the simulated API server is not started: use it in `async with`")
        self._site = web.TCPSite(self._runner, HOST, self._port, reuse_address=True)
        await self._site.start()
        self._port = self._runner.addresses[0][1]

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        path = request.path
        if path in HEALTH_PATHS:
            return web.Response(text="ok")
        try:
            fault = self.faults.take(request.method, path)
            await suffer(fault, work_done=False)
            response = await self._serve(request)
            if not response.prepared:
                await suffer(fault, work_done=True)
            return response
        except errors.ApiError as refusal:
            headers = {"Retry-After": str(refusal.retry_after)} if refusal.retry_after else None
            return web.json_response(refusal.status(), status=refusal.code, headers=headers)

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        document = discover(request.path) if request.method == "GET" else None
        if document is not None:
            return web.json_response(document)
        target = parse_path(request.path)
        if request.method == "GET" and request.query.get("watch") in ("true", "True", "1"):
            return await self._watch(request, target)
        if target.subresource == "log":
            return self._log(target, request)
        content_type = request.content_type
        user_agent = request.headers.get("User-Agent", "")
        body = _parse_body(await request.read())
        answer = perform(self._operations, Call(request.method, target, request.query, content_type, user_agent, body))
        return web.json_response(answer.body, status=answer.code)

    def _log(self, target: Target, request: web.Request) -> web.Response:
        """What a pod printed, as its kubelet would serve it; nothing where no kubelet is simulated."""
        self._operations.read(replace(target, subresource=""))
        text = (self.pod_logs(target.namespace, target.name) if self.pod_logs else None) or b""
        lines = request.query.get("tailLines", "")
        if lines.isdecimal():
            text = b"\n".join(text.rstrip(b"\n").split(b"\n")[-int(lines) :]) + b"\n"
        most = request.query.get("limitBytes", "")
        return web.Response(body=text[: int(most)] if most.isdecimal() else text, content_type="text/plain")

    async def _watch(self, request: web.Request, target: Target) -> web.StreamResponse:
        options = parse_list_options(request.query)
        watch = Watch(self.store, target, options, selection(target, options), self._bookmark_every)
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        async with aclosing(watch.lines()) as lines:
            async for line in lines:
                await response.write(line)
        await response.write_eof()
        return response

    async def _handle_faults(self, request: web.Request) -> web.Response:
        """POST takes one `FaultOrder`."""
        try:
            order = FaultOrder.model_validate_json(await request.read())
        except ValidationError as problem:
            first = problem.errors()[0]
            return web.json_response({"error": f"{first['loc']}: {first['msg']}"}, status=400)
        match order.trouble:
            case Trouble.FAIL_REQUESTS:
                self.faults.add(order.request)
            case Trouble.DROP_WATCHES:
                self.drop_watches()
            case Trouble.COMPACT:
                self.compact()
            case Trouble.CLEAR:
                self.faults.clear()
            case Trouble.RESTART:
                self._restarting = asyncio.create_task(self.restart(order.down))
        return web.json_response({})


def _parse_body(raw: bytes) -> Any:
    if not raw:
        return None
    try:
        return json.loads(raw)
    except ValueError as problem:
        raise errors.bad_request(f"the object provided is unrecognized: {problem}") from problem
