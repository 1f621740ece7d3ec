"""What a rank tells of its steps, and what a node tells of its ranks: the contract of reporter, collector and judge.

`health.rank_reporter` writes `StepReport` lines on the node, `health.rank_collector` reads them and serves a
`NodeRanks` page, `activities.job_ranks` fetches those of a job, and the modules beside this one judge them.
"""

from datetime import datetime, timedelta
from enum import StrEnum
from typing import Annotated

from pydantic import AwareDatetime, Field

from sickbay.model import Frozen

Milliseconds = Annotated[float, Field(ge=0, le=1e12, allow_inf_nan=False)]
"""As far as anybody may mean them: 30 years."""
Work = Annotated[float, Field(ge=0, le=1e30, allow_inf_nan=False)]
UnixTime = Annotated[float, Field(ge=0, le=4e9, allow_inf_nan=False)]
"""Seconds, until the year 2096."""
Number = Annotated[int, Field(ge=0, le=2**53)]


class RankPlace(Frozen):
    """Where a rank stands in the job's parallelism. Only ranks of one role, stage and expert group are compared."""

    rank: int = Field(ge=0, le=10_000_000)
    role: str = Field(default="worker", max_length=64)
    pipeline_stage: Number = 0
    expert_group: Number = 0
    """Which experts it holds: hot ones have more work."""
    tensor_group: Number = 0
    data_group: Number = 0
    gpu_uuid: str = Field(default="", max_length=64)


class SoFar(Frozen):
    """What a rank has counted since its attempt began, for a reader that has not seen every line."""

    first_step: Number
    first_at: UnixTime
    longest_gap_ms: Milliseconds = 0
    """The longest pause between two steps."""
    checkpoint_ms: Milliseconds = 0
    restore_ms: Milliseconds = 0


class StepReport(Frozen):
    """One step of one rank, one JSON line. Durations in milliseconds by the rank's own monotonic clock."""

    job: str = Field(max_length=512)
    """`namespace/name`."""
    attempt: int = Field(ge=1, le=1_000_000_000)
    place: RankPlace
    step: Number
    at: UnixTime
    """Unix time at the step's end, by the host's clock."""
    compute_ms: Milliseconds = 0
    """Until the first collective."""
    collective_ms: Milliseconds = 0
    """Waiting in collectives."""
    data_ms: Milliseconds = 0
    checkpoint_ms: Milliseconds = 0
    """What saving a checkpoint held the step up."""
    restore_ms: Milliseconds = 0
    tokens: Work = 0
    """Work in the step (tokens or FLOPs): an uneven load is no slow GPU."""
    so_far: SoFar | None = None


class RankWindow(Frozen):
    """The steps of one rank in one window of a node's collector."""

    job: str
    attempt: Number
    place: RankPlace
    node: str
    number: Number = 0
    """Which window of this node's clock; two looks that show one number show the same steps."""
    first_step: Number
    """The first step that this attempt ever told."""
    last_step: Number
    first_at: AwareDatetime
    """End of the first step that this attempt ever told, by the host's clock."""
    last_at: AwareDatetime
    steps: Number
    """Steps in this window."""
    step_ms: Milliseconds
    """Median of the whole step."""
    compute_ms: Milliseconds
    collective_ms: Milliseconds
    data_ms: Milliseconds
    checkpoint_ms: Milliseconds = 0
    longest_gap_ms: Milliseconds = 0
    """The longest pause between two steps of the whole attempt so far."""
    checkpoint_ms_total: Milliseconds
    """Over the whole attempt so far."""
    restore_ms_total: Milliseconds = 0
    tokens: Work
    """Median of the work in a step."""


class NodeRanks(Frozen):
    """The page a node agent serves: its ranks in the newest windows."""

    node: str
    boot_id: str
    at: AwareDatetime
    window: timedelta
    windows: tuple[RankWindow, ...] = ()
    """The newest window of each rank of each job whose file changed within the last hour."""
    unreadable: tuple[str, ...] = ()
    """Files that could not be read, each with its reason."""


class SlowCause(StrEnum):
    """Which part of the step makes a rank slow, where one explains most of it (facts: training, 5)."""

    COMPUTE = "compute"
    DATA = "data"
    CHECKPOINT = "checkpoint"
    UNKNOWN = "unknown"


class SlowRank(Frozen):
    """A rank that holds its peers up."""

    rank: int
    node: str
    gpu_uuid: str = ""
    cause: SlowCause
    slowdown: float
    """Step time of the job over what it would be without this rank, e.g. 1.3."""
    since: AwareDatetime
    evidence: tuple[str, ...] = ()


class Hang(Frozen):
    """The job stands still: no rank finished a step for longer than its own pace allows."""

    since: AwareDatetime
    """The end of the last step that anybody finished."""
    last_step: int
    limit: timedelta
    behind: tuple[int, ...] = ()
    """Ranks that did not finish the step that others did; no proof of guilt."""
    evidence: tuple[str, ...] = ()


class Pace(Frozen):
    """The job's own pace, learned from its steps; carried from look to look."""

    step: timedelta | None = None
    """Median of a step; None before enough were seen."""
    steps_seen: int = 0
    longest: timedelta = timedelta(0)
    """The longest pause between two steps that was not a hang (a checkpoint, an evaluation)."""
    suspicions: tuple["Suspicion", ...] = ()


class Suspicion(Frozen):
    """A rank that was slow in some of the last windows."""

    rank: int
    node: str
    windows: tuple[bool, ...] = ()
    """Newest last: whether it was slow in each."""
    number: int = 0
    """The newest window that was judged."""
    since: AwareDatetime


class RanksLook(Frozen):
    """What the pages of a job's nodes say at one moment."""

    observed_at: datetime
    reporting: int = 0
    """Ranks of which a page tells."""
    silent: tuple[int, ...] = ()
    """Ranks that take part and of which no page tells: unknown, not healthy."""
    step: int | None = None
    """The newest step that all reporting ranks have finished."""
    step_at: AwareDatetime | None = None
    """When the last of them finished it."""
    first_step_at: AwareDatetime | None = None
    checkpoint_stall: timedelta = timedelta(0)
    """What saving has held the attempt up so far, at its slowest rank."""
    restore: timedelta = timedelta(0)
    slow: tuple[SlowRank, ...] = ()
    """Persistently slow."""
    all_slow: str = ""
    """What slows all alike, in words: nobody to blame."""
    hang: Hang | None = None
    pace: Pace = Pace()


Pace.model_rebuild()
