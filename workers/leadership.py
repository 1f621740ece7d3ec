"""Which replica's watch acts: the one that holds a Lease of the cluster.

Used by `workers.controller` for the watch alone; workflows and activities run on every replica. Two watches at once
would do no harm that matters (containing and opening are idempotent), only count containments apart, so that the lease
is for order and not for safety.

The client library's own election is not used: it has no timeout on its calls, compares wall clocks, keeps quiet when
the work it started dies, and does not give the lease up when it ends.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Final, Literal

import structlog
from kubernetes.aio.client import ApiClient
from pydantic import JsonValue

from activities.errors import FinalError, PassingError
from activities.kube import Body, ConflictError, NotFoundError, call, path
from activities.waiting import Clock, utc_now
from sickbay.kube_objects import Lease
from workers import controller_metrics as metrics

LEASES: Final = "/apis/coordination.k8s.io/v1/namespaces"

log: Final = structlog.get_logger(__name__)


class Leadership:
    """One candidate for one lease.

    A lease that was not renewed for `duration` passes to another; its holder stops working after `give_up_after`
    without a renewal, which is shorter, so that the two do not overlap.
    """

    def __init__(
        self,
        api: ApiClient,
        namespace: str,
        name: str,
        identity: str,
        *,
        duration: timedelta = timedelta(seconds=15),
        give_up_after: timedelta = timedelta(seconds=10),
        retry_every: timedelta = timedelta(seconds=2),
        clock: Clock = utc_now,
    ) -> None:
        self._api = api
        self._leases = path(LEASES, namespace, "leases")
        self._name = name
        self._identity = identity
        self._duration = duration
        self._give_up_after = give_up_after
        self._retry_every = retry_every
        self._clock = clock
        self._seen: tuple[str, datetime | None] = ("", None)
        self._seen_at = 0.0

    async def lead(self, work: Callable[[], Awaitable[None]]) -> None:
        """Do the work whenever the lease is ours, until cancelled or the work ends. Raises what the work raises."""
        while True:
            await self._acquire()
            log.info("this replica leads", identity=self._identity)
            metrics.LEADING.set(1)
            try:
                if await self._work_while_held(work):
                    return
            finally:
                metrics.LEADING.set(0)
            log.warning("this replica leads no more", identity=self._identity)

    async def _acquire(self) -> None:
        while True:
            if await self._try():
                return
            await asyncio.sleep(self._retry_every.total_seconds())

    async def _work_while_held(self, work: Callable[[], Awaitable[None]]) -> bool:
        """Whether the work ended by itself; false if the lease was lost first."""
        working = asyncio.ensure_future(work())
        renewing = asyncio.create_task(self._renew())
        try:
            await asyncio.wait((working, renewing), return_when=asyncio.FIRST_COMPLETED)
            if working.done():
                await working
                return True
            return False
        finally:
            working.cancel()
            renewing.cancel()
            await asyncio.gather(working, renewing, return_exceptions=True)
            await self._give_up()

    async def _renew(self) -> None:
        """Keep the lease; returns when it is lost."""
        loop = asyncio.get_running_loop()
        renewed_at = loop.time()
        while loop.time() - renewed_at < self._give_up_after.total_seconds():
            await asyncio.sleep(self._retry_every.total_seconds())
            began = loop.time()
            with suppress(TimeoutError):
                async with asyncio.timeout(self._give_up_after.total_seconds() - (began - renewed_at)):
                    if await self._try():
                        renewed_at = began

    async def _try(self) -> bool:
        """Take or renew the lease; whether it is ours now."""
        try:
            lease = await call(self._api, "GET", path(self._leases, self._name), Lease)
        except NotFoundError:
            return await self._write("POST", self._leases, {"name": self._name}, self._identity)
        except (FinalError, PassingError) as error:
            log.warning("the lease cannot be read", error=str(error))
            return False
        if not self._is_free(lease):
            return False
        version = {"resourceVersion": lease.metadata.resource_version}
        return await self._write("PATCH", path(self._leases, self._name), version, self._identity)

    async def _give_up(self) -> None:
        """Let another replica take over at once."""
        with suppress(FinalError, PassingError):
            lease = await call(self._api, "GET", path(self._leases, self._name), Lease)
            if lease.spec.holder_identity == self._identity:
                version = {"resourceVersion": lease.metadata.resource_version}
                await self._write("PATCH", path(self._leases, self._name), version, "")

    async def _write(
        self, method: Literal["POST", "PATCH"], resource: str, metadata: dict[str, str], holder: str
    ) -> bool:
        body: Body = {"metadata": {**metadata}, "spec": self._spec(holder)}
        try:
            await call(self._api, method, resource, Lease, body=body)
        except ConflictError:
            return False
        except (FinalError, PassingError) as error:
            log.warning("the lease cannot be written", error=str(error))
            return False
        return True

    def _is_free(self, lease: Lease) -> bool:
        """Whether we may write the lease: it is ours, nobody's, or did not change for as long as its holder promised.

        How long it did not change is counted from when we saw it change, by our own monotonic clock.
        """
        seen = (lease.spec.holder_identity, lease.spec.renew_time)
        now = asyncio.get_running_loop().time()
        if seen != self._seen:
            self._seen, self._seen_at = seen, now
        if lease.spec.holder_identity in ("", self._identity):
            return True
        return now - self._seen_at >= max(lease.spec.lease_duration_seconds, 1)

    def _spec(self, holder: str) -> dict[str, JsonValue]:
        return {
            "holderIdentity": holder,
            "leaseDurationSeconds": max(int(self._duration.total_seconds()), 1),
            "renewTime": self._clock().strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        }
