from datetime import UTC, datetime, timedelta

import pytest

from sickbay import names
from sickbay.cloud_words import (
    CheckedPart,
    CloudWords,
    InstanceWords,
    ScheduledEvent,
    StatusCheck,
    judge,
    note,
    of_node,
)
from sickbay.faults import Fault, FaultClass, Rung
from sickbay.incident import Intent
from sickbay.kube_objects import Node
from sickbay.node_faults import open_faults
from sickbay.node_reading import read_node
from sickbay.nodes import NodeSnapshot, Readiness
from sickbay.proof import missing_in_look, relapses
from sickbay.safety import outlived

NOW = datetime(2026, 5, 1, 8, 0, tzinfo=UTC)
MACHINE = "i-0123456789abcdef0"


def words(*checks: StatusCheck, events: tuple[ScheduledEvent, ...] = (), efa: int | None = None) -> InstanceWords:
    return InstanceWords(instance_id=MACHINE, checks=checks, events=events, efa_attached=efa)


def impaired(part: CheckedPart, minutes: int | None) -> StatusCheck:
    since = None if minutes is None else NOW - timedelta(minutes=minutes)
    return StatusCheck(part=part, status="impaired", impaired_since=since)


def event(code: str, description: str = "the host is degraded", days: int = 2) -> ScheduledEvent:
    return ScheduledEvent(code=code, description=description, not_before=NOW + timedelta(days=days))


def faults(said: InstanceWords, noticed: datetime = NOW) -> tuple[Fault, ...]:
    return judge(said, None, noticed, NOW).faults


def node(annotation: str = "", machine: str = MACHINE, ready: str = "True") -> Node:
    condition = {"type": "Ready", "status": ready, "lastTransitionTime": NOW.isoformat()}
    return Node.model_validate(
        {
            "metadata": {
                "name": "n1",
                "uid": "u-1",
                "resourceVersion": "7",
                "annotations": {names.ANNOTATION_CLOUD: annotation} if annotation else {},
            },
            "spec": {"providerID": f"aws:///eu-west-1a/{machine}"},
            "status": {"conditions": [condition], "nodeInfo": {"bootID": "boot-1"}},
        }
    )


@pytest.mark.parametrize(
    ("part", "code", "fault_class", "rung"),
    [
        (CheckedPart.INSTANCE, "instance-check-failed", FaultClass.HOST, Rung.REBOOT),
        (CheckedPart.SYSTEM, "system-check-failed", FaultClass.HOST, Rung.REPLACE),
        (CheckedPart.EBS, "ebs-check-failed", FaultClass.STORAGE, Rung.HUMAN),
    ],
)
def test_a_status_check_that_goes_on_failing_is_a_fault_since_then(
    part: CheckedPart, code: str, fault_class: FaultClass, rung: Rung
) -> None:
    (fault,) = faults(words(impaired(part, 6)))
    assert (fault.code, fault.fault_class, fault.rung) == (code, fault_class, rung)
    assert fault.first_seen == NOW - timedelta(minutes=6)
    assert fault.component.id == MACHINE


def test_a_check_that_has_only_just_failed_is_not_one_yet() -> None:
    assert faults(words(impaired(CheckedPart.INSTANCE, 4))) == ()
    assert faults(words(impaired(CheckedPart.INSTANCE, None)), noticed=NOW - timedelta(minutes=4)) == ()
    assert len(faults(words(impaired(CheckedPart.INSTANCE, None)), noticed=NOW - timedelta(minutes=5))) == 1


@pytest.mark.parametrize("status", ["ok", "initializing", "insufficient-data", "not-applicable", ""])
def test_any_other_word_of_a_check_is_no_fault(status: str) -> None:
    assert faults(words(StatusCheck(part=CheckedPart.SYSTEM, status=status))) == ()


