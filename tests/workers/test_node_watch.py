import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from activities import kube
from tests.eventually import eventually
from tests.kube_under_test import KubeUnderTest
from workers import node_watch
from workers.node_watch import NodeWatch

NODES = "/api/v1/nodes"


@asynccontextmanager
async def watching(server: KubeUnderTest, selector: str = "") -> AsyncIterator[tuple[NodeWatch, list[str]]]:
    changed: list[str] = []
    watch = NodeWatch(server.api_client(), changed.append, selector)
    running = asyncio.create_task(watch.run())
    try:
        await asyncio.wait_for(watch.synced.wait(), 10)
        yield watch, changed
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


def names_of(watch: NodeWatch) -> set[str]:
    return {node.metadata.name for node in watch.nodes.values()}


def marked(watch: NodeWatch, name: str) -> bool:
    return any(node.metadata.name == name and "mark" in node.metadata.labels for node in watch.nodes.values())


async def mark(server: KubeUnderTest, name: str) -> None:
    await server.request("PATCH", f"{NODES}/{name}", {"metadata": {"labels": {"mark": "1"}}}, kube_merge_patch())


def kube_merge_patch() -> str:
    return "application/merge-patch+json"


async def test_it_shows_the_nodes_that_were_there_and_those_that_come_change_and_go(kube_server: KubeUnderTest) -> None:
    await kube_server.create_node("n1")
    async with watching(kube_server) as (watch, changed):
        assert names_of(watch) == {"n1"}
        await kube_server.create_node("n2")
        await eventually(lambda: names_of(watch) == {"n1", "n2"})
        await mark(kube_server, "n2")
        await eventually(lambda: marked(watch, "n2"))
        uid = next(uid for uid, node in watch.nodes.items() if node.metadata.name == "n1")
        await kube_server.request("DELETE", f"{NODES}/n1")
        await eventually(lambda: names_of(watch) == {"n2"})
        assert changed[-1] == uid


async def test_it_reads_lists_of_many_pages(kube_server: KubeUnderTest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kube, "PAGE_SIZE", 2)
    for number in range(5):
        await kube_server.create_node(f"n{number}")
    async with watching(kube_server) as (watch, changed):
        assert len(watch.nodes) == 5
        assert sorted(changed) == sorted(watch.nodes)


async def test_it_watches_only_the_nodes_selected(kube_server: KubeUnderTest) -> None:
    await kube_server.create_node("n1", labels={"pool": "gpu"})
    await kube_server.create_node("n2")
    async with watching(kube_server, "pool=gpu") as (watch, _):
        assert names_of(watch) == {"n1"}


async def test_it_reads_nodes_longer_than_any_buffer(kube_server: KubeUnderTest) -> None:
    async with watching(kube_server) as (watch, _):
        await kube_server.create_node("n1", annotations={"notes": "x" * 200_000})
        await eventually(lambda: names_of(watch) == {"n1"})


async def test_a_stream_that_the_server_ends_is_continued(
    kube_server: KubeUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node_watch, "STREAM_TIME", node_watch.STREAM_TIME.__class__(seconds=1))
    await kube_server.create_node("n1")
    async with watching(kube_server) as (watch, changed):
        await asyncio.sleep(1.5)  # the server's own timeout, which counts whole seconds
        await mark(kube_server, "n1")
        await eventually(lambda: marked(watch, "n1"))
        assert len([uid for uid in changed if uid in watch.nodes]) <= 3


async def test_nothing_is_missed_when_connections_drop(kube_server: KubeUnderTest) -> None:
    if kube_server.simulator is None:
        pytest.skip("only the simulated server can be told to drop its watches")
    await kube_server.create_node("n1")
    async with watching(kube_server) as (watch, _):
        kube_server.simulator.drop_watches()
        await mark(kube_server, "n1")
        await eventually(lambda: marked(watch, "n1"))


async def test_an_expired_version_leads_to_a_new_list_that_finds_what_was_missed(kube_server: KubeUnderTest) -> None:
    if kube_server.simulator is None:
        pytest.skip("only the simulated server can be told to forget its history")
    first = await kube_server.create_node("n1")
    await kube_server.create_node("gone")
    async with watching(kube_server) as (watch, changed):
        await kube_server.request("DELETE", f"{NODES}/n1")
        second = await kube_server.create_node("n1")
        await kube_server.request("DELETE", f"{NODES}/gone")
        kube_server.simulator.compact()
        kube_server.simulator.drop_watches()
        await eventually(lambda: set(watch.nodes) == {second["metadata"]["uid"]})
        assert first["metadata"]["uid"] in changed
        assert second["metadata"]["uid"] in changed


async def test_a_server_that_calls_every_version_expired_is_not_asked_in_a_circle(
    kube_server: KubeUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float] = []
    watch = NodeWatch(kube_server.api_client(), lambda _: None)

    async def expired(*_: object) -> str:
        raise node_watch.ExpiredError

    async def pause(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 8:
            raise asyncio.CancelledError

    monkeypatch.setattr(watch, "_stream", expired)
    monkeypatch.setattr(asyncio, "sleep", pause)
    with pytest.raises(asyncio.CancelledError):
        await watch.run()
    assert waits[0] == node_watch.FIRST_WAIT.total_seconds()
    assert waits[-1] == node_watch.LAST_WAIT.total_seconds()


async def test_a_node_made_anew_under_its_name_is_another_node_even_if_no_event_told(
    kube_server: KubeUnderTest,
) -> None:
    changed: list[str] = []
    watch = NodeWatch(kube_server.api_client(), changed.append)
    old = await kube_server.create_node("n1")
    await watch._list()
    await kube_server.request("DELETE", f"{NODES}/n1")
    new = await kube_server.create_node("n1")
    await watch._list()
    assert set(watch.nodes) == {new["metadata"]["uid"]}
    assert changed == [old["metadata"]["uid"], old["metadata"]["uid"], new["metadata"]["uid"]]


async def test_it_survives_a_restart_of_the_api_server(
    kube_server: KubeUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    if kube_server.simulator is None:
        pytest.skip("only the simulated server can be restarted by a test")
    monkeypatch.setattr(node_watch, "FIRST_WAIT", node_watch.FIRST_WAIT / 50)
    await kube_server.create_node("n1")
    async with watching(kube_server) as (watch, _):
        await kube_server.simulator.restart(down=0.3)
        await kube_server.create_node("n2")
        await eventually(lambda: names_of(watch) == {"n1", "n2"})


async def test_an_unreadable_node_does_not_hide_the_others(kube_server: KubeUnderTest) -> None:
    changed: list[str] = []
    watch = NodeWatch(kube_server.api_client(), changed.append)
    assert watch._keep({"metadata": {"name": 7, "uid": []}}) == ""
    await kube_server.create_node("n1")
    await watch._list()
    assert names_of(watch) == {"n1"}
