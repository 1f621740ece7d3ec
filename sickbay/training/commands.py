"""What a person may tell a training job at this moment, and in which words it is refused.

One check for the update's validator, which refuses before anything enters history.
"""

from sickbay.model import Frozen
from sickbay.training.job import JobCommand, JobCommandKind, JobStage


class JobSituation(Frozen):
    """How the job stands, as far as orders care."""

    stage: JobStage
    paused: bool = False
    """Somebody has paused it, or it is about to pause."""
    ending: bool = False
    """It was cancelled, or has come to its end."""
    attempt_running: bool = False
    excluded: tuple[str, ...] = ()
    checkpoint_steps: tuple[int, ...] = ()
    """Steps of whole checkpoints at the last look."""


def refusal(command: JobCommand, situation: JobSituation) -> str | None:
    """Why the order cannot be taken now, with what would help; None if it can."""
    if not command.by.strip():
        return "say who you are: an order needs a name"
    if not command.reason.strip():
        return f"say why: {command.kind} needs a reason, which is kept in the job's history"
    if situation.stage is JobStage.CLOSED or situation.ending:
        return "the job is over, or about to be"
    return _RULES[command.kind](command, situation)


def _cancel(command: JobCommand, situation: JobSituation) -> str | None:  # noqa: ARG001 - one shape for all rules
    return None


def _pause(command: JobCommand, situation: JobSituation) -> str | None:  # noqa: ARG001
    return "it is paused already" if situation.paused else None


def _resume(command: JobCommand, situation: JobSituation) -> str | None:  # noqa: ARG001
    if situation.paused:
        return None
    if situation.stage is JobStage.HELD:
        return "it is not paused: it waits for a decision; retry it, or resume it from a step"
    return f"it is not paused (stage {situation.stage})"


def _restart(command: JobCommand, situation: JobSituation) -> str | None:  # noqa: ARG001
    return None if situation.attempt_running else f"no attempt is running (stage {situation.stage})"


def _exclude(command: JobCommand, situation: JobSituation) -> str | None:
    if not command.node:
        return "name the node to keep off"
    return f"it keeps off {command.node} already" if command.node in situation.excluded else None


def _include(command: JobCommand, situation: JobSituation) -> str | None:
    if not command.node:
        return "name the node to use again"
    if command.node in situation.excluded:
        return None
    kept = ", ".join(situation.excluded) or "no node"
    return f"it does not keep off {command.node}; it keeps off {kept}"


def _retry(command: JobCommand, situation: JobSituation) -> str | None:  # noqa: ARG001
    return None if situation.stage is JobStage.HELD else f"it waits for no decision (stage {situation.stage})"


def _from_step(command: JobCommand, situation: JobSituation) -> str | None:
    if situation.stage is not JobStage.HELD:
        return f"it waits for no decision (stage {situation.stage}); pause it first"
    if command.step is None or command.step < 0:
        return "name the step of a checkpoint, or 0 for the beginning"
    if command.step and command.step not in situation.checkpoint_steps:
        known = ", ".join(map(str, situation.checkpoint_steps[:10])) or "none"
        return f"there is no whole checkpoint of step {command.step}; there are: {known}"
    return None


_RULES = {
    JobCommandKind.CANCEL: _cancel,
    JobCommandKind.PAUSE: _pause,
    JobCommandKind.RESUME: _resume,
    JobCommandKind.RESTART: _restart,
    JobCommandKind.EXCLUDE_NODE: _exclude,
    JobCommandKind.INCLUDE_NODE: _include,
    JobCommandKind.RETRY: _retry,
    JobCommandKind.FROM_STEP: _from_step,
}
