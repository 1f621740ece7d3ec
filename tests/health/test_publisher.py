import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from health.api_server import ApiServer
from health.publisher import FIELD_MANAGER, Publisher
from sickbay.conditions import FaultsAnnotation, Inventory
from sickbay.names import ANNOTATION_FAULTS, ANNOTATION_RANKS, CONDITION_GPU, CONDITIONS
from tests.eventually import eventually
from tests.kube_under_test import KubeUnderTest

from .records import XID_79, XID_119
from .test_agent import Node

NAME = "node-a"


class Cluster:
    """One Node object, as a test reads it."""

    def __init__(self, server: KubeUnderTest) -> None:
        self.server = server

    async def node(self) -> dict[str, Any]:
        return await self.server.request("GET", f"/api/v1/nodes/{NAME}")

    async def conditions(self) -> dict[str, dict[str, str]]:
        return {entry["type"]: entry for entry in (await self.node())["status"]["conditions"]}

    async def statuses(self) -> dict[str, str]:
        return {name: entry["status"] for name, entry in (await self.conditions()).items() if name in CONDITIONS}

    async def annotation(self) -> FaultsAnnotation:
        return FaultsAnnotation.model_validate_json((await self.node())["metadata"]["annotations"][ANNOTATION_FAULTS])

    async def gpu_is(self, status: str) -> bool:
        return (await self.statuses()).get(CONDITION_GPU) == status


@pytest.fixture
async def cluster(kube_server: KubeUnderTest) -> Cluster:
    await kube_server.create_node(NAME)
    return Cluster(kube_server)


def api_server(under_test: KubeUnderTest, folder: Path) -> ApiServer:
    """The agent's way to the server, with a service account's folder as the kubelet mounts it."""
    account = folder / "account"
    account.mkdir()
    if under_test.token:
        (account / "token").write_text(f"{under_test.token}\n")
    if under_test.authority is not None:
        (account / "ca.crt").write_bytes(under_test.authority.read_bytes())
    return ApiServer(under_test.url, FIELD_MANAGER, account)


@asynccontextmanager
async def publishing(node: Node, server: ApiServer, heartbeat_seconds: float = 3600) -> AsyncIterator[Publisher]:
    async with server, node.agent() as agent:
        publisher = Publisher(server, NAME, agent, heartbeat_seconds)
        running = asyncio.create_task(publisher.run())
        try:
            yield publisher
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)


async def test_a_healthy_node_gets_all_conditions_and_keeps_those_of_others(cluster: Cluster, tmp_path: Path) -> None:
    async with publishing(Node(tmp_path), api_server(cluster.server, tmp_path)) as publisher:
        await eventually(lambda: publisher.problem == "")
    assert await cluster.statuses() == dict.fromkeys(CONDITIONS, "True")
    assert (await cluster.conditions())["Ready"]["status"] == "True"
    annotation = await cluster.annotation()
    assert (annotation.boot_id, annotation.faults, annotation.expected_gpus) == ("boot-1", (), 2)
    assert annotation.inventory == Inventory(instance_type="p5.48xlarge", gpus=2, efa_devices=32)
    assert annotation.boot_seen_at is not None


async def test_a_fault_is_published_at_once_with_its_evidence(cluster: Cluster, tmp_path: Path) -> None:
    node = Node(tmp_path)
    async with publishing(node, api_server(cluster.server, tmp_path)) as publisher:
        await eventually(lambda: publisher.problem == "")
        before = (await cluster.conditions())[CONDITION_GPU]
        node.log.write(XID_119)
        await eventually(lambda: cluster.gpu_is("False"))
        after = (await cluster.conditions())[CONDITION_GPU]
        assert (before["reason"], after["reason"]) == ("NoFault", "Xid119")
        await eventually(lambda: annotated(cluster, "xid-119"))
        (fault,) = (await cluster.annotation()).faults
    assert fault.boot_id == "boot-1"
    assert "119" in fault.evidence[0]


async def annotated(cluster: Cluster, *codes: str) -> bool:
    return [fault.code for fault in (await cluster.annotation()).faults] == list(codes)


async def test_an_unchanged_node_is_written_again_when_the_heartbeat_is_due(cluster: Cluster, tmp_path: Path) -> None:
    node = Node(tmp_path)
    async with publishing(node, api_server(cluster.server, tmp_path), heartbeat_seconds=0.05) as publisher:
        await eventually(lambda: publisher.problem == "")
        first = (await cluster.conditions())[CONDITION_GPU]
        node.now = node.now.replace(hour=13)

        async def beaten() -> bool:
            return (await cluster.conditions())[CONDITION_GPU]["lastHeartbeatTime"] != first["lastHeartbeatTime"]

        await eventually(beaten)
        second = (await cluster.conditions())[CONDITION_GPU]
    assert second["lastTransitionTime"] == first["lastTransitionTime"]


