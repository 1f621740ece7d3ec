"""What a person may tell an incident at this moment, and in which words it is refused.

One check for updates, whose validator refuses before anything enters history, and for signals, whose refusal is shown
in the incident's details (issue 2, 3).
"""

from datetime import datetime

from sickbay.faults import Rung
from sickbay.incident import Command, CommandKind, Stage
from sickbay.ladder import Step
from sickbay.model import Frozen

_ACTING = (Stage.REPAIRING,)
"""A step is under way on the machine itself: what a person says now would come too late to be true."""


class Situation(Frozen):
    """How the incident stands, as far as commands care."""

    stage: Stage
    asked: Step | None = None
    """The rung and attempt that an approval is asked for."""
    asked_until: datetime | None = None
    held_by: str = ""
    enabled: tuple[Rung, ...] = ()
    """Rungs that the policy allows at all."""


def refusal(command: Command, situation: Situation) -> str | None:
    """Why the command cannot be taken now, with what would help; None if it can."""
    if not command.by.strip():
        return "say who you are: a command needs a name"
    if not command.reason.strip():
        return f"say why: {command.kind} needs a reason, which is kept in the incident's history"
    if situation.stage is Stage.CLOSED:
        return "the incident is closed"
    return _RULES[command.kind](command, situation)


def _decision(command: Command, situation: Situation) -> str | None:
    asked = situation.asked
    if situation.stage is not Stage.AWAITING_APPROVAL or asked is None:
        return f"no approval is asked for now (stage {situation.stage})"
    if command.kind is CommandKind.APPROVE and command.rung is None:
        return f"name the rung you approve: {asked.rung} is asked for"
    if command.rung not in (None, asked.rung):
        return f"approval is asked for {asked.rung}, not for {command.rung}"
    if command.attempt not in (None, asked.attempt):
        return f"approval is asked for attempt {asked.attempt} of {asked.rung}, not for attempt {command.attempt}"
    return None


def _hold(command: Command, situation: Situation) -> str | None:  # noqa: ARG001 - one shape for all rules
    return f"{situation.held_by} already holds it" if situation.held_by else None


def _release(command: Command, situation: Situation) -> str | None:  # noqa: ARG001
    return None if situation.held_by else "it is not held"


def _choice(command: Command, situation: Situation) -> str | None:
    if command.rung is None or not (command.rung.disrupts or command.rung is Rung.HUMAN):
        return f"choose one of {', '.join([*situation.enabled, Rung.HUMAN])}"
    if command.rung is not Rung.HUMAN and command.rung not in situation.enabled:
        return f"the policy does not allow {command.rung} in this pool"
    if situation.stage in _ACTING:
        return "a step is under way on the machine; choose again when it has ended"
    return None


def _withdrawal(command: Command, situation: Situation) -> str | None:  # noqa: ARG001
    if situation.stage in _ACTING:
        return "a step is under way on the machine; withdraw when it has ended"
    return None


def _close(command: Command, situation: Situation) -> str | None:  # noqa: ARG001
    if situation.stage is not Stage.HANDED_OVER:
        return f"only an incident that was handed over can be closed by hand (stage {situation.stage}); withdraw it?"
    return None


_RULES = {
    CommandKind.APPROVE: _decision,
    CommandKind.REJECT: _decision,
    CommandKind.HOLD: _hold,
    CommandKind.RELEASE: _release,
    CommandKind.CHOOSE_RUNG: _choice,
    CommandKind.WITHDRAW: _withdrawal,
    CommandKind.CLOSE: _close,
}
