"""EC2's words, from the simulated cloud over the wire to a node's annotation."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, cast

import pytest

from activities.aws_errors import ec2_client
from sickbay.cloud_words import CloudWords, of_node
from sickbay.kube_objects import Node
from simulator.cloud import ScheduledEvent, Timings
from tests.kube_under_test import KubeUnderTest
from tests.simulator.cloud_world import World, open_world
from workers.aws_clients import LateClient
from workers.cloud_watch import OFF_FOR, THROTTLED_FOR, CloudWatch

if TYPE_CHECKING:
    from mypy_boto3_ec2 import EC2Client

EVERY = timedelta(seconds=60)


@dataclass
class Ward:
    """One GPU node on one simulated instance, and the watch over it."""

    kube: KubeUnderTest
    world: World
    machine: str
    nodes: dict[str, Node]
    watch: CloudWatch

    async def node(self) -> Node:
        return Node.model_validate(await self.kube.request("GET", "/api/v1/nodes/n1"))

    async def see(self) -> None:
        """Let the watch's copy be what the server has."""
        node = await self.node()
        self.nodes[node.metadata.uid] = node

    async def turn(self) -> timedelta:
        await self.see()
        return await self.watch.turn()

    async def words(self) -> CloudWords | None:
        return of_node(await self.node())

    async def codes(self) -> list[str]:
        words = await self.words()
        assert words is not None
        return sorted(fault.code for fault in words.faults)


@pytest.fixture
async def ward(kube_server: KubeUnderTest, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Ward]:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    async with open_world(Timings(pending=0.1, shutting_down=0.1)) as world:
        machine = await world.running()
        await kube_server.create_node("n1", provider_id=f"aws:///eu-west-1a/{machine}")
        nodes: dict[str, Node] = {}
        watch = CloudWatch(api=kube_server.api_client(), client=world.ec2, nodes=nodes, cluster="lab", every=EVERY)
        yield Ward(kube_server, world, machine, nodes, watch)


def event(code: str, description: str = "the host is degraded") -> ScheduledEvent:
    due = datetime.now(UTC) + timedelta(days=7)
    return ScheduledEvent(event_id=f"event-{code}", code=code, description=description, not_before=due)


async def test_a_scheduled_event_is_noted_and_ends_only_by_a_newer_answer(ward: Ward) -> None:
    assert await ward.turn() == EVERY
    assert await ward.codes() == []
    ward.world.cloud.schedule_event(ward.machine, event("instance-retirement"))
    await ward.turn()
    assert await ward.codes() == ["instance-retirement-scheduled"]
    ward.world.cloud.faults.deny("DescribeInstanceStatus")
    await ward.turn()
    assert await ward.codes() == ["instance-retirement-scheduled"]
    ward.world.cloud.faults._denied.clear()
    ward.world.cloud.schedule_event(ward.machine, event("instance-retirement", "[Completed] the host is degraded"))
    await ward.turn()
    assert await ward.codes() == []


async def test_a_failing_status_check_is_noted_once_it_has_lasted(ward: Ward) -> None:
    ward.world.cloud.impair(ward.machine, system_since=datetime.now(UTC) - timedelta(minutes=2))
    await ward.turn()
    assert await ward.codes() == []
    ward.world.cloud.impair(ward.machine, system_since=datetime.now(UTC) - timedelta(minutes=6))
    await ward.turn()
    assert await ward.codes() == ["system-check-failed"]


async def test_attached_efa_interfaces_are_noted(ward: Ward) -> None:
    ward.world.cloud.attach_efa(ward.machine, 32)
    await ward.turn()
    words = await ward.words()
    assert words is not None
    assert words.efa_attached == 32


async def test_an_answer_that_says_nothing_new_is_not_written(ward: Ward) -> None:
    await ward.turn()
    before = (await ward.node()).metadata.resource_version
    await ward.turn()
    assert (await ward.node()).metadata.resource_version == before


async def test_throttling_leaves_ec2_alone_for_a_while(ward: Ward) -> None:
    ward.world.cloud.throttle(10)
    assert await ward.turn() == THROTTLED_FOR
    ward.world.cloud.throttle(0)
    assert await ward.turn() == EVERY


async def test_a_missing_right_is_tried_again_now_and_then(ward: Ward) -> None:
    ward.world.cloud.faults.deny("DescribeInstances")
    assert await ward.turn() == OFF_FOR
    assert await ward.words() is None


@pytest.mark.parametrize("provider_id", ["", "kind://n2", "aws:///eu-west-1a/i-n2", "gce://p/z/n2"])
async def test_nodes_that_are_not_on_ec2_are_not_asked_for(ward: Ward, provider_id: str) -> None:
    await ward.kube.create_node("n2", provider_id=provider_id or None)
    other = Node.model_validate(await ward.kube.request("GET", "/api/v1/nodes/n2"))
    ward.nodes[other.metadata.uid] = other
    ward.world.cloud.faults.deny("DescribeInstanceStatus")
    assert await ward.watch.turn() == EVERY
    ward.world.cloud.faults._denied.clear()
    assert await ward.turn() == EVERY
    assert await ward.codes() == []


async def test_an_instance_that_ec2_no_longer_knows_keeps_its_last_words(ward: Ward) -> None:
    ward.world.cloud.schedule_event(ward.machine, event("instance-stop"))
    await ward.turn()
    ward.nodes.clear()
    await ward.kube.request(
        "PATCH", "/api/v1/nodes/n1", {"metadata": {"labels": {"seen": "again"}}}, "application/merge-patch+json"
    )
    ward.world.cloud._store.forget(ward.machine)
    del ward.world.cloud._compute.instances[ward.machine]
    await ward.turn()
    assert await ward.codes() == ["instance-stop-scheduled"]


async def test_without_aws_nothing_is_asked_and_nothing_ends(ward: Ward, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nonexistent")
    ward.watch._client = cast("EC2Client", LateClient(lambda: ec2_client(None, None)))
    assert await ward.turn() == OFF_FOR
    assert await ward.turn() == OFF_FOR
    assert await ward.words() is None


async def test_a_node_that_was_made_anew_under_its_name_is_not_written_to(ward: Ward) -> None:
    await ward.see()
    await ward.kube.request("DELETE", "/api/v1/nodes/n1")
    made: dict[str, Any] = await ward.kube.create_node("n1", provider_id=f"aws:///eu-west-1a/{ward.machine}")
    await ward.watch.turn()
    assert await ward.words() is None
    assert made["metadata"]["uid"] not in ward.nodes