async def test_at_rest_the_node_is_written_once_a_heartbeat(cluster: Cluster, tmp_path: Path) -> None:
    """Counted by the changes of the annotation's time, which a heartbeat alone leaves as it is."""
    node = Node(tmp_path)
    async with publishing(node, api_server(cluster.server, tmp_path), heartbeat_seconds=0.05) as publisher:
        await eventually(lambda: publisher.problem == "")
        told = (await cluster.annotation()).reported_at
        node.now = node.now.replace(hour=13)

        async def beaten() -> bool:
            return (await cluster.conditions())[CONDITION_GPU]["lastHeartbeatTime"].startswith("2026-11-30T13")

        await eventually(beaten)
        assert (await cluster.annotation()).reported_at == told


async def test_a_node_that_was_made_anew_gets_everything_again(cluster: Cluster, tmp_path: Path) -> None:
    async with publishing(Node(tmp_path), api_server(cluster.server, tmp_path), heartbeat_seconds=0.05) as publisher:
        await eventually(lambda: publisher.problem == "")
        await cluster.server.request("DELETE", f"/api/v1/nodes/{NAME}")
        await cluster.server.create_node(NAME)

        async def annotated_again() -> bool:
            return ANNOTATION_FAULTS in (await cluster.node())["metadata"].get("annotations", {})

        await eventually(annotated_again)
        assert await cluster.statuses() == dict.fromkeys(CONDITIONS, "True")


async def test_a_flood_of_one_fault_is_one_write(cluster: Cluster, tmp_path: Path) -> None:
    node = Node(tmp_path)
    async with publishing(node, api_server(cluster.server, tmp_path)) as publisher:
        node.log.write(XID_119)
        await eventually(lambda: cluster.gpu_is("False"))
        await eventually(lambda: annotated(cluster, "xid-119"))
        version = (await cluster.node())["metadata"]["resourceVersion"]
        node.log.write(*[XID_119] * 500)
        await eventually(lambda: publisher._agent.report().faults[0].count == 501)
        assert (await cluster.node())["metadata"]["resourceVersion"] == version
        node.log.write(XID_79)
        await eventually(lambda: annotated(cluster, "xid-79", "xid-119"))
        assert {fault.count for fault in (await cluster.annotation()).faults} == {1, 501}


async def test_the_writes_are_our_own_by_field_manager(cluster: Cluster, tmp_path: Path) -> None:
    async with publishing(Node(tmp_path), api_server(cluster.server, tmp_path)) as publisher:
        await eventually(lambda: publisher.problem == "")
    managers = {entry["manager"] for entry in (await cluster.node())["metadata"]["managedFields"]}
    assert "sickbay-node" in managers
    owned = [
        json.dumps(entry["fieldsV1"])
        for entry in (await cluster.node())["metadata"]["managedFields"]
        if entry["manager"] == "sickbay-node"
    ]
    assert not any("f:unschedulable" in fields for fields in owned)


async def test_a_node_that_does_not_exist_yet_is_waited_for(kube_server: KubeUnderTest, tmp_path: Path) -> None:
    async with publishing(Node(tmp_path), api_server(kube_server, tmp_path)) as publisher:
        await eventually(lambda: publisher.problem.startswith("404"))
        await kube_server.create_node(NAME)
        await eventually(lambda: publisher.problem == "")


async def test_an_api_server_that_is_away_is_told_and_the_agent_goes_on(tmp_path: Path) -> None:
    node = Node(tmp_path)
    async with publishing(node, ApiServer("http://127.0.0.1:9", FIELD_MANAGER, tmp_path)) as publisher:
        await eventually(lambda: publisher.problem.startswith("no answer from http://127.0.0.1:9"))
        node.log.write(XID_119)
        await eventually(lambda: bool(publisher._agent.report().faults))


async def test_the_page_of_the_ranks_is_named_where_it_is_served_and_only_there(
    cluster: Cluster, tmp_path: Path
) -> None:
    node = Node(tmp_path)
    server = api_server(cluster.server, tmp_path)
    url = "http://10.0.0.7:9465/ranks"

    async def named() -> str | None:
        found: str | None = (await cluster.node())["metadata"]["annotations"].get(ANNOTATION_RANKS)
        return found

    async with server, node.agent() as agent:
        for rank_url, expected in ((url, url), ("", None)):
            publisher = Publisher(server, NAME, agent, 3600)
            publisher.rank_url = rank_url
            running = asyncio.create_task(publisher.run())
            await eventually(partial(has_published, publisher))
            running.cancel()
            assert await named() == expected


def has_published(publisher: Publisher) -> bool:
    return not publisher.problem
