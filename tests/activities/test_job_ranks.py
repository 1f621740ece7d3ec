"""Real pages over real sockets; the Node objects come from a simulated or a real API server."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from aiohttp import web
from kubernetes.aio.client import ApiClient

from activities import job_ranks
from activities.job_ranks import PAGE_MOST, RankPages
from sickbay.names import ANNOTATION_RANKS
from sickbay.training.attempts import AttemptRef
from tests.kube_under_test import KubeUnderTest
from tests.sickbay.ranks.test_pages import page, window

REF = AttemptRef(cluster="c", namespace="ml", job="llama", attempt=1, fence="run-1")
Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


async def tells(_: web.Request) -> web.Response:
    return web.Response(body=page(window()))


@asynccontextmanager
async def agent(answer: Answer = tells) -> AsyncIterator[str]:
    """An agent that answers so; gives its page's URL."""
    application = web.Application()
    application.add_routes([web.get("/ranks", answer)])
    runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/ranks"
    finally:
        await runner.cleanup()


@pytest.fixture
def api(kube_server: KubeUnderTest) -> ApiClient:
    return kube_server.api_client()


async def create(server: KubeUnderTest, name: str, url: str) -> None:
    await server.create_node(name, annotations={ANNOTATION_RANKS: url} if url else {})


async def test_the_pages_of_the_nodes_that_answer_are_fetched(kube_server: KubeUnderTest, api: ApiClient) -> None:
    async with agent() as url:
        await create(kube_server, "node-a", url)
        await create(kube_server, "node-b", url)  # whose page is of another node
        await create(kube_server, "node-c", "")
        await create(kube_server, "node-d", "http://127.0.0.1:9/ranks")
        await create(kube_server, "node-e", "http://169.254.169.254:80/ranks")
        pages = await RankPages(api).fetch(REF, ["node-e", "node-d", "node-c", "node-b", "node-a", "gone", "node-a"])
    assert [(each.node, each.windows) for each in pages] == [("node-a", (window(),))]


async def redirects(_: web.Request) -> web.Response:
    raise web.HTTPFound("http://127.0.0.1:9/elsewhere")


async def refuses(_: web.Request) -> web.Response:
    return web.Response(status=503, text="the disk does not answer")


async def talks_without_end(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse()
    await response.prepare(request)
    for _ in range(2 * PAGE_MOST // 65536):
        await response.write(b" " * 65536)
    return response


async def says_nothing(_: web.Request) -> web.Response:
    await asyncio.sleep(60)
    return web.Response()


@pytest.mark.parametrize("answer", [redirects, refuses, talks_without_end, says_nothing])
async def test_a_node_that_answers_badly_or_not_has_no_page(
    kube_server: KubeUnderTest, api: ApiClient, monkeypatch: pytest.MonkeyPatch, answer: Answer
) -> None:
    monkeypatch.setattr(job_ranks, "NODE_TIMEOUT", 1.0)
    async with agent(answer) as url:
        await create(kube_server, "node-a", url)
        assert await RankPages(api).fetch(REF, ["node-a"]) == ()


async def test_a_node_that_was_rebooted_since_it_was_read_is_read_again(
    kube_server: KubeUnderTest, api: ApiClient
) -> None:
    boots = ["boot-1"]

    async def tells_its_boot(_: web.Request) -> web.Response:
        return web.Response(body=page(window(), boot_id=boots[-1]))

    async with agent(tells_its_boot) as url:
        await create(kube_server, "node-a", url)
        pages = RankPages(api)
        assert len(await pages.fetch(REF, ["node-a"])) == 1
        boots.append("boot-2")
        assert await pages.fetch(REF, ["node-a"]) == ()
        node = await kube_server.request("GET", "/api/v1/nodes/node-a")
        info = {**node["status"]["nodeInfo"], "bootID": "boot-2"}
        await kube_server.set_node_status("node-a", {"nodeInfo": info})
        assert [each.boot_id for each in await pages.fetch(REF, ["node-a"])] == ["boot-2"]