@pytest.mark.parametrize("status", ["insufficient-data", "not-applicable", "", "new-word"])
def test_a_word_that_is_neither_good_nor_bad_ends_no_failure(status: str) -> None:
    failed = judge(words(impaired(CheckedPart.SYSTEM, 6)), None, NOW, NOW)
    said = words(StatusCheck(part=CheckedPart.SYSTEM, status=status))
    assert judge(said, failed, NOW, NOW + timedelta(minutes=1)).faults == failed.faults
    assert judge(words(), failed, NOW, NOW + timedelta(minutes=1)).faults == failed.faults


@pytest.mark.parametrize("status", ["ok", "initializing"])
def test_a_check_that_passes_or_begins_anew_ends_its_failure(status: str) -> None:
    failed = judge(words(impaired(CheckedPart.SYSTEM, 6)), None, NOW, NOW)
    assert judge(words(StatusCheck(part=CheckedPart.SYSTEM, status=status)), failed, NOW, NOW).faults == ()


def test_another_leader_does_not_wait_anew_for_a_failure_that_stands() -> None:
    """It has not noticed the failing before, and EC2 need not tell since when."""
    said = words(impaired(CheckedPart.INSTANCE, None))
    failed = judge(said, None, NOW - timedelta(minutes=6), NOW)
    assert (
        judge(said, failed, noticed=NOW + timedelta(minutes=1), now=NOW + timedelta(minutes=1)).faults == failed.faults
    )


def test_a_failure_that_began_anew_must_last_anew() -> None:
    failed = judge(words(impaired(CheckedPart.INSTANCE, 30)), None, NOW, NOW)
    assert judge(words(impaired(CheckedPart.INSTANCE, 1)), failed, NOW, NOW).faults == ()


def test_interfaces_that_ec2_did_not_count_this_time_stay_as_they_were() -> None:
    counted = judge(words(efa=32), None, NOW, NOW)
    assert judge(words(), counted, NOW, NOW).efa_attached == 32
    assert judge(words(efa=0), counted, NOW, NOW).efa_attached == 0


@pytest.mark.parametrize(
    ("ready", "rungs"),
    [("True", [Rung.BLOCK_NEW_WORK, Rung.HUMAN]), ("Unknown", [Rung.REBOOT, Rung.REBOOT, Rung.HUMAN])],
)
def test_a_failing_check_of_a_node_that_answers_only_blocks_new_work(ready: str, rungs: list[Rung]) -> None:
    said = words(impaired(CheckedPart.INSTANCE, 6), impaired(CheckedPart.EBS, 6))
    told = node(judge(said, None, NOW, NOW).model_dump_json(), ready=ready)
    assert [fault.rung for fault in open_faults(told, NOW)] == rungs


@pytest.mark.parametrize(
    ("kind", "code", "rung"),
    [
        ("instance-retirement", "instance-retirement-scheduled", Rung.REPLACE),
        ("instance-stop", "instance-stop-scheduled", Rung.REPLACE),
        ("instance-reboot", "instance-reboot-scheduled", Rung.REBOOT),
        ("system-reboot", "system-reboot-scheduled", Rung.BLOCK_NEW_WORK),
        ("system-maintenance", "maintenance-scheduled", Rung.NONE),
        ("something-new", "cloud-event-unknown", Rung.NONE),
    ],
)
def test_a_scheduled_event_is_a_fault_with_its_date(kind: str, code: str, rung: Rung) -> None:
    (fault,) = faults(words(events=(event(kind),)))
    assert (fault.code, fault.rung, fault.first_seen) == (code, rung, NOW)
    assert "2026-05-03T08:00:00" in fault.evidence[0]


def test_a_far_day_is_only_told_and_takes_the_node_out_of_work_when_it_comes_near() -> None:
    said = words(events=(event("instance-retirement", days=14), event("instance-reboot", days=14)))
    first = judge(said, None, NOW, NOW)
    assert {fault.rung for fault in first.faults} == {Rung.NONE}
    node_now = node(first.model_dump_json())
    assert missing_in_look(read_node(node_now, NOW), None) == ("the node agent has not reported since",)
    near = note(node_now, said, NOW, NOW + timedelta(days=12)).change
    assert near is not None
    later = judge(said, first, NOW, NOW + timedelta(days=12))
    assert [(fault.rung, fault.first_seen) for fault in later.faults] == [(Rung.REPLACE, NOW), (Rung.REBOOT, NOW)]


