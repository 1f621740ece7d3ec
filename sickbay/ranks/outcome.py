"""What a slow rank leads to: told; its node actively checked once it is idle; or left at a checkpoint for that check.

Called by the training workflow. Timings of a job alone never condemn a node (design, 3.2): the fault made here blocks
new work and lets the active checks decide, as every suspicion of jobs does (`sickbay.suspicions`). They need idle GPUs,
so that a job which loses enough by the slow rank makes room for them, and keeps off the node until they have decided.
"""

from enum import StrEnum
from typing import Final

from sickbay.catalogue import fault_of
from sickbay.faults import Component, ComponentKind, Fault
from sickbay.ranks.model import SlowCause, SlowRank
from sickbay.suspicions import SLOW_RANK

WARN: Final = 1.10
"""Slowdown of the job below which nothing is said (facts: training, 5, impact scale)."""
CRITICAL: Final = 1.20
"""Slowdown from which the node is looked at."""
IN_THE_NODE: Final = (SlowCause.COMPUTE, SlowCause.UNKNOWN)
"""Causes that a check of the GPUs can confirm; loading data and saving are storage's or the script's."""


class SlowOutcome(StrEnum):
    """What is to be done about a slow rank, mildest first."""

    NOTHING = "nothing"
    OBSERVE = "observe"
    """Tell it in the job's details."""
    CHECK = "check"
    """Tell it, and report `slow_rank_fault` to the node's incident, which checks the node when the job has left it."""
    LEAVE_AT_CHECKPOINT = "leave_at_checkpoint"
    """The same, and end the attempt at a checkpoint to go on without the node."""


def outcome(slow: SlowRank, *, worth: bool) -> SlowOutcome:
    """What to do. `worth` is what `cost` says."""
    if not slow.slowdown >= WARN:
        return SlowOutcome.NOTHING
    if slow.slowdown < CRITICAL or slow.cause not in IN_THE_NODE:
        return SlowOutcome.OBSERVE
    return SlowOutcome.LEAVE_AT_CHECKPOINT if worth else SlowOutcome.CHECK


def slow_rank_fault(slow: SlowRank, job: str) -> Fault:
    """What the incident of the rank's node is told. `job` is `namespace/name`.

    The component is the host, since a rank names its GPU by another name than the node's own detectors do.
    """
    return fault_of(
        SLOW_RANK,
        Component(kind=ComponentKind.HOST, id=slow.node),
        seen=slow.since,
        evidence=(in_words(slow, job), *slow.evidence),
    )


def in_words(slow: SlowRank, job: str) -> str:
    """One line for people."""
    gpu = f", GPU {slow.gpu_uuid}" if slow.gpu_uuid else ""
    cause = "no single part of the step" if slow.cause is SlowCause.UNKNOWN else slow.cause.value
    more = (slow.slowdown - 1) * 100
    return f"rank {slow.rank} of {job} (node {slow.node}{gpu}) makes each step {more:.0f} % longer: {cause}"
