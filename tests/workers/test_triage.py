"""The reflex against an API server and a Temporal server, with a stand-in for the incident."""

import asyncio
from datetime import timedelta

import pytest
from temporalio.api.enums.v1 import EventType

from activities import node_marks
from activities.node_models import ContainRequest
from sickbay.incident import Outcome
from sickbay.nodes import NodeRef
from sickbay.triage import TriageRules
from tests.eventually import eventually
from tests.workers.ward import OnePolicy, Ward, cap_of, codes_are, triage_of, ward, xid
from workers.incident_desk import IncidentDesk
from workers.triage import Triage

__all__ = ["ward"]

NODES = "/api/v1/nodes"


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