def test_an_event_without_a_date_may_come_at_any_time() -> None:
    (fault,) = faults(words(events=(ScheduledEvent(code="instance-stop"),)))
    assert fault.rung is Rung.REPLACE


@pytest.mark.parametrize("mark", ["[Completed] ", "[Canceled] ", "[CANCELLED] "])
def test_a_finished_event_is_none(mark: str) -> None:
    assert faults(words(events=(event("instance-retirement", f"{mark}it took place"),))) == ()


def test_an_event_whose_date_is_past_still_stands_while_ec2_lists_it() -> None:
    assert len(faults(words(events=(event("instance-stop", days=-1),)))) == 1


def test_a_fault_that_stood_before_keeps_its_time() -> None:
    said = words(events=(event("instance-stop"),))
    first = judge(said, None, NOW, NOW)
    later = judge(said, first, NOW, NOW + timedelta(hours=1))
    assert later.faults == first.faults
    assert later.essence == first.essence


def test_an_answer_is_written_once_and_read_from_the_node() -> None:
    said = words(events=(event("instance-stop"),), efa=32)
    change = note(node(), said, NOW, NOW).change
    assert change is not None
    text = change.annotations[names.ANNOTATION_CLOUD]
    assert text is not None
    marked = node(text)
    told = of_node(marked)
    assert told is not None
    assert (told.efa_attached, [fault.code for fault in told.faults]) == (32, ["instance-stop-scheduled"])
    assert [fault.code for fault in open_faults(marked, NOW)] == ["instance-stop-scheduled"]
    assert note(marked, said, NOW, NOW + timedelta(hours=1)).change is None
    assert note(marked, words(efa=32), NOW, NOW).change is not None


@pytest.mark.parametrize("text", ["", "{", "[]", '{"instance_id": "i-other", "answered_at": "2026-05-01T08:00:00Z"}'])
def test_words_that_are_missing_illegible_or_of_another_instance_are_none(text: str) -> None:
    assert of_node(node(text)) is None


def standing_event() -> Fault:
    return faults(words(events=(event("instance-reboot"),)))[0]


def test_a_reboot_neither_outlives_an_event_nor_makes_the_node_well_while_it_stands() -> None:
    look = NodeSnapshot(
        observed_at=NOW,
        exists=True,
        boot_id="boot-2",
        ready=Readiness.TRUE,
        conditions_fresh=True,
        conditions_healthy=True,
        faults=(standing_event(),),
        cloud_told=True,
    )
    assert outlived((standing_event(),), look) == ()
    assert missing_in_look(look, None) == ("EC2 still tells instance-reboot-scheduled",)
    assert missing_in_look(look.model_copy(update={"faults": ()}), None) == ()


def test_what_only_blocks_new_work_drives_no_repair_of_another_fault_up_the_ladder() -> None:
    said = words(impaired(CheckedPart.SYSTEM, 6), events=(event("system-reboot"),))
    told = read_node(node(judge(said, None, NOW, NOW).model_dump_json()), NOW)
    assert [fault.rung for fault in told.faults] == [Rung.BLOCK_NEW_WORK, Rung.BLOCK_NEW_WORK]
    assert not [word for word in missing_in_look(told, None) if "EC2" in word]


def test_an_event_that_stood_before_the_repair_is_no_relapse() -> None:
    acted = NOW + timedelta(minutes=1)
    intent = Intent(rung=Rung.REBOOT, attempt=1, recorded_at=acted, proven_at=acted)
    assert relapses(intent, (), (standing_event(),)) == ()


def test_the_words_of_an_older_version_are_read() -> None:
    text = f'{{"instance_id": "{MACHINE}", "answered_at": "2026-05-01T08:00:00Z", "more": 1}}'
    assert of_node(node(text)) == CloudWords(instance_id=MACHINE, answered_at=NOW)
