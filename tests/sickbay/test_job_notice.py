"""What an incident tells the training jobs on its node."""

from datetime import UTC, datetime

import pytest

from sickbay.faults import Component, ComponentKind, Fault, FaultClass, Rung, Severity
from sickbay.job_notice import awaited, in_words, taken_in, trouble_of, urgency_of
from sickbay.nodes import NodeRef
from sickbay.policy.model import JobsPolicy
from sickbay.training.handshake import AnswerKind, JobAnswer, Urgency

NOW = datetime(2026, 11, 1, 12, tzinfo=UTC)
NODE = NodeRef(cluster="c", name="n1", uid="u1")
POLICY = JobsPolicy()


def fault(code: str, severity: Severity, rung: Rung = Rung.RESET_GPU) -> Fault:
    component = Component(kind=ComponentKind.GPU, id="0000:61:00")
    return Fault(code=code, component=component, fault_class=FaultClass.GPU, severity=severity, rung=rung)


def answer(job: str, kind: AnswerKind) -> JobAnswer:
    return JobAnswer(job_id=job, node_uid="u1", kind=kind, step=70, at=NOW)


def test_a_fatal_fault_asks_for_a_checkpoint_now_and_a_mild_one_waits_for_the_next() -> None:
    mild = fault("row-remap-pending", Severity.WARNING)
    assert urgency_of([mild]) is Urgency.NEXT_CHECKPOINT
    assert urgency_of([mild, fault("xid-79", Severity.FATAL)]) is Urgency.NOW


@pytest.mark.parametrize(
    ("severity", "patience"),
    [(Severity.FATAL, POLICY.checkpoint_deadline), (Severity.WARNING, POLICY.planned_checkpoint_deadline)],
)
def test_the_deadline_is_the_policys_and_the_codes_those_that_ask_for_something(
    severity: Severity, patience: object
) -> None:
    faults = (fault("xid-79", severity), fault("xid-63", Severity.INFO, Rung.NONE))
    trouble = trouble_of("incident-1", NODE, faults, Rung.REBOOT, POLICY, NOW)
    assert trouble.until - NOW == patience
    assert trouble.codes == ("xid-79",)


def test_only_a_job_that_left_is_no_longer_waited_for() -> None:
    answers = (answer("a", AnswerKind.CHECKPOINTED), answer("b", AnswerKind.LEFT), answer("c", AnswerKind.CANNOT))
    assert awaited(["a", "b", "c", "d"], answers) == ("a", "c", "d")


def test_a_jobs_newest_answer_replaces_its_older_one() -> None:
    answers = taken_in((answer("a", AnswerKind.LATER), answer("b", AnswerKind.LEFT)), answer("a", AnswerKind.LEFT))
    assert awaited(["a", "b"], answers) == ()
    assert len(answers) == 2


@pytest.mark.parametrize("kind", list(AnswerKind))
def test_every_answer_has_words(kind: AnswerKind) -> None:
    assert in_words(answer("job-a", kind)).startswith("job-a ")
