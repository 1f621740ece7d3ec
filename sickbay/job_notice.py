"""What an incident tells the training jobs on its node before it drains it, and how long it waits for them.

Called by `workflows.incident_jobs` (design, 5: draining asks the training jobs first). A grave fault asks for a
checkpoint now; a mild one leaves the job until its next planned checkpoint, since nothing is gained by haste.
"""

from collections.abc import Iterable
from datetime import datetime

from sickbay.faults import Fault, Rung, Severity
from sickbay.nodes import NodeRef
from sickbay.policy.model import JobsPolicy
from sickbay.training.handshake import AnswerKind, JobAnswer, NodeTrouble, Urgency


def urgency_of(faults: Iterable[Fault]) -> Urgency:
    """How soon jobs must leave for these open faults: at once for any that is fatal."""
    grave = any(fault.severity is Severity.FATAL for fault in faults)
    return Urgency.NOW if grave else Urgency.NEXT_CHECKPOINT


def trouble_of(
    incident_id: str, node: NodeRef, faults: tuple[Fault, ...], rung: Rung, policy: JobsPolicy, now: datetime
) -> NodeTrouble:
    """The word to every job on the node."""
    urgency = urgency_of(faults)
    patience = policy.checkpoint_deadline if urgency is Urgency.NOW else policy.planned_checkpoint_deadline
    codes = tuple(sorted({fault.code for fault in faults if fault.rung is not Rung.NONE}))
    return NodeTrouble(
        incident_id=incident_id, node=node, urgency=urgency, rung=rung, until=now + patience, codes=codes
    )


def awaited(jobs: Iterable[str], answers: Iterable[JobAnswer]) -> tuple[str, ...]:
    """Jobs that have not said yet that they left."""
    left = {answer.job_id for answer in answers if answer.kind is AnswerKind.LEFT}
    return tuple(job for job in jobs if job not in left)


def taken_in(answers: tuple[JobAnswer, ...], answer: JobAnswer) -> tuple[JobAnswer, ...]:
    """With one more answer, each job's newest alone."""
    return (*(one for one in answers if one.job_id != answer.job_id), answer)


def in_words(answer: JobAnswer) -> str:
    """An answer as the incident's account tells it."""
    match answer.kind:
        case AnswerKind.LEFT:
            told = "has left the node"
        case AnswerKind.CHECKPOINTED:
            told = f"has a checkpoint of step {answer.step} and leaves"
        case AnswerKind.LATER:
            told = "leaves at its next checkpoint"
        case AnswerKind.CANNOT:
            told = "could not checkpoint; what it did since its last one is lost"
    return f"{answer.job_id} {told}" + (f": {answer.words}" if answer.words else "")
