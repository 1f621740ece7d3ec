"""The simulated cloud as one HTTP endpoint: `endpoint_url` for boto3's EC2, Auto Scaling and S3.

A front before moto. EC2 and Auto Scaling calls are looked into: some are refused or answered here, the rest go on to
moto, after which the ledger follows what moto did. All other requests, S3 above all, pass straight through.
"""

from collections.abc import Mapping
from datetime import datetime
from types import TracebackType
from typing import Self

import aiohttp
from aiohttp import web

from simulator.clock import Clock
from simulator.cloud.autoscaling import AutoScalingActions
from simulator.cloud.compute import Compute
from simulator.cloud.ec2 import Ec2Actions
from simulator.cloud.errors import AwsError
from simulator.cloud.faults import Faults
from simulator.cloud.groups import Groups
from simulator.cloud.instances import Instance, NodeNames, ScheduledEvent, Timings
from simulator.cloud.interfaces import with_efa_interfaces
from simulator.cloud.launches import Launches
from simulator.cloud.store import MotoStore
from simulator.cloud.wire import Call, Service, read_call, refusal, service_of
from simulator.machine import MachineFactory
from simulator.tasks import Background

HOP_HEADERS = frozenset({"connection", "expect", "keep-alive", "transfer-encoding"})
"""Headers of one hop, which a proxy must not carry on."""

REQUEST_LIMIT = 1 << 30
"""Bytes of one request; an S3 part of a checkpoint may be large."""

MOTO_TIMEOUT = aiohttp.ClientTimeout(total=60)


class CloudServer:
    """The simulated cloud, an async context manager; one per process at a time, because moto's store is global."""

    def __init__(
        self,
        clock: Clock,
        machines: MachineFactory,
        *,
        region: str = "eu-west-1",
        timings: Timings | None = None,
        reuse_node_names: bool = False,
        port: int = 0,
    ) -> None:
        self.region = region
        self.zone = f"{region}a"
        self.faults = Faults(clock)
        times = timings or Timings()
        self._store = MotoStore(region)
        self._compute = Compute(clock, self._store, machines, self.faults, times, NodeNames(reuse_node_names))
        self._groups = Groups(clock, self._store, self._compute, self.faults, times)
        self._ec2 = Ec2Actions(self._compute)
        self._autoscaling = AutoScalingActions(self._groups)
        self._launches = Launches(self.faults, self.zone)
        self._tasks = Background()
        self._wanted_port = port

    async def __aenter__(self) -> Self:
        await self._store.start()
        self._session = aiohttp.ClientSession(timeout=MOTO_TIMEOUT, auto_decompress=False)
        front = web.Application(client_max_size=REQUEST_LIMIT)
        front.router.add_route("*", "/{path:.*}", self._serve)
        self._runner = web.AppRunner(front, access_log=None, shutdown_timeout=1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self._wanted_port).start()
        self._tasks.spawn(self._groups.run(), "Auto Scaling groups")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._tasks.close()
        await self._compute.close()
        await self._runner.cleanup()
        await self._session.close()
        await self._store.stop()

    @property
    def url(self) -> str:
        """The `endpoint_url` of every service."""
        host, port = self._runner.addresses[0][:2]
        return f"http://{host}:{port}"

    @property
    def instances(self) -> Mapping[str, Instance]:
        """The ledger: every instance that EC2 still knows, by id."""
        return self._compute.instances

    async def launch(self, instance_type: str, tags: Mapping[str, str]) -> Instance:
        """A new instance, as Karpenter would launch it. Raises AwsError while capacity is refused."""
        return await self._compute.launch(instance_type, self.zone, tags)

    def terminate(self, instance_id: str) -> None:
        """Begin to end an instance, as Karpenter would. Raises AwsError where it is protected or unknown."""
        self._compute.terminate(self._compute.get(instance_id))

    async def create_group(self, name: str, instance_type: str, size: int, tags: Mapping[str, str]) -> None:
        """Make an Auto Scaling group of this size, and its members."""
        async with self._store.turn:
            self._store.create_group(name, instance_type, size, self.zone, tags)
            self._compute.adopt()

    def throttle(self, calls: int, action: str | None = None) -> None:
        """Refuse the next `calls` EC2 and Auto Scaling calls, or those of one action only."""
        self.faults.throttle(calls, action)

    def refuse_capacity(self, until: datetime) -> None:
        """Launch nothing before this moment of the wall clock."""
        self.faults.refuse_capacity(until)

    def protect(self, instance_id: str, on: bool = True) -> None:
        """Set termination protection. Raises AwsError for an unknown id."""
        self._compute.protect(instance_id, on)

    def impair(
        self,
        instance_id: str,
        *,
        instance_since: datetime | None = None,
        system_since: datetime | None = None,
        ebs_since: datetime | None = None,
    ) -> None:
        """Let the status checks fail since some moments; those left out pass. Raises AwsError for an unknown id."""
        self._compute.impair(instance_id, instance_since, system_since, ebs_since)

    def attach_efa(self, instance_id: str, count: int) -> None:
        """Let an instance have this many EFA interfaces. Raises AwsError for an unknown id."""
        self._compute.get(instance_id).efa_interfaces = count

    def schedule_event(self, instance_id: str, event: ScheduledEvent) -> None:
        """Announce a scheduled event. Raises AwsError for an unknown id."""
        self._compute.schedule_event(instance_id, event)

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        service = service_of(request.headers.get("Authorization", ""))
        if service is None:
            return await self._forward(request)
        body = await request.read()
        call = read_call(service, body)
        try:
            self.faults.check_call(service, call.action)
            async with self._store.turn:
                answer = await self._answer(call, request, body)
        except AwsError as error:
            return web.Response(status=error.status, body=refusal(service, error), content_type="text/xml")
        if self.faults.loses_reply(call.action) and request.transport is not None:
            request.transport.close()
        return answer

    async def _answer(self, call: Call, request: web.Request, body: bytes) -> web.StreamResponse:
        own = await self._own_answer(call)
        if own is not None:
            return web.Response(body=own, content_type="text/xml")
        answer = await self._ask_moto(request, body)
        self._compute.adopt()
        if call.action == "RunInstances" and answer.status == 200 and isinstance(answer.body, bytes):
            answer.body = self._launches.remember(call, answer.body)
        if call.action == "DescribeInstances" and answer.status == 200 and isinstance(answer.body, bytes):
            answer.body = with_efa_interfaces(answer.body, self._compute.instances)
        return answer

    async def _own_answer(self, call: Call) -> bytes | None:
        if call.service is Service.AUTOSCALING:
            return self._autoscaling.handle(call)
        if call.action == "RunInstances":
            return self._launches.repeated(call)
        return await self._ec2.handle(call)

    async def _ask_moto(self, request: web.Request, body: bytes) -> web.Response:
        async with self._session.request(
            request.method, self._store.url + request.raw_path, data=body, headers=_carried(request.headers)
        ) as reply:
            return web.Response(status=reply.status, body=await reply.read(), content_type="text/xml")

    async def _forward(self, request: web.Request) -> web.StreamResponse:
        async with self._session.request(
            request.method,
            self._store.url + request.raw_path,
            data=request.content if request.can_read_body else None,
            headers=_carried(request.headers),
            allow_redirects=False,
        ) as reply:
            answer = web.StreamResponse(status=reply.status, headers=_carried(reply.headers))
            await answer.prepare(request)
            async for part in reply.content.iter_chunked(1 << 16):
                await answer.write(part)
            await answer.write_eof()
            return answer


def _carried(headers: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in headers.items() if name.lower() not in HOP_HEADERS}
