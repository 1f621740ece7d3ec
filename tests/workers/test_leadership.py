import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest

from tests.eventually import eventually
from tests.kube_under_test import KubeUnderTest
from workers.leadership import Leadership

LEASE = "/apis/coordination.k8s.io/v1/namespaces/default/leases/watch"
QUICK = timedelta(seconds=0.02)


def candidate(
    server: KubeUnderTest,
    identity: str,
    duration: timedelta = timedelta(seconds=15),
    give_up_after: timedelta = timedelta(seconds=10),
) -> Leadership:
    return Leadership(
        server.api_client(),
        "default",
        "watch",
        identity,
        duration=duration,
        give_up_after=give_up_after,
        retry_every=QUICK,
    )


async def holder(server: KubeUnderTest) -> str:
    return str((await server.request("GET", LEASE))["spec"].get("holderIdentity", ""))


class Work:
    """Work that goes on until it is cancelled, and knows how often it was begun and whether it runs."""

    def __init__(self) -> None:
        self.begun = 0
        self.running = False

    async def __call__(self) -> None:
        self.begun += 1
        self.running = True
        try:
            await asyncio.Event().wait()
        finally:
            self.running = False


@asynccontextmanager
async def leading(leadership: Leadership, work: Callable[[], Awaitable[None]]) -> AsyncIterator["asyncio.Task[None]"]:
    task = asyncio.create_task(leadership.lead(work))
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_one_of_two_works_and_the_other_takes_over_when_it_leaves(kube_server: KubeUnderTest) -> None:
    first, second = Work(), Work()
    async with leading(candidate(kube_server, "b"), second), leading(candidate(kube_server, "a"), first):
        await eventually(lambda: first.running or second.running)
        assert first.running != second.running
    assert not first.running
    assert not second.running
    assert await holder(kube_server) == ""


async def test_a_lease_given_up_is_taken_at_once(kube_server: KubeUnderTest) -> None:
    first, second = Work(), Work()
    async with leading(candidate(kube_server, "a"), first):
        await eventually(lambda: first.running)
        waiting = candidate(kube_server, "b", duration=timedelta(hours=1))
        successor = asyncio.create_task(waiting.lead(second))
        await asyncio.sleep(0.1)  # some tries, none of which may succeed
        assert not second.running
    await eventually(lambda: second.running)
    successor.cancel()
    await asyncio.gather(successor, return_exceptions=True)


async def test_a_lease_that_its_holder_no_longer_renews_passes_on(kube_server: KubeUnderTest) -> None:
    stale = {"holderIdentity": "dead", "leaseDurationSeconds": 1, "renewTime": "2020-01-01T00:00:00.000000Z"}
    await kube_server.request("POST", LEASE.rsplit("/", 1)[0], {"metadata": {"name": "watch"}, "spec": stale})
    work = Work()
    async with leading(candidate(kube_server, "a"), work):
        await eventually(lambda: work.running)
        assert await holder(kube_server) == "a"


async def test_a_leader_that_cannot_renew_stops_its_work(kube_server: KubeUnderTest) -> None:
    work = Work()
    quick = candidate(kube_server, "a", give_up_after=timedelta(seconds=0.3))
    async with leading(quick, work):
        await eventually(lambda: work.running)
        taken = {"spec": {"holderIdentity": "thief", "leaseDurationSeconds": 3600}}
        await kube_server.request("PATCH", LEASE, taken, "application/merge-patch+json")
        await eventually(lambda: not work.running)
        assert await holder(kube_server) == "thief"


async def test_work_that_fails_ends_the_leadership_with_its_error(kube_server: KubeUnderTest) -> None:
    async def fails() -> None:
        raise LookupError("broken")

    with pytest.raises(LookupError, match="broken"):
        await asyncio.wait_for(candidate(kube_server, "a").lead(fails), 10)
    assert await holder(kube_server) == ""
