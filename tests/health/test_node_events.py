"""Events on a node, on the simulated API server and, where it is at hand, a real one."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from health.api_server import ApiServer
from health.node_events import MOST_A_MINUTE, NodeEvents
from health.publisher import FIELD_MANAGER
from sickbay.catalogue import fault_of
from sickbay.conditions import FaultsAnnotation
from sickbay.faults import Component, ComponentKind, Fault
from tests.eventually import eventually
from tests.kube_under_test import KubeUnderTest

from .records import XID_79
from .test_agent import Node
from .test_publisher import NAME, Cluster, api_server, publishing

NOW = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)


class Teller:
    """Events of one node, and what came of them."""

    def __init__(self, under_test: KubeUnderTest, server: ApiServer) -> None:
        self._under_test = under_test
        self.server = server
        self.now = NOW
        self.events = self.restarted()

    def restarted(self) -> NodeEvents:
        """The Events of an agent that has just started."""
        return NodeEvents(self.server, NAME, lambda: self.now)

    async def tell(self, *faults: Fault, events: NodeEvents | None = None) -> None:
        report = FaultsAnnotation(boot_id="boot-1", reported_at=self.now, faults=faults)
        await (events or self.events).tell(report, "uid-1")

    async def seen(self) -> list[dict[str, Any]]:
        return await all_events(self._under_test)


async def all_events(under_test: KubeUnderTest) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (await under_test.request("GET", "/api/v1/namespaces/default/events"))["items"]
    return [event for event in found if event["involvedObject"].get("name") == NAME]


@pytest.fixture
async def teller(kube_server: KubeUnderTest, tmp_path: Path) -> AsyncIterator[Teller]:
    async with api_server(kube_server, tmp_path) as server:
        yield Teller(kube_server, server)


def fault(number: int = 0) -> Fault:
    component = Component(kind=ComponentKind.GPU, id=f"0000:{number:02x}:00")
    return fault_of("gpu-lost", component, boot_id="boot-1", evidence=("NVML: GPU 3 is lost",))


async def test_one_fault_of_one_boot_is_one_event_that_counts_up(teller: Teller) -> None:
    await teller.tell(fault())
    (opened,) = await teller.seen()
    assert (opened["reason"], opened["type"], opened["count"]) == ("FaultOpened", "Warning", 1)
    assert opened["involvedObject"]["uid"] == "uid-1"
    teller.now += timedelta(seconds=30)
    await teller.tell(fault())
    await teller.tell()
    (closed,) = await teller.seen()
    assert (closed["reason"], closed["type"], closed["count"]) == ("FaultClosed", "Normal", 2)
    assert (closed["firstTimestamp"], closed["lastTimestamp"]) == ("2026-11-30T12:00:00Z", "2026-11-30T12:00:30Z")
    await teller.tell(fault())
    assert [(event["reason"], event["count"]) for event in await teller.seen()] == [("FaultOpened", 3)]


async def test_an_agent_that_starts_tells_nothing_twice(teller: Teller) -> None:
    await teller.tell(fault())
    again = teller.restarted()
    await teller.tell(fault(), events=again)
    assert [event["count"] for event in await teller.seen()] == [1]
    await teller.tell(events=again)
    assert [(event["reason"], event["count"]) for event in await teller.seen()] == [("FaultClosed", 2)]


async def test_a_storm_is_a_few_events_and_one_that_sums_up_the_rest(teller: Teller) -> None:
    """Detection 8.8: whatever happens, events are bounded."""
    await teller.tell(*map(fault, range(50)))
    events = await teller.seen()
    assert len(events) == MOST_A_MINUTE + 1
    (rest,) = (event for event in events if event["reason"] == "ManyFaults")
    assert rest["message"] == "40 more changes of faults: gpu-lost (40)"
    await teller.tell()
    assert len(await teller.seen()) == MOST_A_MINUTE + 1
    teller.now += timedelta(minutes=1)
    await teller.tell(fault(200))
    assert len(await teller.seen()) == MOST_A_MINUTE + 2
    (rest,) = (event for event in await teller.seen() if event["reason"] == "ManyFaults")
    assert (rest["message"], rest["count"]) == ("50 more changes of faults: gpu-lost (50)", 2)


async def test_events_that_cannot_be_written_are_left_out(tmp_path: Path) -> None:
    async with ApiServer("http://127.0.0.1:9", FIELD_MANAGER, tmp_path) as server:
        report = FaultsAnnotation(boot_id="boot-1", reported_at=NOW, faults=(fault(),))
        await NodeEvents(server, NAME, lambda: NOW).tell(report, "uid-1")


async def test_a_published_fault_has_its_event(kube_server: KubeUnderTest, tmp_path: Path) -> None:
    node = Node(tmp_path)
    await kube_server.create_node(NAME)
    async with publishing(node, api_server(kube_server, tmp_path)) as publisher:
        await eventually(lambda: publisher.problem == "")
        node.log.write(XID_79)

        async def told() -> bool:
            return any(event["message"].startswith("xid-79 on gpu") for event in await all_events(kube_server))

        await eventually(told)
    assert await Cluster(kube_server).annotation()
