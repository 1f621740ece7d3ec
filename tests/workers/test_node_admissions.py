"""The watch's part in admissions, against an API server and a Temporal server."""

from datetime import UTC, datetime, timedelta
from functools import partial

import pytest
from temporalio.client import WorkflowExecutionStatus
from temporalio.service import RPCError

from sickbay import names
from sickbay.admission import AdmissionInput, KnownAdmission
from sickbay.nodes import NodeRef
from sickbay.policy.model import AdmissionPolicy, IncidentPolicy
from tests.eventually import eventually
from tests.workers.ward import MERGE, OnePolicy, Ward, cap_of, triage_of, ward, xid
from workers import controller_metrics as metrics
from workers import node_admissions
from workers.admission_desk import AdmissionDesk
from workers.incident_desk import IncidentDesk, TemporalSilentError

__all__ = ["ward"]

OURS = {"key": names.TAINT_ADMISSION, "effect": "NoSchedule"}
BOOTED_BEFORE = {names.ANNOTATION_ADMITTED: "boot-0"}


def admitting(at_once: int = 5, cap: int = 5) -> OnePolicy:
    policy = IncidentPolicy(admission=AdmissionPolicy(enabled=True, at_once=at_once))
    return OnePolicy(containment=cap_of(cap), incident=policy)


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Looks again soon, and forgets soon what visibility must have shown by then."""
    monkeypatch.setattr(node_admissions, "AGAIN", timedelta(milliseconds=100))
    monkeypatch.setattr(node_admissions, "REST", timedelta(milliseconds=100))
    monkeypatch.setattr(node_admissions, "SEEN_WITHIN", timedelta(seconds=1))


async def is_tainted(ward: Ward, name: str) -> bool:
    node = await ward.node(name)
    return names.TAINT_ADMISSION in [taint["key"] for taint in node["spec"].get("taints", [])]


async def is_under_admission(ward: Ward, name: str) -> bool:
    handle = ward.client.get_workflow_handle(names.admission_id(ward.cluster, f"i-{name}"))
    try:
        return (await handle.describe()).status is WorkflowExecutionStatus.RUNNING
    except RPCError:
        return False


async def terminate(ward: Ward, name: str) -> None:
    await ward.client.get_workflow_handle(names.admission_id(ward.cluster, f"i-{name}")).terminate()


async def test_a_tainted_node_gets_its_admission_even_before_its_gpus_are_seen(ward: Ward) -> None:
    async with triage_of(ward, admitting()):
        await ward.sick_node("n1", taints=[OURS])
        await ward.kube.create_node("n2", provider_id="aws:///eu-west-1a/i-n2", gpus=0, taints=[OURS])
        await ward.sick_node("plain")
        for name in ("n1", "n2"):
            await eventually(partial(is_under_admission, ward, name))
            assert await is_tainted(ward, name)
        assert not await is_under_admission(ward, "plain")
    for name in ("n1", "n2"):
        await terminate(ward, name)


async def test_no_more_than_a_batch_is_under_admission_at_once(ward: Ward) -> None:
    async with triage_of(ward, admitting(at_once=1)):
        for name in ("n1", "n2"):
            await ward.sick_node(name, taints=[OURS])

        async def running() -> list[str]:
            return [name for name in ("n1", "n2") if await is_under_admission(ward, name)]

        async def one_runs() -> bool:
            return len(await running()) == 1

        await eventually(one_runs)
        (first,) = await running()
        await terminate(ward, first)
        (second,) = {"n1", "n2"} - {first}
        await eventually(lambda: is_under_admission(ward, second))
        assert not await is_under_admission(ward, first), "what somebody ended does not begin again at once"
        await terminate(ward, second)


@pytest.mark.parametrize("silent", [True, False], ids=["Temporal is silent", "the batch is full"])
async def test_nodes_that_wait_ask_nothing_while_there_is_nothing_to_be_had(
    ward: Ward, monkeypatch: pytest.MonkeyPatch, silent: bool
) -> None:
    """Else hundreds of them would keep the handlers from a sick node, each for as long as Temporal takes."""
    monkeypatch.setattr(node_admissions, "REST", timedelta(hours=1))
    asked: list[str] = []
    known: list[bool] = []

    async def look(desk: AdmissionDesk, admission_id: str) -> KnownAdmission:
        asked.append(admission_id)
        if silent:
            known.append(True)
            raise TemporalSilentError("no answer")
        return KnownAdmission()

    async def full(desk: AdmissionDesk) -> frozenset[str]:
        known.append(True)
        return frozenset({"another"})

    monkeypatch.setattr(AdmissionDesk, "look", look)
    monkeypatch.setattr(AdmissionDesk, "under_validation", full)
    async with triage_of(ward, admitting(at_once=1)):
        await ward.sick_node("n1", taints=[OURS])
        await eventually(lambda: bool(known))
        first = tuple(asked)
        for name in ("n2", "n3", "n4"):
            await ward.sick_node(name, taints=[OURS])
        machine = await ward.sick_node("sick", xid(79))
        await eventually(lambda: ward.is_open(machine))
        assert tuple(asked) == first


async def test_a_node_with_an_incident_waits_with_its_admission(ward: Ward) -> None:
    machine = await ward.sick_node("n1", xid(79), taints=[OURS])
    async with triage_of(ward, admitting()):
        await eventually(lambda: ward.is_open(machine))
        assert not await is_under_admission(ward, "n1")


async def test_a_foreign_reboot_is_held_back_without_temporal_and_without_touching_others(ward: Ward) -> None:
    others = {"key": "example.com/shared", "effect": "PreferNoSchedule"}
    async with triage_of(ward, admitting(), temporal=False):
        await ward.sick_node("never", taints=[others])
        await ward.sick_node("n1", annotations=BOOTED_BEFORE, taints=[others])
        await eventually(lambda: is_tainted(ward, "n1"))
        assert (await ward.node("n1"))["spec"]["taints"][0] == others
        assert not await is_tainted(ward, "never")


async def test_whoever_lets_a_node_work_that_was_held_back_is_obeyed(ward: Ward) -> None:
    async with triage_of(ward, admitting(), temporal=False):
        await ward.sick_node("n1", annotations=BOOTED_BEFORE)
        await eventually(lambda: is_tainted(ward, "n1"))
        await ward.kube.request("PATCH", "/api/v1/nodes/n1", {"spec": {"taints": None}}, MERGE)
        await ward.sick_node("later", annotations=BOOTED_BEFORE)
        await eventually(lambda: is_tainted(ward, "later"))
        assert not await is_tainted(ward, "n1")


async def test_nodes_are_held_back_within_the_cap_of_containment(ward: Ward) -> None:
    refused = metrics.CONTAINMENT_REFUSED._value.get()
    async with triage_of(ward, admitting(cap=1), temporal=False):
        for name in ("n1", "n2", "n3"):
            await ward.sick_node(name, annotations=BOOTED_BEFORE)

        async def one_is_held() -> bool:
            return sum([await is_tainted(ward, name) for name in ("n1", "n2", "n3")]) == 1

        await eventually(one_is_held)
        await eventually(lambda: metrics.CONTAINMENT_REFUSED._value.get() >= refused + 2)
        assert await one_is_held()


async def test_a_taint_that_no_policy_admits_is_told(ward: Ward) -> None:
    async with triage_of(ward):
        await ward.sick_node("n1", taints=[OURS])

        async def told() -> bool:
            events = await ward.kube.request("GET", "/api/v1/events")
            return [event["reason"] for event in events["items"]] == ["SickbayAdmissionOff"]

        await eventually(told)
        assert not await is_under_admission(ward, "n1")


async def test_a_node_that_was_held_back_is_admitted_although_its_pool_wants_no_admission_any_more(ward: Ward) -> None:
    async with triage_of(ward):
        await ward.sick_node("n1", taints=[OURS], annotations=BOOTED_BEFORE)
        await eventually(lambda: is_under_admission(ward, "n1"))
    await terminate(ward, "n1")


async def test_starting_twice_is_one_admission(ward: Ward) -> None:
    incidents = IncidentDesk(ward.cluster)
    incidents.connected(ward.client)
    desk = AdmissionDesk(ward.cluster, incidents)
    node = NodeRef(cluster=ward.cluster, name="n1", uid="u", provider_id="aws:///a/i-n1", pool="p5")
    start = AdmissionInput(node=node, policy=IncidentPolicy(), catalogue_version="1", started_at=datetime.now(UTC))
    await desk.start(start)
    await desk.start(start)
    identity = names.admission_id(ward.cluster, "i-n1")

    async def it_is_listed() -> bool:
        return await desk.under_validation() == {identity}

    await eventually(it_is_listed)
    assert (await desk.look(identity)).open
    await terminate(ward, "n1")
    assert (await desk.look(identity)).left_to_people
