"""Trouble that is ordered of the simulated API server, and its own habits that a real one need not share."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from kubernetes.aio import client, config

from simulator.kube import FaultOrder, KubeServer, RequestFault, Trouble, write_kubeconfig
from tests.kube_under_test import KubeRequestError, KubeUnderTest

NODE = "/api/v1/nodes/n1"
CORDON = {"spec": {"unschedulable": True}}
MERGE = "application/merge-patch+json"


@pytest.fixture
async def kube() -> AsyncIterator[KubeUnderTest]:
    async with KubeServer() as server:
        under_test = KubeUnderTest(server.url, simulator=server)
        await under_test.create_node("n1")
        yield under_test
        await under_test.close()


def server_of(kube: KubeUnderTest) -> KubeServer:
    assert kube.simulator is not None
    return kube.simulator


async def order(kube: KubeUnderTest, trouble: FaultOrder) -> None:
    await kube.request("POST", "/simulator/faults", trouble.model_dump(mode="json"))


async def line_of(response: aiohttp.ClientResponse) -> bytes:
    async with asyncio.timeout(10):
        return await response.content.readline()


@asynccontextmanager
async def watching(url: str, version: str = "") -> AsyncIterator[aiohttp.ClientResponse]:
    """The bare stream of a watch of all nodes."""
    query = {"watch": "true", "resourceVersion": version}
    async with aiohttp.ClientSession() as session, session.get(f"{url}/api/v1/nodes", params=query) as response:
        yield response


async def test_only_matching_requests_fail_and_only_as_often_as_ordered(kube: KubeUnderTest) -> None:
    server_of(kube).faults.add(RequestFault(method="PATCH", path="/nodes/n1$", status=503, times=2))
    await kube.request("GET", NODE)
    for _ in range(2):
        with pytest.raises(KubeRequestError) as caught:
            await kube.request("PATCH", NODE, CORDON, MERGE)
        assert caught.value.code == 503
    assert (await kube.request("PATCH", NODE, CORDON, MERGE))["spec"]["unschedulable"] is True


async def test_overload_is_told_from_a_budget_by_its_missing_cause(kube: KubeUnderTest) -> None:
    server_of(kube).faults.add(RequestFault(status=429, retry_after=3))
    with pytest.raises(KubeRequestError) as caught:
        await kube.request("GET", NODE)
    assert caught.value.headers["Retry-After"] == "3"
    assert "causes" not in caught.value.status["details"]


async def test_an_answer_can_be_lost_after_the_work_is_done(kube: KubeUnderTest) -> None:
    server_of(kube).faults.add(RequestFault(method="PATCH", status=504, after_work=True))
    with pytest.raises(KubeRequestError):
        await kube.request("PATCH", NODE, CORDON, MERGE)
    assert (await kube.request("GET", NODE))["spec"]["unschedulable"] is True


async def test_a_slow_request_holds_up_no_other(kube: KubeUnderTest) -> None:
    server_of(kube).faults.add(RequestFault(method="DELETE", latency=60))
    slow = asyncio.create_task(kube.request("DELETE", NODE))
    assert (await kube.request("GET", NODE))["metadata"]["name"] == "n1"
    assert not slow.done()
    slow.cancel()
    with pytest.raises(asyncio.CancelledError):
        await slow


async def test_orders_are_taken_over_http(kube: KubeUnderTest) -> None:
    await order(kube, FaultOrder(trouble=Trouble.FAIL_REQUESTS, request=RequestFault(status=500, times=9)))
    with pytest.raises(KubeRequestError):
        await kube.request("GET", NODE)
    await order(kube, FaultOrder(trouble=Trouble.CLEAR))
    await kube.request("GET", NODE)


async def test_an_order_that_cannot_be_read_says_what_is_wrong(kube: KubeUnderTest) -> None:
    with pytest.raises(KubeRequestError) as caught:
        await kube.request("POST", "/simulator/faults", {"trouble": "earthquake"})
    assert caught.value.code == 400
    assert "trouble" in caught.value.status["error"]


async def test_after_a_compaction_every_earlier_version_is_gone(kube: KubeUnderTest) -> None:
    page = await kube.request("GET", "/api/v1/nodes")
    version = page["metadata"]["resourceVersion"]
    await order(kube, FaultOrder(trouble=Trouble.COMPACT))
    async with watching(kube.url, version) as watch:
        line = await line_of(watch)
    assert b'"type":"ERROR"' in line
    assert b'"code":410' in line


async def test_after_a_compaction_a_list_cannot_be_continued(kube: KubeUnderTest) -> None:
    await kube.create_node("n2")
    page = await kube.request("GET", "/api/v1/nodes?limit=1")
    server_of(kube).compact()
    with pytest.raises(KubeRequestError) as caught:
        await kube.request("GET", f"/api/v1/nodes?limit=1&continue={page['metadata']['continue']}")
    assert (caught.value.code, caught.value.status["reason"]) == (410, "Expired")


async def test_history_is_kept_only_so_far_back() -> None:
    async with KubeServer(history=3) as server:
        kube = KubeUnderTest(server.url, simulator=server)
        version = (await kube.create_node("n1"))["metadata"]["resourceVersion"]
        for number in range(4):
            await kube.create_pod(f"p{number}")
        async with watching(kube.url, version) as watch:
            assert b'"code":410' in await line_of(watch)
        await kube.close()


async def test_dropped_watches_end_without_an_error(kube: KubeUnderTest) -> None:
    async with watching(kube.url) as watch:
        assert b"ADDED" in await line_of(watch)
        await order(kube, FaultOrder(trouble=Trouble.DROP_WATCHES))
        assert await line_of(watch) == b""


async def test_a_restart_cuts_connections_and_keeps_objects_and_history(kube: KubeUnderTest) -> None:
    version = (await kube.request("GET", NODE))["metadata"]["resourceVersion"]
    async with watching(kube.url, version) as watch:
        await order(kube, FaultOrder(trouble=Trouble.RESTART))
        with pytest.raises(aiohttp.ClientError):
            await line_of(watch)
    await server_of(kube).restart()
    await kube.request("PATCH", NODE, CORDON, MERGE)
    async with watching(kube.url, version) as again:
        assert b"MODIFIED" in await line_of(again)


async def test_a_client_that_leaves_takes_its_watch_along(kube: KubeUnderTest) -> None:
    async with watching(kube.url) as watch:
        await line_of(watch)
        assert server_of(kube).watches == 1
    async with asyncio.timeout(10):
        while server_of(kube).watches:
            await kube.request("GET", NODE)


async def test_the_server_ends_while_clients_still_watch() -> None:
    async with AsyncExitStack() as clients:
        async with KubeServer() as server:
            watch = await clients.enter_async_context(watching(server.url))
        assert await line_of(watch) == b""


async def test_a_client_finds_its_way_by_kubeconfig(kube: KubeUnderTest, tmp_path: Path) -> None:
    path = tmp_path / "kubeconfig"
    write_kubeconfig(path, kube.url)
    configuration = client.Configuration()
    load: Any = config.load_kube_config  # untyped in the client
    await load(str(path), client_configuration=configuration)
    async with client.ApiClient(configuration) as api:
        assert len((await client.CoreV1Api(api).list_node()).items) == 1


@pytest.mark.parametrize("path", ["/healthz", "/livez", "/readyz"])
async def test_it_says_that_it_is_healthy(kube: KubeUnderTest, path: str) -> None:
    async with aiohttp.ClientSession() as session, session.get(kube.url + path) as answer:
        assert (answer.status, await answer.text()) == (200, "ok")


@pytest.mark.parametrize(
    ("method", "path", "code"),
    [
        ("GET", "/api/v1/secrets", 404),
        ("GET", "/apis/nowhere/v1/things", 404),
        ("GET", "/api/v1/namespaces/default/nodes", 404),
        ("GET", "/api/v1/pods/p1", 404),
        ("GET", "/api/v1/nodes/n1/scale", 404),
        ("GET", "/elsewhere", 404),
        ("POST", "/api/v1/nodes/n1", 405),
        ("POST", "/api/v1/pods", 405),
        ("DELETE", "/api/v1/nodes/n1/status", 405),
        ("GET", "/api/v1/namespaces/default/pods/p1/eviction", 405),
        ("GET", "/api/v1/nodes?limit=many", 400),
        ("GET", "/api/v1/nodes?watch=true&resourceVersion=latest", 400),
        ("GET", "/api/v1/nodes?watch=true&fieldSelector=spec.color=red", 400),
        ("DELETE", "/api/v1/nodes/n1?propagationPolicy=Sideways", 400),
        ("PATCH", "/api/v1/nodes/n1", 400),
    ],
)
async def test_what_is_not_served_is_refused(kube: KubeUnderTest, method: str, path: str, code: int) -> None:
    with pytest.raises(KubeRequestError) as caught:
        await kube.request(method, path, {} if method == "POST" else None, MERGE)
    assert caught.value.code == code
