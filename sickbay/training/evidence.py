"""What an ended (or hanging) attempt leaves: ends of pods, words in logs, error records, collectives, nodes.

Collected by `activities.job_evidence` before anything is removed, or read from a folder by `sickbay train classify`;
judged by `sickbay.training.failures`. Small enough for a workflow's history: logs are read where they are, and only
what they say (`Sign`) is kept, with the line that says it. What could not be read is in `missing`.
"""

from enum import StrEnum

from pydantic import AwareDatetime, Field

from sickbay.faults import Fault
from sickbay.model import Frozen
from sickbay.training.verdicts import FailureVerdict

LINE_LENGTH = 400
"""Characters of a line that are kept."""
SIGNS_PER_RANK = 24
"""Signs kept of one rank: the first of each code, since a cause stands before its consequences."""


class Source(StrEnum):
    """Where a sign was read."""

    LOG = "log"
    ERROR_FILE = "error_file"
    LAUNCHER = "launcher"
    """torchrun's own block, or an agent's."""
    POD = "pod"
    NODE = "node"
    FLIGHT_RECORDER = "flight_recorder"
    STACKS = "stacks"
    CLUSTER_EVENT = "cluster_event"


class Sign(Frozen):
    """One thing that one rank's log or record says. `code` is a row of `failures/patterns.toml`."""

    code: str
    source: Source = Source.LOG
    line: str = Field(default="", max_length=LINE_LENGTH)
    """The words themselves."""
    number: int = 0
    """Position in its log, for order within one rank; clocks of ranks differ."""
    at: AwareDatetime | None = None
    details: dict[str, str] = Field(default_factory=dict)
    """What the pattern's named groups caught, e.g. `seq`, `op`, `device`, `peer`, `node`."""


class LogState(StrEnum):
    """What became of a rank's log."""

    READ = "read"
    EMPTY = "empty"
    CUT = "cut"
    """Only its end or its beginning is there."""
    UNAVAILABLE = "unavailable"


class PodEnd(Frozen):
    """How Kubernetes says a pod ended (facts: training, 2.5)."""

    phase: str = ""
    reason: str = ""
    message: str = ""
    exit_code: int | None = None
    container_reason: str = ""
    """`OOMKilled`, `Error`, `Completed`, `ContainerStatusUnknown`, or a waiting reason such as `ErrImagePull`."""
    conditions: dict[str, str] = Field(default_factory=dict)
    """Reason by type, for conditions with status True: `DisruptionTarget: PreemptionByScheduler`."""
    deleting: bool = False
    started_at: AwareDatetime | None = None
    finished_at: AwareDatetime | None = None


class ErrorRecord(Frozen):
    """A torchelastic error file (facts: training, 2.2), or one of a launcher's own."""

    message: str
    exception: str = ""
    """Type of the exception, where the message begins with one."""
    at: AwareDatetime | None = None
    """Whole seconds, by the host's clock; for a signal the time at which the agent noticed."""
    exit_code: int | None = None
    """As the record has it: a signal is negative."""
    partial: bool = False
    """The file could not be read as a whole."""


class RankEvidence(Frozen):
    """What one rank, or one pod whose ranks cannot be told apart, left."""

    rank: int | None = None
    node: str = ""
    pod: str = ""
    gpu_uuid: str = ""
    exit_code: int | None = None
    """128 + n for signal n."""
    end: PodEnd | None = None
    log: LogState = LogState.UNAVAILABLE
    signs: tuple[Sign, ...] = ()
    """In the order of its log."""
    error: ErrorRecord | None = None
    first_step: int | None = None
    last_step: int | None = None
    """Steps that its log or its reports tell."""
    exited_at: AwareDatetime | None = None


class CollectiveEntry(Frozen):
    """The newest collectives of one rank in one process group, by a flight recorder or a watchdog's words."""

    rank: int
    group: str = "default"
    group_rank: tuple[int, ...] = ()
    """All ranks of the group, where told."""
    enqueued: int | None = None
    started: int | None = None
    completed: int | None = None
    """Sequence numbers of the last one enqueued, started, completed."""
    operation: str = ""
    """Of the first one not completed."""
    size: str = ""


class Stack(Frozen):
    """Where one rank stood when it was asked."""

    rank: int | None = None
    node: str = ""
    process: str = ""
    frames: tuple[str, ...] = ()
    """Innermost first."""


class NodeEvidence(Frozen):
    """What is known of a node that took part, around the end of the attempt."""

    node: str
    node_uid: str = ""
    exists: bool = True
    ready: bool = True
    planned: str = ""
    """Why it was leaving anyway (our drain, an upgrade, a spot notice); empty if it was not."""
    pressure: tuple[str, ...] = ()
    """`DiskPressure`, `MemoryPressure`, `PIDPressure` that were True."""
    faults: tuple[Fault, ...] = ()
    """Open then, by our agent and others; only those within [-10, +5] minutes of the end count."""
    told: bool = True
    """Whether anybody answered for it: without, its hardware is unknown."""


class PastFailure(Frozen):
    """An earlier attempt's end, for tests of repetition."""

    attempt: int
    verdict: FailureVerdict
    nodes: tuple[str, ...] = ()
    culprit_node: str = ""
    """The node of the rank that failed first, blamed or not."""
    culprit_gpu: str = ""
    progress: bool = False
    """Whether a newer durable checkpoint came after it."""


class Ending(StrEnum):
    """What made the attempt's end, as far as the watch itself knows."""

    FAILED = "failed"
    ENDED = "ended"
    """All pods exited 0."""
    HANG = "hang"
    EVICTED = "evicted"
    CANCELLED = "cancelled"
    DEADLINE = "deadline"
    UNKNOWN = "unknown"


class Evidence(Frozen):
    """All that one attempt left."""

    attempt: int = 0
    ending: Ending = Ending.UNKNOWN
    started_at: AwareDatetime | None = None
    ended_at: AwareDatetime | None = None
    stepped: bool | None = None
    """Whether it ever finished a step; None where nobody can tell."""
    ran_before: bool = False
    """Whether an earlier attempt of this job finished a step: its code and configuration can work."""
    resumed_from: str = ""
    """Path of the checkpoint that it was given."""
    last_step: int | None = None
    target_step: int | None = None
    target_reached: bool | None = None
    ranks: tuple[RankEvidence, ...] = ()
    collectives: tuple[CollectiveEntry, ...] = ()
    stacks: tuple[Stack, ...] = ()
    nodes: tuple[NodeEvidence, ...] = ()
    cluster_signs: tuple[Sign, ...] = ()
    """What no rank said: events, queues, a launcher without a rank."""
    past: tuple[PastFailure, ...] = ()
    missing: tuple[str, ...] = ()
    """Sources that did not answer, e.g. `log of pod train-a1-3: timed out`."""
    clock_skew_seconds: float = 2.0
    """Below which two times of different nodes are the same time."""
