"""What node incidents and training jobs tell each other, by signals (design, 5: draining asks the jobs first).

An incident that wants its node empty sends `NodeTrouble` to every job on it; the job checkpoints, leaves the node or
goes on until its next checkpoint, and answers with `JobAnswer`. A job that finds hardware evidence, or a rank that
stays slow, opens or feeds the node's incident by the ordinary `FaultReport`. Jobs tell `HurtReport`s to the cluster's
suspicions, which make a suspect of a node that hurts one job after another (facts: training, 4 and 9).
"""

from datetime import datetime
from enum import StrEnum
from typing import Final

from pydantic import AwareDatetime, JsonValue

from sickbay.faults import Rung
from sickbay.model import Frozen
from sickbay.nodes import NodeRef

SIGNAL_NODE_TROUBLE: Final = "node_trouble"
SIGNAL_NODE_OVER: Final = "node_over"
SIGNAL_JOB_ANSWER: Final = "job_answer"
SIGNAL_JOB_HURT: Final = "job_hurt"


class Urgency(StrEnum):
    """How soon the node must be left."""

    NOW = "now"
    """Checkpoint at once, and leave."""
    NEXT_CHECKPOINT = "next_checkpoint"
    """Leave at the next planned checkpoint, or at the deadline."""


class NodeTrouble(Frozen):
    """Signal `node_trouble` to a job: this node is about to be disrupted. A repeat with a new deadline replaces it."""

    incident_id: str
    node: NodeRef
    urgency: Urgency
    rung: Rung
    until: AwareDatetime
    """Past it the incident goes on without an answer."""
    codes: tuple[str, ...] = ()
    hardware: bool = True
    """Whether the node itself is sick; else it only leaves (maintenance)."""


class NodeOver(Frozen):
    """Signal `node_over` to a job: the incident is closed; the node may be used again if `well`."""

    incident_id: str
    node: NodeRef
    well: bool


class AnswerKind(StrEnum):
    """What a job did about a node's trouble."""

    LEFT = "left"
    """No pod of it is on the node any more."""
    CHECKPOINTED = "checkpointed"
    """A new checkpoint is durable; its pods may go now."""
    LATER = "later"
    """It takes the time until the deadline."""
    CANNOT = "cannot"
    """It could not checkpoint: what was done since the last one will be lost."""


class JobAnswer(Frozen):
    """Signal `job_answer` to an incident."""

    job_id: str
    node_uid: str
    kind: AnswerKind
    step: int | None = None
    words: str = ""
    at: datetime


class HurtReport(Frozen):
    """Signal `job_hurt` to the cluster's suspicions: an attempt failed, and this is where its culprit ran."""

    job_id: str
    attempt: int
    node: NodeRef
    gpu_uuid: str = ""
    fingerprint: str
    explained: bool
    """Whether hardware evidence or the application explains it already."""
    at: AwareDatetime


class SuspicionsInput(Frozen):
    """What starts the suspicions of a cluster."""

    cluster: str
    carried: JsonValue = None
    """`sickbay.suspicions.Suspicions`, carried over a continue-as-new; never given by a starter."""
