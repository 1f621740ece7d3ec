"""What an API server must do for lists and watches; see `test_kube_contract`."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from kubernetes.aio import client, watch

from simulator.kube.requests import MERGE_PATCH
from tests.kube_under_test import KubeRequestError, KubeUnderTest

NODES = "/api/v1/nodes"
PODS = "/api/v1/namespaces/default/pods"
Watch: Any = watch.Watch
"""The client leaves it untyped."""
DEADLINE = 10.0
"""Seconds until an event that must come has come; most come in milliseconds."""


class Follower:
    """One watch by the real client's Watch."""

    def __init__(self, source: AsyncIterator[dict[str, Any]]) -> None:
        self._source = source

    async def next(self) -> tuple[str, str]:
        """Type and object name of the next event that is no bookmark."""
        while True:
            async with asyncio.timeout(DEADLINE):
                event = await anext(self._source)
            if event["type"] != "BOOKMARK":
                return event["type"], event["raw_object"]["metadata"]["name"]

    async def bookmark(self) -> str:
        """The resourceVersion of the next bookmark."""
        while True:
            async with asyncio.timeout(DEADLINE):
                event = await anext(self._source)
            if event["type"] == "BOOKMARK":
                return str(event["raw_object"]["metadata"]["resourceVersion"])


@asynccontextmanager
async def following(function: Any, *arguments: str, **options: Any) -> AsyncIterator[Follower]:
    watcher = Watch()
    try:
        yield Follower(watcher.stream(function, *arguments, **{"timeout_seconds": 30, **options}))
    finally:
        await watcher.close()


async def names(kube: KubeUnderTest, path: str, **query: str) -> list[str]:
    text = "&".join(f"{key}={value}" for key, value in query.items())
    listed = await kube.request("GET", f"{path}?{text}")
    return sorted(item["metadata"]["name"] for item in listed["items"])


async def version(kube: KubeUnderTest, path: str = NODES) -> str:
    return str((await kube.request("GET", path))["metadata"]["resourceVersion"])


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ("pool=a", ["n1", "n2"]),
        ("pool==b", ["n3"]),
        ("pool!=a", ["n3", "n4"]),
        ("pool in (a, b)", ["n1", "n2", "n3"]),
        ("pool notin (a)", ["n3", "n4"]),
        ("pool", ["n1", "n2", "n3"]),
        ("!pool", ["n4"]),
        ("pool=a,gpu=yes", ["n1"]),
        ("pool,!gpu", ["n2", "n3"]),
    ],
)
async def test_labels_select(kube_server: KubeUnderTest, selector: str, expected: list[str]) -> None:
    await kube_server.create_node("n1", labels={"pool": "a", "gpu": "yes"})
    await kube_server.create_node("n2", labels={"pool": "a"})
    await kube_server.create_node("n3", labels={"pool": "b"})
    await kube_server.create_node("n4")
    assert await names(kube_server, NODES, labelSelector=selector) == expected


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ("spec.nodeName=n1", ["p1", "p2"]),
        ("spec.nodeName=n1,status.phase=Running", ["p1"]),
        ("spec.nodeName!=n1", ["p3"]),
        ("status.phase=Pending", ["p3"]),
        ("metadata.name=p2", ["p2"]),
        ("metadata.namespace=default", ["p1", "p2", "p3"]),
    ],
)
async def test_fields_select(kube_server: KubeUnderTest, selector: str, expected: list[str]) -> None:
    await kube_server.create_pod("p1", node="n1")
    await kube_server.create_pod("p2", node="n1", phase="Succeeded")
    await kube_server.create_pod("p3", phase="Pending")
    assert await names(kube_server, "/api/v1/pods", fieldSelector=selector) == expected


async def test_cordoned_nodes_and_events_of_an_object_can_be_selected(kube_server: KubeUnderTest) -> None:
    await kube_server.create_node("n1", unschedulable=True)
    await kube_server.create_node("n2")
    assert await names(kube_server, NODES, fieldSelector="spec.unschedulable=true") == ["n1"]
    for name, involved in (("e1", "n1"), ("e2", "n2")):
        body = {"metadata": {"name": name}, "involvedObject": {"kind": "Node", "name": involved}}
        await kube_server.request("POST", "/api/v1/namespaces/default/events", body)
    assert await names(kube_server, "/api/v1/events", fieldSelector="involvedObject.name=n1") == ["e1"]


@pytest.mark.parametrize("query", ["fieldSelector=spec.hostname=a", "labelSelector=a=(b", "labelSelector=a in b"])
async def test_a_selector_that_cannot_be_read_selects_nothing(kube_server: KubeUnderTest, query: str) -> None:
    with pytest.raises(KubeRequestError) as caught:
        await kube_server.request("GET", f"/api/v1/pods?{query}")
    assert caught.value.code == 400


