"""The reflex on what others say of a node: other agents' conditions, EC2's words, agents that never came."""

from datetime import UTC, datetime, timedelta

import pytest

from sickbay import names, watch_faults
from sickbay.catalogue import fault_of
from sickbay.cloud_words import CloudWords, InstanceWords, ScheduledEvent, judge
from sickbay.faults import Component, ComponentKind
from sickbay.other_agents.judgement import excuses
from sickbay.watch_faults import AgentsExpected, WatchRules
from tests.eventually import eventually
from tests.workers.ward import Ward, codes_are, triage_of, ward, xid

__all__ = ["ward"]


async def others_say(ward: Ward, name: str, kind: str, status: str, reason: str) -> None:
    """Another agent's condition, changed just now."""
    stamp = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    condition = {"type": kind, "status": status, "reason": reason, "message": "its words"}
    times = {"lastHeartbeatTime": stamp, "lastTransitionTime": stamp}
    await ward.kube.set_node_status(name, {"conditions": [condition | times]})


async def ec2_says(ward: Ward, name: str, *codes: str) -> None:
    """EC2's last answer, as the watch of the cloud would have noted it."""
    now = datetime.now(UTC)
    host = Component(kind=ComponentKind.HOST, id=f"i-{name}")
    faults = tuple(fault_of(code, host, seen=now) for code in codes)
    words = CloudWords(instance_id=f"i-{name}", answered_at=now, faults=faults)
    await ward.annotate(name, {names.ANNOTATION_CLOUD: words.model_dump_json()})


async def test_another_agents_word_opens_an_incident_and_ends_by_our_own_agents_pass(ward: Ward) -> None:
    async with triage_of(ward):
        machine = await ward.sick_node("n1")
        await others_say(ward, "n1", "AcceleratedHardwareReady", "False", "NvidiaDoubleBitError")
        await eventually(lambda: ward.is_open(machine))
        assert await ward.codes(machine) == ["reported-gpu"]
        await eventually(lambda: ward.is_contained("n1"))
        await others_say(ward, "n1", "AcceleratedHardwareReady", "True", "NvidiaAcceleratedHardwareIsReady")
        await eventually(lambda: codes_are(ward, machine, []))


async def test_a_word_that_turned_good_by_a_restart_ends_nothing_while_our_own_agent_sees_trouble(ward: Ward) -> None:
    """Detection 5a: a restart of the agent makes its condition True."""
    async with triage_of(ward):
        machine = await ward.sick_node("n1", xid(79))
        await others_say(ward, "n1", "AcceleratedHardwareReady", "False", "NvidiaXID79Error")
        await eventually(lambda: codes_are_open(ward, machine, ["reported-gpu", "xid-79"]))
        await others_say(ward, "n1", "AcceleratedHardwareReady", "True", "NvidiaAcceleratedHardwareIsReady")
        await ward.agent_reports("n1", xid(79), xid(48))
        await eventually(lambda: codes_are(ward, machine, ["reported-gpu", "xid-48", "xid-79"]))


async def codes_are_open(ward: Ward, machine: str, wanted: list[str]) -> bool:
    return await ward.is_open(machine) and await ward.codes(machine) == wanted


async def test_an_excused_condition_opens_nothing(ward: Ward) -> None:
    rules = WatchRules(excuses=excuses("NetworkingReady:InterfaceNotRunning"))
    async with triage_of(ward, watch_rules=rules):
        machine = await ward.sick_node("n1")
        await others_say(ward, "n1", "NetworkingReady", "False", "InterfaceNotRunning")
        other = await ward.sick_node("n2")
        await others_say(ward, "n2", "NetworkingReady", "False", "IPAMDNotReady")
        await eventually(lambda: ward.is_open(other))
        assert not await ward.is_open(machine)


async def test_ec2s_words_open_an_incident_and_only_a_newer_answer_ends_them(ward: Ward) -> None:
    async with triage_of(ward):
        machine = await ward.sick_node("n1")
        await ec2_says(ward, "n1", "instance-retirement-scheduled")
        await eventually(lambda: ward.is_open(machine))
        assert await ward.codes(machine) == ["instance-retirement-scheduled"]
        await ward.annotate("n1", {names.ANNOTATION_CLOUD: None})
        await ward.agent_reports("n1", xid(48))
        await eventually(lambda: codes_are(ward, machine, ["instance-retirement-scheduled", "xid-48"]))
        await ec2_says(ward, "n1")
        await eventually(lambda: codes_are(ward, machine, ["xid-48"]))


async def test_what_ec2_plans_for_a_far_day_is_told_and_the_node_goes_on_working(ward: Ward) -> None:
    async with triage_of(ward):
        machine = await ward.sick_node("n1")
        await eventually(lambda: ward.is_free("n1"))
        said = InstanceWords(
            instance_id=machine,
            events=(ScheduledEvent(code="instance-retirement", not_before=datetime.now(UTC) + timedelta(days=14)),),
        )
        words = judge(said, None, datetime.now(UTC), datetime.now(UTC))
        await ward.annotate("n1", {names.ANNOTATION_CLOUD: words.model_dump_json()})

        async def told() -> bool:
            events = await ward.kube.request("GET", "/api/v1/events")
            return any("instance-retirement-scheduled" in event["message"] for event in events["items"])

        await eventually(told)
        assert not await ward.is_contained("n1")
        assert not await ward.is_open(machine)


async def test_a_gpu_node_whose_agent_never_came_takes_no_work(ward: Ward, monkeypatch: pytest.MonkeyPatch) -> None:
    """Peer-nvsentinel 4.24."""
    monkeypatch.setattr(watch_faults, "AGENT_GRACE", timedelta(0))
    old = (datetime.now(UTC) - timedelta(hours=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
    ready = {"type": "Ready", "status": "True", "reason": "Test", "lastTransitionTime": old, "lastHeartbeatTime": old}
    rules, often = WatchRules(agents=AgentsExpected.YES), timedelta(milliseconds=100)
    async with triage_of(ward, watch_rules=rules, reconcile_every=often):
        await ward.kube.create_node("n1", provider_id="aws:///eu-west-1a/i-n1")
        await ward.kube.set_node_status("n1", {"conditions": [ready]})
        await eventually(lambda: ward.is_open("i-n1"))
        assert await ward.codes("i-n1") == ["agent-missing"]
        await eventually(lambda: ward.is_contained("n1"))
