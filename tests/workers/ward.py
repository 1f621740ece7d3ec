"""One cluster with its incidents, and the watch's reflex over it, as the tests of the triage need it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest
from temporalio.client import Client, WorkflowExecutionStatus
from temporalio.service import RPCError
from temporalio.testing import WorkflowEnvironment
from temporalio.worker import Worker

from sickbay import catalogue, names
from sickbay.conditions import FaultsAnnotation
from sickbay.faults import Component, ComponentKind, Fault
from sickbay.incident import IncidentView, Outcome
from sickbay.policy.model import ContainmentPolicy, IncidentPolicy, Limit
from sickbay.triage import TriageRules
from sickbay.watch_faults import WatchRules
from tests.incident_stand_in import StandInIncident
from tests.kube_under_test import KubeUnderTest
from workers.incident_desk import IncidentDesk
from workers.triage import Triage

MERGE = "application/merge-patch+json"
NODES = "/api/v1/nodes"


def cap_of(count: int) -> ContainmentPolicy:
    return ContainmentPolicy(cap=Limit(count=count, percent=100))


@dataclass(frozen=True)
class OnePolicy:
    """The same for every pool."""

    containment: ContainmentPolicy = field(default_factory=lambda: cap_of(5))
    incident: IncidentPolicy = field(default_factory=IncidentPolicy)

    def for_pool(self, pool: str) -> IncidentPolicy:
        return self.incident


@dataclass
class Ward:
    """One cluster with its incidents, as a test needs it."""

    kube: KubeUnderTest
    client: Client
    cluster: str

    def incident_of(self, machine: str) -> str:
        return names.incident_id(self.cluster, machine)

    async def sick_node(self, name: str, *faults: Fault, **options: Any) -> str:
        """A node whose agent reports these faults; its machine is `i-<name>`."""
        await self.kube.create_node(name, provider_id=f"aws:///eu-west-1a/i-{name}", **options)
        await self.agent_reports(name, *faults)
        return f"i-{name}"

    async def agent_reports(self, name: str, *faults: Fault) -> None:
        now = datetime.now(UTC)
        annotation = FaultsAnnotation(boot_id="boot-1", reported_at=now, faults=faults).model_dump_json()
        stamp = now.strftime("%Y-%m-%dT%H:%M:%SZ")
        status = "False" if faults else "True"
        conditions = [
            {"type": kind, "status": status, "reason": "Test", "lastHeartbeatTime": stamp, "lastTransitionTime": stamp}
            for kind in names.CONDITIONS
        ]
        await self.kube.set_node_status(name, {"conditions": conditions})
        await self.annotate(name, {names.ANNOTATION_FAULTS: annotation})

    async def annotate(self, name: str, annotations: dict[str, str | None]) -> None:
        await self.kube.request("PATCH", f"{NODES}/{name}", {"metadata": {"annotations": annotations}}, MERGE)

    async def node(self, name: str) -> dict[str, Any]:
        return await self.kube.request("GET", f"{NODES}/{name}")

    async def is_contained(self, name: str) -> bool:
        node = await self.node(name)
        marked = names.ANNOTATION_INCIDENT in node["metadata"].get("annotations", {})
        return marked and bool(node["spec"].get("unschedulable"))

    async def is_free(self, name: str) -> bool:
        node = await self.node(name)
        marked = names.ANNOTATION_INCIDENT in node["metadata"].get("annotations", {})
        return not marked and not node["spec"].get("unschedulable")

    async def is_open(self, machine: str) -> bool:
        handle = self.client.get_workflow_handle(self.incident_of(machine))
        try:
            return (await handle.describe()).status is WorkflowExecutionStatus.RUNNING
        except RPCError:
            return False

    async def runs(self, machine: str) -> str:
        """Id of the latest run; another one means another incident."""
        return (await self.client.get_workflow_handle(self.incident_of(machine)).describe()).run_id

    async def end(self, machine: str, outcome: Outcome) -> None:
        handle = self.client.get_workflow_handle(self.incident_of(machine))
        await handle.signal("end", outcome)
        await handle.result()

    async def codes(self, machine: str) -> list[str]:
        handle = self.client.get_workflow_handle(self.incident_of(machine))
        view: IncidentView = await handle.query(names.QUERY_VIEW, result_type=IncidentView)
        return sorted(fault.code for fault in view.faults)


def xid(number: int) -> Fault:
    component = Component(kind=ComponentKind.GPU, id="0000:61:00")
    return catalogue.fault_of(f"xid-{number}", component).model_copy(update={"boot_id": "boot-1"})


@pytest.fixture
async def ward(kube_server: KubeUnderTest, dev_server: WorkflowEnvironment) -> AsyncIterator[Ward]:
    """A cluster of its own on the shared Temporal server, whose worker runs."""
    async with Worker(
        dev_server.client, task_queue=names.CONTROLLER_QUEUE, workflows=[StandInIncident], max_cached_workflows=10
    ):
        yield Ward(kube_server, dev_server.client, cluster=f"lab-{uuid4().hex[:8]}")


@asynccontextmanager
async def triage_of(
    ward: Ward,
    policy: OnePolicy | None = None,
    *,
    temporal: bool = True,
    cooldown: timedelta = timedelta(0),
    settle: timedelta = timedelta(0),
    reconcile_every: timedelta = timedelta(hours=1),
    watch_rules: WatchRules | None = None,
) -> AsyncIterator[IncidentDesk]:
    """The triage while the block runs."""
    desk = IncidentDesk(ward.cluster)
    if temporal:
        desk.connected(ward.client)
    triage = Triage(
        cluster=ward.cluster,
        api=ward.kube.api_client(),
        desk=desk,
        policies=policy or OnePolicy(),
        rules=TriageRules(settle=settle, cooldown=cooldown),
        reconcile_every=reconcile_every,
        watch_rules=watch_rules,
    )
    running = asyncio.create_task(triage.run())
    try:
        await asyncio.wait_for(triage.watch.synced.wait(), 10)
        yield desk
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def codes_are(ward: Ward, machine: str, wanted: list[str]) -> bool:
    return await ward.codes(machine) == wanted
