"""The pods that hold a node's GPUs, on an API server where a test's own controller does what DaemonSets do."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from activities.gpu_client_pods import (
    GpuClientPodActivities,
    PauseReport,
    PauseRequest,
    RestartRequest,
    ResumeReport,
    ResumeRequest,
)
from activities.nodes import NodeActivities, ReleaseRequest
from sickbay import names
from sickbay.gpu_clients import DEPLOY_LABEL, PAUSED
from sickbay.nodes import NodeRef
from sickbay.policy.model import GpuClientsPolicy
from tests.kube_under_test import KubeRequestError, KubeUnderTest

pytestmark = pytest.mark.kube

INCIDENT, OTHER = "incident-c1-i-0abc", "incident-c1-i-0def"
QUICK = timedelta(milliseconds=20)
SOON = timedelta(seconds=30)
NAMESPACE = "default"
DEPLOYED = {f"{DEPLOY_LABEL}{name}": "true" for name in ("dcgm-exporter", "device-plugin", "nvsm")}
RUNNING = ("dcgm-exporter", "device-plugin")
"""Operands that have a DaemonSet here; the operator labels nodes for others too."""
MONITOR = GpuClientsPolicy(restart=("default/app=monitor",), deadline=SOON)


@pytest.fixture
def clients(kube_server: KubeUnderTest) -> GpuClientPodActivities:
    return GpuClientPodActivities(kube_server.api_client(), look_every=QUICK)


class DaemonSets:
    """Keeps one pod per deployed operand on the node, as the operator's DaemonSets would."""

    def __init__(self, kube: KubeUnderTest, node: str) -> None:
        self._kube = kube
        self._node = node
        self.order: list[str] = []
        """Operands in the order in which their pods left."""

    async def keep(self) -> None:
        while True:
            labels = (await self._kube.request("GET", f"/api/v1/nodes/{self._node}"))["metadata"]["labels"]
            present = await pods_of(self._kube)
            for operand in RUNNING:
                wanted = labels.get(DEPLOY_LABEL + operand) == "true"
                if wanted and operand not in present:
                    await self.start(operand)
                elif not wanted and operand in present:
                    await self._kube.finish_pod(operand)
                    self.order.append(operand)
            await asyncio.sleep(QUICK.total_seconds())

    async def start(self, operand: str) -> None:
        owner = {"kind": "DaemonSet", "name": operand}
        selector = {DEPLOY_LABEL + operand: "true"}
        await self._kube.create_pod(operand, node=self._node, owner=owner, node_selector=selector)


async def pods_of(kube: KubeUnderTest) -> dict[str, dict[str, Any]]:
    return {item["metadata"]["name"]: item for item in (await kube.request("GET", "/api/v1/pods"))["items"]}


@asynccontextmanager
async def daemon_sets(kube: KubeUnderTest, node: NodeRef) -> AsyncIterator[DaemonSets]:
    sets = DaemonSets(kube, node.name)
    for operand in RUNNING:
        await sets.start(operand)
    keeping = asyncio.create_task(sets.keep())
    try:
        yield sets
    finally:
        keeping.cancel()
        await asyncio.gather(keeping, return_exceptions=True)


async def gpu_node(kube: KubeUnderTest, **labels: str) -> NodeRef:
    made = await kube.create_node("node-a", labels={**DEPLOYED, **labels})
    return NodeRef(cluster="c1", name="node-a", uid=str(made["metadata"]["uid"]))


async def metadata_of(kube: KubeUnderTest, node: NodeRef) -> dict[str, Any]:
    metadata: dict[str, Any] = (await kube.request("GET", f"/api/v1/nodes/{node.name}"))["metadata"]
    return metadata


def pause_request(node: NodeRef, deadline: timedelta = SOON, incident: str = INCIDENT) -> PauseRequest:
    return PauseRequest(node=node, incident_id=incident, policy=GpuClientsPolicy(deadline=deadline))


def resume_request(node: NodeRef, expected: tuple[str, ...] = (), deadline: timedelta = SOON) -> ResumeRequest:
    return ResumeRequest(node=node, incident_id=INCIDENT, expected=expected, deadline=deadline)


async def test_operands_leave_one_by_one_and_come_back_with_their_labels_as_they_were(
    kube_server: KubeUnderTest, clients: GpuClientPodActivities
) -> None:
    node = await gpu_node(kube_server, **{f"{DEPLOY_LABEL}mig-manager": "false"})
    before = await metadata_of(kube_server, node)
    async with daemon_sets(kube_server, node) as sets:
        report = await clients.pause_gpu_clients(pause_request(node))
        assert report == PauseReport(paused=("nvsm", *RUNNING), stopped=RUNNING)
        assert sets.order == list(RUNNING)
        assert await pods_of(kube_server) == {}
        held = await metadata_of(kube_server, node)
        assert [held["labels"][label] for label in DEPLOYED] == [PAUSED] * 3
        assert held["labels"][f"{DEPLOY_LABEL}mig-manager"] == "false"

        resumed = await clients.resume_gpu_clients(resume_request(node, report.stopped))
        assert (set(resumed.resumed), resumed.missing) == ({"nvsm", *RUNNING}, ())
        assert set(await pods_of(kube_server)) == set(RUNNING)
    after = await metadata_of(kube_server, node)
    assert after["labels"] == before["labels"]
    assert after.get("annotations", {}) == before.get("annotations", {})


