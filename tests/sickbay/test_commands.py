"""What a person may say when: every refusal in words that help, and no order that comes too late to be true."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sickbay.commands import Situation, refusal
from sickbay.faults import Rung
from sickbay.incident import Command, CommandKind, Stage
from sickbay.ladder import Step

ASKED = Step(rung=Rung.REPLACE, attempt=2)
ENABLED = (Rung.RESET_GPU, Rung.REBOOT, Rung.REPLACE)
ASKING = Situation(stage=Stage.AWAITING_APPROVAL, asked=ASKED, enabled=ENABLED)


def say(kind: CommandKind, **values: Any) -> Command:
    return Command(kind=kind, **{"by": "ada", "reason": "seen it", **values})


def at(stage: Stage, **values: Any) -> Situation:
    return Situation(stage=stage, enabled=ENABLED, **values)


def allowed(command: Command, situation: Situation) -> None:
    assert refusal(command, situation) is None


def refused(command: Command, situation: Situation, because: str) -> None:
    assert because in (refusal(command, situation) or "")


@pytest.mark.parametrize("kind", list(CommandKind))
@pytest.mark.parametrize("nobody", ["", "  "])
def test_every_order_needs_a_name_and_a_reason(kind: CommandKind, nobody: str) -> None:
    refused(say(kind, by=nobody), ASKING, "who you are")
    refused(say(kind, reason=nobody), ASKING, "say why")


@pytest.mark.parametrize("kind", list(CommandKind))
def test_a_closed_incident_takes_no_order(kind: CommandKind) -> None:
    refused(say(kind, rung=Rung.REBOOT), at(Stage.CLOSED, asked=ASKED, held_by="bob"), "closed")


def test_an_approval_must_name_the_rung_that_is_asked_for() -> None:
    allowed(say(CommandKind.APPROVE, rung=Rung.REPLACE), ASKING)
    allowed(say(CommandKind.APPROVE, rung=Rung.REPLACE, attempt=2), ASKING)
    refused(say(CommandKind.APPROVE), ASKING, "name the rung you approve: replace")
    refused(say(CommandKind.APPROVE, rung=Rung.REBOOT), ASKING, "asked for replace, not for reboot")
    refused(say(CommandKind.APPROVE, rung=Rung.REPLACE, attempt=1), ASKING, "attempt 2 of replace, not for attempt 1")


def test_a_rejection_need_not_name_the_rung_but_must_not_name_another() -> None:
    allowed(say(CommandKind.REJECT), ASKING)
    refused(say(CommandKind.REJECT, rung=Rung.REBOOT), ASKING, "not for reboot")


@pytest.mark.parametrize("stage", [stage for stage in Stage if stage not in (Stage.AWAITING_APPROVAL, Stage.CLOSED)])
@pytest.mark.parametrize("kind", [CommandKind.APPROVE, CommandKind.REJECT])
def test_nobody_decides_what_is_not_asked_at_this_moment(kind: CommandKind, stage: Stage) -> None:
    refused(say(kind, rung=Rung.REPLACE), at(stage, asked=ASKED), "no approval is asked for now")


def test_one_holds_and_anyone_releases() -> None:
    allowed(say(CommandKind.HOLD), ASKING)
    refused(say(CommandKind.HOLD), at(Stage.HELD, held_by="bob"), "bob already holds it")
    allowed(say(CommandKind.RELEASE), at(Stage.HELD, held_by="bob"))
    refused(say(CommandKind.RELEASE), ASKING, "it is not held")


@pytest.mark.parametrize("rung", [Rung.REBOOT, Rung.HUMAN])
def test_a_rung_that_the_policy_allows_and_a_person_can_be_chosen(rung: Rung) -> None:
    allowed(say(CommandKind.CHOOSE_RUNG, rung=rung), at(Stage.HANDED_OVER))


@pytest.mark.parametrize("rung", [None, Rung.NONE, Rung.BLOCK_NEW_WORK])
def test_only_a_rung_that_does_something_can_be_chosen(rung: Rung | None) -> None:
    refused(
        say(CommandKind.CHOOSE_RUNG, rung=rung),
        at(Stage.HANDED_OVER),
        "choose one of reset_gpu, reboot, replace, human",
    )


def test_a_rung_that_the_policy_forbids_cannot_be_chosen() -> None:
    refused(
        say(CommandKind.CHOOSE_RUNG, rung=Rung.STOP_WORKLOAD), at(Stage.HANDED_OVER), "does not allow stop_workload"
    )


@pytest.mark.parametrize("kind", [CommandKind.CHOOSE_RUNG, CommandKind.WITHDRAW])
def test_a_step_under_way_on_the_machine_is_not_called_back(kind: CommandKind) -> None:
    refused(say(kind, rung=Rung.REBOOT), at(Stage.REPAIRING), "under way")


@pytest.mark.parametrize("stage", [stage for stage in Stage if stage not in (Stage.REPAIRING, Stage.CLOSED)])
def test_an_incident_can_be_withdrawn_at_any_other_moment(stage: Stage) -> None:
    allowed(say(CommandKind.WITHDRAW), at(stage))


def test_only_what_was_handed_over_is_closed_by_hand() -> None:
    allowed(say(CommandKind.CLOSE), at(Stage.HANDED_OVER))
    refused(say(CommandKind.CLOSE), ASKING, "withdraw it?")


@given(
    kind=st.sampled_from(list(CommandKind)),
    stage=st.sampled_from(list(Stage)),
    rung=st.none() | st.sampled_from(list(Rung)),
    attempt=st.none() | st.integers(0, 3),
    asked=st.none() | st.just(ASKED),
    held_by=st.sampled_from(["", "bob"]),
)
def test_every_order_at_any_moment_is_taken_or_refused_in_one_line(
    kind: CommandKind, stage: Stage, rung: Rung | None, attempt: int | None, asked: Step | None, held_by: str
) -> None:
    answer = refusal(say(kind, rung=rung, attempt=attempt), at(stage, asked=asked, held_by=held_by))
    assert answer is None or (answer and "\n" not in answer)
