"""What a person may tell a training job, and in which words it is refused."""

from typing import Any

import pytest

from sickbay.training.commands import JobSituation, refusal
from sickbay.training.job import JobCommand, JobCommandKind, JobStage

TRAINING = JobSituation(stage=JobStage.TRAINING, attempt_running=True, excluded=("node-a",))
HELD = JobSituation(stage=JobStage.HELD, checkpoint_steps=(40, 20))
PAUSED = JobSituation(stage=JobStage.PAUSED, paused=True)
OVER = JobSituation(stage=JobStage.CLOSED)


def order(kind: JobCommandKind, **values: Any) -> JobCommand:
    return JobCommand(kind=kind, **{"by": "ada", "reason": "looked at it", **values})


@pytest.mark.parametrize(
    ("command", "situation"),
    [
        (order(JobCommandKind.CANCEL), TRAINING),
        (order(JobCommandKind.CANCEL), HELD),
        (order(JobCommandKind.PAUSE), TRAINING),
        (order(JobCommandKind.PAUSE), HELD),
        (order(JobCommandKind.RESUME), PAUSED),
        (order(JobCommandKind.RESTART), TRAINING),
        (order(JobCommandKind.EXCLUDE_NODE, node="node-b"), TRAINING),
        (order(JobCommandKind.INCLUDE_NODE, node="node-a"), TRAINING),
        (order(JobCommandKind.RETRY), HELD),
        (order(JobCommandKind.FROM_STEP, step=20), HELD),
        (order(JobCommandKind.FROM_STEP, step=0), HELD),
    ],
)
def test_an_order_that_fits_is_taken(command: JobCommand, situation: JobSituation) -> None:
    assert refusal(command, situation) is None


@pytest.mark.parametrize(
    ("command", "situation", "words"),
    [
        (order(JobCommandKind.CANCEL, by=" "), TRAINING, "who you are"),
        (order(JobCommandKind.CANCEL, reason=""), TRAINING, "say why"),
        (order(JobCommandKind.CANCEL), OVER, "over"),
        (order(JobCommandKind.PAUSE), PAUSED, "already"),
        (order(JobCommandKind.RESUME), TRAINING, "not paused"),
        (order(JobCommandKind.RESUME), HELD, "retry it"),
        (order(JobCommandKind.RESTART), HELD, "no attempt is running"),
        (order(JobCommandKind.EXCLUDE_NODE), TRAINING, "name the node"),
        (order(JobCommandKind.EXCLUDE_NODE, node="node-a"), TRAINING, "already"),
        (order(JobCommandKind.INCLUDE_NODE, node="node-z"), TRAINING, "node-a"),
        (order(JobCommandKind.RETRY), TRAINING, "waits for no decision"),
        (order(JobCommandKind.FROM_STEP, step=20), TRAINING, "pause it first"),
        (order(JobCommandKind.FROM_STEP), HELD, "name the step"),
        (order(JobCommandKind.FROM_STEP, step=30), HELD, "there are: 40, 20"),
    ],
)
def test_what_does_not_fit_is_refused_with_what_would_help(
    command: JobCommand, situation: JobSituation, words: str
) -> None:
    reason = refusal(command, situation)
    assert reason is not None
    assert words in reason
