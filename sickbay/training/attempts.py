"""One attempt of a job as the outside shows it: its name and fence, its plan, its pods, and the end of them.

`activities.jobs` makes, looks at and removes attempts by these models; the training workflow plans by them. Everything
of an attempt bears its number: names, labels, variables and the place of its checkpoints (design, 3.15).
"""

from datetime import datetime
from enum import StrEnum

from pydantic import AwareDatetime, Field

from sickbay.checkpoints.model import Checkpoint, CheckpointQuery
from sickbay.model import Frozen
from sickbay.ranks.model import Pace, RanksLook


class AttemptRef(Frozen):
    """Which attempt of which job."""

    cluster: str
    namespace: str
    job: str
    attempt: int = Field(ge=1)
    fence: str
    """First run id of the job's workflow: what tells our object of this name from a foreign one."""

    @property
    def name(self) -> str:
        """Name of the attempt's object."""
        return f"{self.job}-a{self.attempt}"

    @property
    def full_job(self) -> str:
        """`namespace/job`."""
        return f"{self.namespace}/{self.job}"


class Exclusion(Frozen):
    """A node that this job keeps off, for a reason and a time."""

    node: str
    """Name of the Node object."""
    node_uid: str = ""
    """A node that came back under an old name is another node, and is not excluded."""
    reason: str
    since: AwareDatetime
    until: AwareDatetime
    soft: bool = False
    """Prefer others, but take it rather than wait."""


class AttemptPlan(Frozen):
    """What the next attempt is to be."""

    ref: AttemptRef
    nodes: int = Field(ge=1)
    """Pods, one per node."""
    resume: Checkpoint | None = None
    exclusions: tuple[Exclusion, ...] = ()
    accumulation: int | None = None
    """Micro-batches per step and rank that keep the global batch at this size; None leaves it to the script."""
    checkpoint_url: str
    """Where this attempt writes its checkpoints."""


class Placement(Frozen):
    """One pod of an attempt and where it runs."""

    rank: int
    """The pod's index: its first rank is this times the ranks of a node."""
    pod: str
    pod_uid: str = ""
    node: str = ""
    node_uid: str = ""
    boot_id: str = ""
    """The node's boot at that look: a node started anew since has ended the pod's processes."""
    machine: str = ""
    leaf: str = ""
    """The network switch next to the node, where its labels tell: two slow nodes behind one are not two bad nodes."""


class AttemptState(StrEnum):
    """How an attempt stands as a whole."""

    ABSENT = "absent"
    """No object of this name with our fence."""
    PENDING = "pending"
    """Not all pods run: they wait for room, an image, a quota."""
    RUNNING = "running"
    ENDED = "ended"
    """Every pod ended with exit code 0. That proves nothing yet."""
    FAILED = "failed"
    """A pod failed or vanished, or its node is lost."""
    EVICTED = "evicted"
    """A queue (Kueue) took it back: suspended, not failed."""


class PodWait(Frozen):
    """Why a pod does not run yet."""

    pod: str
    node: str = ""
    reason: str
    """`Unschedulable`, `ImagePullBackOff`, `UnexpectedAdmissionError`, ..."""
    message: str = ""
    capacity: bool = False
    """It waits for room: not a failure."""


class AttemptLook(Frozen):
    """One look at an attempt."""

    observed_at: datetime
    state: AttemptState
    uid: str = ""
    why: str = ""
    """What makes it failed, evicted or pending, in words."""
    pods: int = 0
    running: int = 0
    placements: tuple[Placement, ...] = ()
    waits: tuple[PodWait, ...] = ()
    placed_since: AwareDatetime | None = None
    """When the last of its pods was given a node."""
    running_since: AwareDatetime | None = None
    """When the last of its pods began to run."""
    ranks: RanksLook | None = None
    newest: Checkpoint | None = None
    """The newest checkpoint that may be resumed from, where the look included them."""


class WatchRequest(Frozen):
    """Watch an attempt until there is something to decide, or `until`."""

    ref: AttemptRef
    until: AwareDatetime
    """Return at the latest then, with what is seen."""
    state: AttemptState
    """What the workflow knows: another state returns at once."""
    step: int | None = None
    step_wanted: int | None = None
    """Return as soon as this step is finished or durable, e.g. the target."""
    checkpoints: CheckpointQuery | None = None
    """Where to look for newer checkpoints meanwhile."""
    newest_step: int | None = None
    """The newest durable checkpoint that is known; a newer one returns (a progress to record)."""
    slow_known: tuple[int, ...] = ()
    """Slow ranks that are known; a new one returns."""
    placements: tuple[Placement, ...] = ()
    """Where its pods ran, as last seen: one that is gone without a word makes it failed."""
    pace: Pace = Pace()
    hang_floor_seconds: float = 300
    ranks_expected: int = 0


class AttemptCreated(Frozen):
    """The answer of a creation, also of a repeated one."""

    uid: str = ""
    foreign: str = ""
    """An object of this name that is not ours stands in the way, in words."""


class AttemptGone(Frozen):
    """Whether an attempt can no longer write."""

    gone: bool
    left: tuple[Placement, ...] = ()
    """Pods that are still there."""
    fenced: tuple[str, ...] = ()
    """Nodes of such pods whose machine is proven gone or rebooted since: they cannot write."""


class CapacityLook(Frozen):
    """Which nodes could take a pod of this job now."""

    observed_at: datetime
    fitting: tuple[str, ...] = ()
    """Names of nodes that fit the template, are well, not excluded, and have room or hold this job's own pods."""
    unfit: tuple[str, ...] = ()
    """Nodes that match the template and cannot, each with its reason."""
    renewed: tuple[str, ...] = ()
    """Excluded nodes whose name another node bears by now: that one is not excluded."""
