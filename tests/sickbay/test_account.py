"""The account in the Temporal UI: what stands where, until when, and the words with which a person goes on."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from sickbay.account import TIMELINE_SHOWN, account
from sickbay.faults import Component, ComponentKind, Fault, FaultClass, Rung, Severity, Verdict
from sickbay.incident import HandoverReason, IncidentView, Outcome, Stage, TimelineEntry
from sickbay.nodes import NodeRef

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
NODE = NodeRef(cluster="c1", name="node-1", uid="uid-1", provider_id="aws:///a/i-1", pool="p5")
FAULT = Fault(
    code="xid-79",
    component=Component(kind=ComponentKind.GPU, id="0000:61:00"),
    fault_class=FaultClass.GPU,
    severity=Severity.FATAL,
    rung=Rung.REBOOT,
    count=3,
)
VERDICT = Verdict(fault_class=FaultClass.GPU, rung=Rung.REBOOT, components=(), reason="xid-79 on GPU 0000:61:00")


def told(**values: Any) -> str:
    view = IncidentView(
        incident_id="incident-c1-i-1",
        node=NODE,
        verdict=VERDICT,
        opened_at=NOW,
        policy_version="p-7",
        catalogue_version="c-9",
        **{"stage": Stage.DRAINING, **values},
    )
    return account(view)


def test_it_names_the_machine_the_stage_and_the_verdict() -> None:
    text = told()
    assert "**node-1** (i-1, pool p5): **draining**" in text
    assert "gpu, first rung reboot: xid-79 on GPU 0000:61:00" in text
    assert "Policy p-7, catalogue c-9." in text


def test_a_wait_shows_its_end() -> None:
    text = told(waiting_for="a permit", waiting_until=NOW)
    assert "waits for a permit, until 2026-03-01 12:00:00 UTC" in text


def test_while_it_works_no_wait_is_shown() -> None:
    assert "waits for" not in told()


@pytest.mark.parametrize(
    ("stage", "command"),
    [
        (Stage.AWAITING_APPROVAL, "sickbay incidents approve incident-c1-i-1 --rung replace"),
        (Stage.HANDED_OVER, "sickbay incidents choose-rung|close incident-c1-i-1"),
        (Stage.HELD, "sickbay incidents release incident-c1-i-1"),
    ],
)
def test_where_a_person_is_awaited_it_says_what_to_type(stage: Stage, command: str) -> None:
    assert command in told(stage=stage, rung=Rung.REPLACE)


def test_open_and_cleared_faults_are_told_apart() -> None:
    text = told(faults=(FAULT,), cleared=(FAULT.model_copy(update={"code": "xid-48"}),))
    assert "open faults: xid-79 on gpu 0000:61:00 (x3)" in text
    assert "cleared faults: xid-48" in text


def test_an_end_is_told_with_its_reason() -> None:
    text = told(stage=Stage.CLOSED, outcome=Outcome.HANDED_OVER, handover=HandoverReason.NO_OWNER)
    assert "outcome: handed_over" in text
    assert "handed over: no_owner" in text


def test_only_the_newest_of_a_long_story_is_shown() -> None:
    story = tuple(TimelineEntry(at=NOW + timedelta(seconds=i), text=f"entry-{i}-") for i in range(TIMELINE_SHOWN + 5))
    text = told(timeline=story)
    assert "entry-4-" not in text
    assert f"entry-{TIMELINE_SHOWN + 4}-" in text
