from collections.abc import AsyncIterator
from datetime import UTC, datetime
from uuid import uuid4

import pytest
from temporalio.testing import WorkflowEnvironment
from temporalio.worker import Worker

from sickbay import catalogue, names, search_attributes
from sickbay.faults import Component, ComponentKind, Fault
from sickbay.incident import FaultReport, FaultsCleared, IncidentInput, Outcome
from sickbay.nodes import NodeRef
from sickbay.policy.model import IncidentPolicy
from sickbay.triage import KnownIncident, Standing
from tests.incident_stand_in import StandInIncident
from workers.incident_desk import IncidentDesk, TemporalSilentError

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


def xid(number: int) -> Fault:
    return catalogue.fault_of(f"xid-{number}", Component(kind=ComponentKind.GPU, id="0000:61:00"))


def start_of(cluster: str, *faults: Fault) -> IncidentInput:
    node = NodeRef(cluster=cluster, name="n1", uid="u", provider_id="aws:///a/i-1", pool="p5")
    return IncidentInput(node=node, policy=IncidentPolicy(), catalogue_version="1", opened_at=NOW, faults=faults)


def report(*faults: Fault) -> FaultReport:
    return FaultReport(faults=faults, observed_at=NOW)


@pytest.fixture
def cluster() -> str:
    return f"lab-{uuid4().hex[:8]}"


@pytest.fixture
async def desk(dev_server: WorkflowEnvironment, cluster: str) -> AsyncIterator[IncidentDesk]:
    client = dev_server.client
    made = IncidentDesk(cluster)
    made.connected(client)
    async with Worker(client, task_queue=names.CONTROLLER_QUEUE, workflows=[StandInIncident], max_cached_workflows=10):
        yield made


async def test_opening_twice_is_one_incident_that_heard_both(desk: IncidentDesk, cluster: str) -> None:
    await desk.open(start_of(cluster, xid(79)), report(xid(79)))
    await desk.open(start_of(cluster, xid(48)), report(xid(48)))
    known = await desk.look(names.incident_id(cluster, "i-1"))
    assert known.standing is Standing.OPEN
    assert sorted(fault.code for fault in known.faults or ()) == ["xid-48", "xid-79"]


async def test_an_incident_that_never_was_is_absent_and_takes_nothing(desk: IncidentDesk, cluster: str) -> None:
    incident = names.incident_id(cluster, "i-1")
    assert await desk.look(incident) == KnownIncident(standing=Standing.ABSENT)
    assert not await desk.report(incident, report(xid(79)))
    assert not await desk.clear(incident, FaultsCleared(observed_at=NOW))


async def test_a_closed_incident_says_how_it_ended_and_what_it_knew(
    desk: IncidentDesk, cluster: str, dev_server: WorkflowEnvironment
) -> None:
    incident = names.incident_id(cluster, "i-1")
    await desk.open(start_of(cluster, xid(79)), report(xid(79)))
    handle = dev_server.client.get_workflow_handle(incident)
    await handle.signal("end", Outcome.HANDED_OVER)
    await handle.result()
    known = await desk.look(incident)
    assert (known.standing, known.outcome) == (Standing.CLOSED, Outcome.HANDED_OVER)
    assert [fault.code for fault in known.faults or ()] == ["xid-79"]
    assert known.closed_at is not None
    assert not await desk.report(incident, report(xid(48)))


async def test_a_terminated_incident_is_closed_without_an_outcome(
    desk: IncidentDesk, cluster: str, dev_server: WorkflowEnvironment
) -> None:
    incident = names.incident_id(cluster, "i-1")
    await desk.open(start_of(cluster), report())
    await dev_server.client.get_workflow_handle(incident).terminate()
    known = await desk.look(incident)
    assert (known.standing, known.outcome, known.faults) == (Standing.CLOSED, None, None)


async def test_attributes_that_the_namespace_lacks_are_left_out_of_the_start(
    desk: IncidentDesk, cluster: str, dev_server: WorkflowEnvironment
) -> None:
    desk.connected(dev_server.client, [search_attributes.POOL.name, search_attributes.FAULT.name])
    await desk.open(start_of(cluster, xid(79)), report(xid(79)))
    described = await dev_server.client.get_workflow_handle(names.incident_id(cluster, "i-1")).describe()
    given = described.typed_search_attributes
    assert given.get(search_attributes.MACHINE) == "i-1"
    assert given.get(search_attributes.POOL) is None
    assert given.get(search_attributes.FAULT) is None


async def test_what_a_person_decided_is_remembered_while_temporal_is_away(
    desk: IncidentDesk, dev_server: WorkflowEnvironment, cluster: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    incident = names.incident_id(cluster, "i-1")
    await desk.open(start_of(cluster, xid(79)), report(xid(79)))
    handle = dev_server.client.get_workflow_handle(incident)
    await handle.signal("end", Outcome.WITHDRAWN)
    await handle.result()
    closed = await desk.look(incident)
    monkeypatch.setattr(desk, "_connected", None)
    assert await desk.look(incident) == closed.model_copy(update={"standing": Standing.UNKNOWN})


async def test_without_a_connection_it_knows_nothing_and_says_so(cluster: str) -> None:
    silent = IncidentDesk(cluster)
    assert await silent.look("incident-x") == KnownIncident(standing=Standing.UNKNOWN)
    with pytest.raises(TemporalSilentError):
        await silent.open(start_of(cluster), report())
    with pytest.raises(TemporalSilentError):
        await silent.open_ids()
