"""What a checkpoint is, and what one listing of a job's checkpoints shows.

Read by `activities.checkpoints`, judged by the modules beside this one, used by the training workflow and by
`sickbay checkpoints`. A step here is the training step (iteration) that the checkpoint resumes after.
"""

from datetime import datetime
from enum import StrEnum

from pydantic import AwareDatetime, Field

from sickbay.model import Frozen


class CheckpointFormat(StrEnum):
    """Whose layout it is (facts: training, 3.1)."""

    AUTO = "auto"
    """Tell by the files."""
    DCP = "dcp"
    MEGATRON = "megatron"
    DEEPSPEED = "deepspeed"
    ORBAX = "orbax"
    HF_TRAINER = "hf-trainer"
    LIGHTNING = "lightning"
    MANIFEST = "manifest"
    """A folder whose `manifest.json`, written last, lists every file with its size and SHA-256: what the house's own
    trainer writes, and what any script can."""


class Level(StrEnum):
    """How much is known of a checkpoint, least first. Only from `COMMITTED` on may it be resumed from."""

    UNKNOWN = "unknown"
    """It could not be judged, e.g. for lack of permission: neither whole nor absent."""
    LISTED = "listed"
    """Its files are there, its commit marker is not, or what the marker names is missing or short."""
    COMMITTED = "committed"
    """The marker is there, and every file that it names."""
    VERIFIED = "verified"
    """Sizes, and checksums where the format has them, agree with the marker."""
    PROVEN = "proven"
    """An attempt resumed from it and went on."""

    @property
    def may_resume(self) -> bool:
        """Whether a job may resume from it, taint aside."""
        return self in (Level.COMMITTED, Level.VERIFIED, Level.PROVEN)


class CheckpointPlace(Frozen):
    """Where a job's checkpoints are."""

    url: str
    """A folder (`/mnt/run`, `file:///mnt/run`) or `s3://bucket/prefix`. `{attempt}` in it stands for the attempt's
    number, which fences a stale writer; without it all attempts write to one place."""
    format: CheckpointFormat = CheckpointFormat.AUTO
    region: str = ""
    endpoint: str = ""
    """Address of an S3 that is not AWS's."""

    @property
    def per_attempt(self) -> bool:
        """Whether each attempt writes to a place of its own."""
        return "{attempt}" in self.url

    def for_attempt(self, attempt: int) -> str:
        """Where this attempt writes."""
        return self.url.replace("{attempt}", str(attempt))


class Checkpoint(Frozen):
    """One checkpoint as one look showed it."""

    step: int
    path: str
    """The folder, file or prefix a trainer is given to resume from."""
    format: CheckpointFormat
    level: Level
    problems: tuple[str, ...] = ()
    """What is missing, short, or not readable, each in words that name the file."""
    attempt: int | None = None
    """Which attempt wrote it, where the place or the manifest tells."""
    written_at: AwareDatetime | None = None
    """The newest modification among its files."""
    bytes: int = 0
    tainted: str = ""
    """Why its content may be wrong (a window of silent corruption); empty if nothing is known against it."""

    @property
    def may_resume(self) -> bool:
        """Whether a job may resume from it."""
        return self.level.may_resume and not self.tainted


class CheckpointQuery(Frozen):
    """Look at a job's checkpoints."""

    place: CheckpointPlace
    attempts: tuple[int, ...] = ()
    """Which attempts' places, where each has its own; empty means the place as it stands."""
    known: tuple[Checkpoint, ...] = ()
    """What an earlier look found: a whole and unchanged one is not read again."""
    newest: int = Field(default=20, ge=1)
    """How many, newest first, are judged by their content; older ones are only listed."""
    verify: bool = False
    """Read contents for checksums too, where the format has them."""


class CheckpointListing(Frozen):
    """One look at a job's checkpoints."""

    observed_at: datetime
    complete: bool
    """The whole place was listed. If not, what is missing below may still be there."""
    checkpoints: tuple[Checkpoint, ...] = ()
    """Newest step first."""
    problems: tuple[str, ...] = ()
    """What kept the listing from being complete, or is odd about the place as a whole (an empty tracker)."""


class ResumeChoice(Frozen):
    """Which checkpoint the next attempt resumes from, and why. `sickbay.checkpoints.choice` makes it."""

    checkpoint: Checkpoint | None = None
    """None means from the beginning, if `allowed`."""
    allowed: bool = True
    """False where starting would silently lose work or use what is tainted: a person must decide."""
    why: str = ""
    passed_over: tuple[str, ...] = ()
    """Newer checkpoints that are not used, each with its reason."""


class TaintWindow(Frozen):
    """A node's work between two times that may have been wrong (facts: training, 6)."""

    node: str
    since: AwareDatetime
    """The later of: when the node joined the job, the end of its last passed test."""
    until: AwareDatetime
    """When it was excluded."""
    confirmed: bool = False
    """Only confirmed corruption rolls a job back; a suspicion holds retention and excludes."""
    reason: str = ""


class Lineage(Frozen):
    """What one attempt began from and when it wrote: taint and staleness follow it."""

    attempt: int
    resumed_step: int | None = None
    resumed_path: str = ""
    began_at: AwareDatetime
    ended_at: AwareDatetime | None = None
    """When its last pod was gone or fenced; None while it may still write."""
    nodes: tuple[str, ...] = ()
    """Nodes that took part."""