async def test_pages_show_one_moment(kube_server: KubeUnderTest) -> None:
    for name in ("n1", "n3", "n4", "n5"):
        await kube_server.create_node(name)
    core = kube_server.core
    first = kube_server.plain(await core.list_node(limit=2))
    assert first["metadata"]["remainingItemCount"] == 2
    await kube_server.create_node("n9")
    await kube_server.request("DELETE", f"{NODES}/n4")
    second = kube_server.plain(await core.list_node(limit=2, _continue=first["metadata"]["continue"]))
    assert [item["metadata"]["name"] for item in (*first["items"], *second["items"])] == ["n1", "n3", "n4", "n5"]
    assert "continue" not in second["metadata"]
    assert second["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]


async def test_a_made_up_page_is_refused(kube_server: KubeUnderTest) -> None:
    with pytest.raises(KubeRequestError) as caught:
        await kube_server.request("GET", f"{NODES}?limit=1&continue=nonsense")
    assert caught.value.code == 400


async def test_a_watch_shows_what_exists_and_then_what_happens(kube_server: KubeUnderTest) -> None:
    await kube_server.create_node("n1")
    async with following(kube_server.core.list_node) as events:
        assert await events.next() == ("ADDED", "n1")
        await kube_server.request("PATCH", f"{NODES}/n1", {"spec": {"unschedulable": True}}, MERGE_PATCH)
        assert await events.next() == ("MODIFIED", "n1")
        await kube_server.request("DELETE", f"{NODES}/n1")
        assert await events.next() == ("DELETED", "n1")


async def test_a_watch_resumes_after_the_version_it_names(kube_server: KubeUnderTest) -> None:
    await kube_server.create_node("n1")
    start = await version(kube_server)
    await kube_server.request("PATCH", f"{NODES}/n1", {"metadata": {"labels": {"a": "b"}}}, MERGE_PATCH)
    await kube_server.request("DELETE", f"{NODES}/n1")
    async with following(kube_server.core.list_node, resource_version=start) as events:
        assert await events.next() == ("MODIFIED", "n1")
        assert await events.next() == ("DELETED", "n1")


async def test_a_deletion_carries_a_version_to_resume_from(kube_server: KubeUnderTest) -> None:
    await kube_server.create_node("n1")
    start = await version(kube_server)
    await kube_server.request("DELETE", f"{NODES}/n1")
    watcher = Watch()
    async for event in watcher.stream(kube_server.core.list_node, resource_version=start, timeout_seconds=30):
        assert int(event["raw_object"]["metadata"]["resourceVersion"]) > int(start)
        break
    await watcher.close()


async def test_objects_enter_and_leave_a_selected_watch(kube_server: KubeUnderTest) -> None:
    await kube_server.create_node("n1")
    start = await version(kube_server)
    place = f"{NODES}/n1"
    async with following(kube_server.core.list_node, resource_version=start, label_selector="sick") as events:
        await kube_server.request("PATCH", place, {"metadata": {"labels": {"other": "1"}}}, MERGE_PATCH)
        await kube_server.request("PATCH", place, {"metadata": {"labels": {"sick": "1"}}}, MERGE_PATCH)
        assert await events.next() == ("ADDED", "n1")
        await kube_server.request("PATCH", place, {"metadata": {"labels": {"sick": None}}}, MERGE_PATCH)
        assert await events.next() == ("DELETED", "n1")


async def test_a_watch_of_one_object_hears_of_no_other(kube_server: KubeUnderTest) -> None:
    start = await version(kube_server)
    selector = "metadata.name=n2"
    async with following(kube_server.core.list_node, resource_version=start, field_selector=selector) as events:
        await kube_server.create_node("n1")
        await kube_server.create_node("n2")
        assert await events.next() == ("ADDED", "n2")


async def test_a_watch_of_a_namespace_hears_of_no_other(kube_server: KubeUnderTest) -> None:
    start = await version(kube_server, PODS)
    function = kube_server.core.list_namespaced_pod
    async with following(function, "default", resource_version=start) as events:
        await kube_server.create_pod("p1", namespace="kube-system")
        await kube_server.create_pod("p2")
        assert await events.next() == ("ADDED", "p2")


async def test_custom_kinds_can_be_watched(kube_server: KubeUnderTest) -> None:
    await kube_server.create_karpenter("nodeclaims", "c1")
    custom = client.CustomObjectsApi(kube_server.api_client())
    place = ("karpenter.sh", "v1", "nodeclaims")
    async with following(custom.list_cluster_custom_object, *place) as events:
        assert await events.next() == ("ADDED", "c1")


async def test_a_watch_that_asks_for_bookmarks_gets_them(kube_server: KubeUnderTest) -> None:
    if kube_server.is_real:
        pytest.skip("a real API server sends bookmarks at its own discretion")
    await kube_server.create_node("n1")
    start = await version(kube_server)
    options = {"resource_version": start, "allow_watch_bookmarks": True, "timeout_seconds": 4}
    async with following(kube_server.core.list_node, **options) as events:
        await kube_server.create_pod("p1")
        assert int(await events.bookmark()) >= int(start)


async def test_a_watch_ends_at_its_timeout(kube_server: KubeUnderTest) -> None:
    start = await version(kube_server)
    async with following(kube_server.core.list_node, resource_version=start, timeout_seconds=1) as events:
        with pytest.raises(StopAsyncIteration):
            await events.next()


async def test_a_version_of_the_future_is_refused(kube_server: KubeUnderTest) -> None:
    future = int(await version(kube_server)) + 1_000_000
    with pytest.raises(KubeRequestError) as caught:
        await kube_server.request("GET", f"{NODES}?resourceVersion={future}")
    assert caught.value.code == 504
