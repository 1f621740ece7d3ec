"""The reflex against an API server and a Temporal server, with a stand-in for the incident."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest
from temporalio.api.enums.v1 import EventType
from temporalio.client import Client, WorkflowExecutionStatus
from temporalio.service import RPCError
from temporalio.testing import WorkflowEnvironment
from temporalio.worker import Worker

from activities import node_marks
from activities.node_models import ContainRequest
from sickbay import catalogue, names
from sickbay.conditions import FaultsAnnotation
from sickbay.faults import Component, ComponentKind, Fault
from sickbay.incident import IncidentView, Outcome
from sickbay.nodes import NodeRef
from sickbay.policy.model import ContainmentPolicy, IncidentPolicy, Limit
from sickbay.triage import TriageRules
from tests.eventually import eventually
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
) -> AsyncIterator[IncidentDesk]:
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
    )
    running = asyncio.create_task(triage.run())
    try:
        await asyncio.wait_for(triage.watch.synced.wait(), 10)
        yield desk
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_a_sick_node_is_contained_and_its_incident_opened_with_its_faults(ward: Ward) -> None:
    async with triage_of(ward):
        machine = await ward.sick_node("n1", xid(79))
        await eventually(lambda: ward.is_contained("n1"))
        await eventually(lambda: ward.is_open(machine))
        assert await ward.codes(machine) == ["xid-79"]


async def test_a_healthy_node_and_an_applications_fault_are_left_alone(ward: Ward) -> None:
    async with triage_of(ward):
        well, busy = await ward.sick_node("well"), await ward.sick_node("busy", xid(31))
        sick = await ward.sick_node("sick", xid(79))
        await eventually(lambda: ward.is_open(sick))
        for name, machine in (("well", well), ("busy", busy)):
            assert await ward.is_free(name)
            assert not await ward.is_open(machine)


async def test_an_unknown_code_is_told_by_an_event_and_opens_nothing(ward: Ward) -> None:
    async with triage_of(ward):
        machine = await ward.sick_node("n1", xid(9999))

        async def told() -> bool:
            events = await ward.kube.request("GET", "/api/v1/events")
            return [event["reason"] for event in events["items"]] == ["UnknownFault"]

        await eventually(told)
        assert not await ward.is_open(machine)
        assert await ward.is_free("n1")


async def test_a_node_is_contained_while_temporal_is_away_and_its_incident_opened_once_it_is_back(ward: Ward) -> None:
    async with triage_of(ward, temporal=False) as desk:
        machine = await ward.sick_node("n1", xid(79))
        await eventually(lambda: ward.is_contained("n1"))
        assert not await ward.is_open(machine)
        desk.connected(ward.client)
        await eventually(lambda: ward.is_open(machine))


async def test_a_bad_detector_does_not_cordon_the_fleet(ward: Ward) -> None:
    capped = OnePolicy(containment=cap_of(2))
    machines = [await ward.sick_node(f"n{number}", xid(79)) for number in range(6)]
    async with triage_of(ward, capped):
        await eventually(lambda: all_open(ward, machines))
        contained = [number for number in range(6) if await ward.is_contained(f"n{number}")]
        assert len(contained) == 2


async def test_nothing_is_handled_before_all_nodes_are_known(ward: Ward, monkeypatch: pytest.MonkeyPatch) -> None:
    await ward.sick_node("n1", xid(79))
    whole = asyncio.Event()
    triage = Triage(
        cluster=ward.cluster,
        api=ward.kube.api_client(),
        desk=IncidentDesk(ward.cluster),
        policies=OnePolicy(),
        rules=TriageRules(),
        reconcile_every=timedelta(hours=1),
    )

    async def half_a_list() -> None:
        triage.watch._keep(await ward.node("n1"))
        await whole.wait()
        triage.watch.synced.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(triage.watch, "run", half_a_list)
    running = asyncio.create_task(triage.run())
    try:
        await eventually(lambda: bool(triage.watch.nodes))
        for _ in range(10):
            await asyncio.sleep(0)
        assert not triage._queue._in_hand
        whole.set()
        await eventually(lambda: ward.is_contained("n1"))
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_faults_join_and_leave_the_open_incident(ward: Ward) -> None:
    async with triage_of(ward):
        machine = await ward.sick_node("n1", xid(79))
        await eventually(lambda: ward.is_open(machine))
        run = await ward.runs(machine)
        await ward.agent_reports("n1", xid(79), xid(48))
        await eventually(lambda: codes_are(ward, machine, ["xid-48", "xid-79"]))
        await ward.agent_reports("n1", xid(48))
        await eventually(lambda: codes_are(ward, machine, ["xid-48"]))
        assert await ward.runs(machine) == run


async def all_open(ward: Ward, machines: list[str]) -> bool:
    return all([await ward.is_open(machine) for machine in machines])


async def codes_are(ward: Ward, machine: str, wanted: list[str]) -> bool:
    return await ward.codes(machine) == wanted


async def test_a_new_controller_tells_an_open_incident_what_happened_while_none_watched(ward: Ward) -> None:
    async with triage_of(ward):
        machine = await ward.sick_node("n1", xid(79))
        await eventually(lambda: ward.is_open(machine))
        await eventually(lambda: ward.is_contained("n1"))
    run = await ward.runs(machine)
    await ward.agent_reports("n1")
    async with triage_of(ward):
        await eventually(lambda: codes_are(ward, machine, []))
    assert await ward.runs(machine) == run


async def test_a_new_controller_repeats_nothing(ward: Ward) -> None:
    async with triage_of(ward):
        machine = await ward.sick_node("n1", xid(79))
        await eventually(lambda: ward.is_open(machine))
        await eventually(lambda: ward.is_contained("n1"))
    before = await signals_of(ward, machine)
    async with triage_of(ward):
        other = await ward.sick_node("n2", xid(79))
        await eventually(lambda: ward.is_open(other))
    assert await signals_of(ward, machine) == before


async def signals_of(ward: Ward, machine: str) -> int:
    """How often the latest incident of a machine was told something."""
    history = await ward.client.get_workflow_handle(ward.incident_of(machine)).fetch_history()
    return sum(event.event_type == EventType.EVENT_TYPE_WORKFLOW_EXECUTION_SIGNALED for event in history.events)


async def test_a_mark_that_no_incident_owns_is_undone(ward: Ward) -> None:
    machine = await ward.sick_node("n1")
    uid, provider_id = (await ward.node("n1"))["metadata"]["uid"], f"aws:///eu-west-1a/{machine}"
    node = NodeRef(cluster=ward.cluster, name="n1", uid=uid, provider_id=provider_id)
    request = ContainRequest(node=node, incident_id=ward.incident_of(machine))
    assert (await node_marks.contain(ward.kube.api_client(), request)).contained
    async with triage_of(ward):
        await eventually(lambda: ward.is_free("n1"))


async def test_a_mark_that_no_incident_owns_is_adopted_if_the_fault_is_live(ward: Ward) -> None:
    machine = await ward.sick_node("n1", xid(79))
    async with triage_of(ward, temporal=False):
        await eventually(lambda: ward.is_contained("n1"))
    async with triage_of(ward):
        await eventually(lambda: ward.is_open(machine))
        assert await ward.is_contained("n1")


async def test_a_fault_that_returns_after_its_incident_opens_another(ward: Ward) -> None:
    async with triage_of(ward, reconcile_every=timedelta(seconds=0.2)):
        machine = await ward.sick_node("n1", xid(79))
        await eventually(lambda: ward.is_open(machine))
        run = await ward.runs(machine)
        await ward.agent_reports("n1")
        await eventually(lambda: codes_are(ward, machine, []))
        await ward.end(machine, Outcome.RETURNED)
        await eventually(lambda: ward.is_free("n1"))
        await ward.agent_reports("n1", xid(79))
        await eventually(lambda: ward.is_open(machine))
        assert await ward.runs(machine) != run


async def test_what_a_person_has_taken_over_is_not_opened_again_by_a_new_controller(ward: Ward) -> None:
    async with triage_of(ward):
        machine = await ward.sick_node("n1", xid(79))
        await eventually(lambda: ward.is_open(machine))
        run = await ward.runs(machine)
        await ward.end(machine, Outcome.HANDED_OVER)
    async with triage_of(ward):
        await eventually(lambda: ward.is_free("n1"))
        other = await ward.sick_node("n2", xid(79))
        await eventually(lambda: ward.is_open(other))
        assert await ward.runs(machine) == run
        assert await ward.is_free("n1")


async def test_a_node_made_anew_under_its_name_is_another_machine(ward: Ward) -> None:
    async with triage_of(ward):
        machine = await ward.sick_node("n1", xid(79))
        await eventually(lambda: ward.is_open(machine))
        await ward.kube.request("DELETE", f"{NODES}/n1")
        await ward.kube.create_node("n1", provider_id="aws:///eu-west-1a/i-successor")
        await ward.agent_reports("n1")
        other = await ward.sick_node("n2", xid(79))
        await eventually(lambda: ward.is_open(other))
        assert await ward.is_free("n1")
        assert not await ward.is_open("i-successor")


async def test_not_ready_opens_an_incident_once_it_has_settled(ward: Ward) -> None:
    async with triage_of(ward, settle=timedelta(seconds=1)):
        await ward.kube.create_node("n1", provider_id="aws:///eu-west-1a/i-n1", ready="Unknown")
        await eventually(lambda: ward.is_open("i-n1"))
        assert await ward.codes("i-n1") == ["node-not-ready"]


async def test_a_node_without_gpus_is_its_owners_affair(ward: Ward) -> None:
    async with triage_of(ward):
        await ward.kube.create_node("web", provider_id="aws:///eu-west-1a/i-web", ready="False", gpus=0)
        sick = await ward.sick_node("n1", xid(79))
        await eventually(lambda: ward.is_open(sick))
        assert await ward.is_free("web")
        assert not await ward.is_open("i-web")