async def test_pause_and_resume_may_be_repeated(kube_server: KubeUnderTest, clients: GpuClientPodActivities) -> None:
    node = await gpu_node(kube_server)
    first = await clients.pause_gpu_clients(pause_request(node))
    version = (await metadata_of(kube_server, node))["resourceVersion"]
    assert await clients.pause_gpu_clients(pause_request(node)) == first
    assert (await metadata_of(kube_server, node))["resourceVersion"] == version
    assert (await clients.resume_gpu_clients(resume_request(node))).resumed
    assert await clients.resume_gpu_clients(resume_request(node)) == ResumeReport()


async def test_a_client_that_does_not_leave_is_named_and_nothing_after_it_is_paused(
    kube_server: KubeUnderTest, clients: GpuClientPodActivities
) -> None:
    node = await gpu_node(kube_server)
    selector = {f"{DEPLOY_LABEL}dcgm-exporter": "true"}
    await kube_server.create_pod("exporter", node=node.name, node_selector=selector)
    report = await clients.pause_gpu_clients(pause_request(node, timedelta()))
    assert report.remaining == ("default/exporter",)
    assert report.paused == ("nvsm", "dcgm-exporter")
    assert (await metadata_of(kube_server, node))["labels"][f"{DEPLOY_LABEL}device-plugin"] == "true"


async def test_a_resume_tells_who_is_not_back_at_the_deadline(
    kube_server: KubeUnderTest, clients: GpuClientPodActivities
) -> None:
    node = await gpu_node(kube_server)
    await clients.pause_gpu_clients(pause_request(node))
    report = await clients.resume_gpu_clients(resume_request(node, ("device-plugin",), timedelta()))
    assert report.missing == ("device-plugin",)
    assert names.ANNOTATION_PAUSED_CLIENTS not in (await metadata_of(kube_server, node)).get("annotations", {})


async def test_the_release_of_an_incident_resumes_what_it_left_paused(
    kube_server: KubeUnderTest, clients: GpuClientPodActivities
) -> None:
    node = await gpu_node(kube_server)
    before = (await metadata_of(kube_server, node))["labels"]
    await clients.pause_gpu_clients(pause_request(node))
    nodes = NodeActivities(kube_server.api_client(), look_every=QUICK)

    await nodes.release_node(ReleaseRequest(node=node, incident_id=OTHER))
    assert (await metadata_of(kube_server, node))["labels"] != before
    await nodes.release_node(ReleaseRequest(node=node, incident_id=INCIDENT))
    after = await metadata_of(kube_server, node)
    assert after["labels"] == before
    assert names.ANNOTATION_PAUSED_CLIENTS not in after.get("annotations", {})


async def test_a_node_that_is_gone_is_no_error(kube_server: KubeUnderTest, clients: GpuClientPodActivities) -> None:
    node = NodeRef(cluster="c1", name="gone", uid="uid-gone")
    assert await clients.pause_gpu_clients(pause_request(node)) == PauseReport()
    assert await clients.resume_gpu_clients(resume_request(node, RUNNING)) == ResumeReport()


async def test_a_pod_that_latches_is_restarted_once_and_no_other(
    kube_server: KubeUnderTest, clients: GpuClientPodActivities
) -> None:
    node = await gpu_node(kube_server)
    latched: dict[str, Any] = {"labels": {"app": "monitor"}, "grace": 0}
    old = await kube_server.create_pod("monitor", node=node.name, **latched)
    await kube_server.create_pod("stranger", node=node.name)
    await kube_server.create_pod("elsewhere", node="node-b", **latched)
    reset_at = datetime.now(UTC) + timedelta(seconds=2)
    request = RestartRequest(node=node, incident_id=INCIDENT, policy=MONITOR, reset_at=reset_at)

    restarting = asyncio.create_task(clients.restart_latched_pods(request))
    while not restarting.done() and "monitor" in (found := await pods_of(kube_server)):
        if found["monitor"]["metadata"].get("deletionTimestamp"):
            with suppress(KubeRequestError):  # without grace it may have ended since the look
                await kube_server.finish_pod("monitor")
    await kube_server.create_pod("monitor-2", node=node.name, labels={"app": "monitor"})
    report = await restarting
    assert (report.restarted, report.missing) == (("default/monitor",), ())
    left = await pods_of(kube_server)
    assert set(left) == {"monitor-2", "stranger", "elsewhere"}
    assert old["metadata"]["uid"] not in {pod["metadata"]["uid"] for pod in left.values()}


async def test_a_pod_that_started_after_the_reset_is_left_alone(
    kube_server: KubeUnderTest, clients: GpuClientPodActivities
) -> None:
    node = await gpu_node(kube_server)
    await kube_server.create_pod("monitor", node=node.name, labels={"app": "monitor"})
    reset_at = datetime.now(UTC) - timedelta(minutes=1)
    request = RestartRequest(node=node, incident_id=INCIDENT, policy=MONITOR, reset_at=reset_at)
    report = await clients.restart_latched_pods(request)
    assert (report.restarted, report.missing) == ((), ())
    assert set(await pods_of(kube_server)) == {"monitor"}


async def test_a_restarted_pod_that_does_not_come_back_is_told(
    kube_server: KubeUnderTest, clients: GpuClientPodActivities
) -> None:
    node = await gpu_node(kube_server)
    await kube_server.create_pod("monitor", node=node.name, labels={"app": "monitor"}, grace=0)
    impatient = MONITOR.model_copy(update={"deadline": timedelta()})
    reset_at = datetime.now(UTC) + timedelta(seconds=2)
    request = RestartRequest(node=node, incident_id=INCIDENT, policy=impatient, reset_at=reset_at)
    assert (await clients.restart_latched_pods(request)).missing == ("default/app=monitor",)
