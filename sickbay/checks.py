"""What a health check is, and what it may say: the one small contract of every layer.

Built on by `health` (the checks that run), by `sickbay.recorded` (the same judgements on recorded outputs), by the
node agent and by `sickbay check`. Each layer's rules, which turn readings into an outcome, are modules of their own;
here are only the words they share.

A check answers one of five things. Only `healthy` is good: `unknown` is neither good nor bad and keeps a node from
being called healthy (design, 3.1); `starting` is an unknown that has an end; `not_applicable` says that this machine
has no such part.
"""

from collections.abc import Iterable
from datetime import datetime, timedelta
from enum import StrEnum

from pydantic import Field

from sickbay.faults import ComponentKind, Fault
from sickbay.model import Frozen


class CheckLayer(StrEnum):
    """Where a check looks; the word of `sickbay check --layer`."""

    KERNEL_LOG = "kernel-log"
    NVML = "nvml"
    DCGM = "dcgm"
    NETWORK = "network"
    HOST = "host"
    ACTIVE = "active"
    OTHER_AGENTS = "other-agents"
    CLOUD = "cloud"


class CheckCost(StrEnum):
    """What a check takes from the machine."""

    FREE = "free"
    """Reads files or answers that exist anyway."""
    CHEAP = "cheap"
    """Starts a short process; may run every minute beside any work."""
    EXCLUSIVE = "exclusive"
    """Needs an idle GPU or the whole node; runs when asked, or on GPUs that nobody uses."""


class CheckResult(StrEnum):
    """What a check says."""

    HEALTHY = "healthy"
    FAULTS = "faults"
    UNKNOWN = "unknown"
    NOT_APPLICABLE = "not_applicable"
    STARTING = "starting"


class ActiveDepth(StrEnum):
    """How far a pass goes with the checks of cost exclusive; those on GPUs that are in use are left out in any case."""

    NONE = "none"
    QUICK = "quick"
    """Seconds per GPU: allocate, write, read back, compute."""
    BURN_IN = "burn_in"
    """Minutes: bandwidths, NVLink and network loopbacks, load."""


class CheckAbout(Frozen):
    """A check as people know it: what `sickbay check --explain` prints."""

    name: str
    """Unique, in lower-case kebab, e.g. `nvml`, `dcgm-health`, `efa`."""
    layer: CheckLayer
    judges: tuple[ComponentKind, ...]
    """Kinds of parts whose faults it can tell; a condition of these is unknown while the check cannot judge."""
    cost: CheckCost
    looks_at: str
    """What it reads, in a sentence."""
    source: str
    """Who says that this means trouble: documents, issues."""
    thresholds: tuple[str, ...] = ()
    """Each limit with its unit, and the setting that changes it."""
    every: timedelta
    """Between two runs in the agent; zero for a check that runs only when it is asked for."""
    deadline: timedelta
    """Until a run counts as not answered and is given up."""
    fresh_for: timedelta
    """Age past which an answer no longer counts."""
    misses: int = Field(default=2, ge=1)
    """Runs without an answer, in a row, before new work is blocked for it. It is unknown at once."""
    passes: int = Field(default=2, ge=1)
    """Runs without a fault, in a row, before a fault that may pass counts as gone (facts: detection, 7)."""
    withdraws: bool = False
    """Its source keeps the state of things itself and takes back what is over (NVML's recovery action): then a fault is
    gone with the first whole run that does not show it, also one that disrupts."""
    starting_for: timedelta = timedelta(minutes=10)
    """How long after a boot the check may answer `starting`; past it that is no answer."""


class HostFacts(Frozen):
    """What kind of machine this is, as far as it can be told without its GPUs' driver; decides which checks apply."""

    instance_type: str = ""
    """EC2's name, from the firmware's product name; empty elsewhere."""
    pci_gpus: tuple[str, ...] = ()
    """NVIDIA GPUs on the PCI bus, e.g. `0000:61:00`, whether or not the driver has them."""
    pci_nvswitches: tuple[str, ...] = ()
    pci_efa: tuple[str, ...] = ()
    """Functions of vendor 1d0f, device efaN."""
    pci_infiniband: tuple[str, ...] = ()
    """Adapters of vendor 15b3 (Mellanox), virtual functions left out."""
    pci_known: bool = False
    """False where the PCI bus could not be read: then nothing above proves an absence."""
    gpu_product: str = ""
    """Name of the first GPU, e.g. `NVIDIA H100 80GB HBM3`; empty until the driver has told it."""
    driver_version: str = ""


class CheckMoment(Frozen):
    """What a run of a check is given."""

    now: datetime
    boot_id: str
    boot_seen_at: datetime
    """When the agent first ran in this boot; `starting` is measured from it."""
    host: HostFacts = HostFacts()
    expected_gpus: int | None = None
    memory: str = ""
    """What this check's last outcome of this boot asked to be remembered; empty at first and after a reboot."""
    depth: ActiveDepth = ActiveDepth.NONE
    burn_in: timedelta = timedelta(minutes=3)
    """How long a burn-in may load the GPUs."""


class CheckOutcome(Frozen):
    """What one run of a check says."""

    result: CheckResult
    why: str = ""
    """For a person: what cannot be judged and why, or what was seen. One line."""
    faults: tuple[Fault, ...] = ()
    memory: str = ""
    """For the check's next run in this boot: a baseline of counters, as JSON. Survives a restart of the agent."""


class CheckReport(Frozen):
    """One run of one check, with what surrounds it."""

    name: str
    layer: CheckLayer
    result: CheckResult
    why: str = ""
    seconds: float = 0.0
    """How long the run took."""
    at: datetime
    """When it began."""
    faults: tuple[Fault, ...] = ()


def healthy(why: str = "", memory: str = "") -> CheckOutcome:
    """Everything that the check looks at was read, and is well."""
    return CheckOutcome(result=CheckResult.HEALTHY, why=why, memory=memory)


def unknown(why: str, memory: str = "") -> CheckOutcome:
    """It cannot be judged; the reason is for people."""
    return CheckOutcome(result=CheckResult.UNKNOWN, why=why, memory=memory)


def not_applicable(why: str) -> CheckOutcome:
    """This machine has no such part."""
    return CheckOutcome(result=CheckResult.NOT_APPLICABLE, why=why)


def starting(why: str, memory: str = "") -> CheckOutcome:
    """Not there yet, as is usual for minutes after a boot."""
    return CheckOutcome(result=CheckResult.STARTING, why=why, memory=memory)


def judged(faults: Iterable[Fault], unjudged: str = "", memory: str = "") -> CheckOutcome:
    """The outcome of a run that read what it could: its faults, else unknown if anything is `unjudged`, else healthy.

    What could not be read beside a fault is told in `why`.
    """
    found = tuple(faults)
    without_fault = CheckResult.UNKNOWN if unjudged else CheckResult.HEALTHY
    result = CheckResult.FAULTS if found else without_fault
    return CheckOutcome(result=result, why=unjudged, faults=found, memory=memory)


def overall(reports: Iterable[CheckReport]) -> CheckResult:
    """What several checks say together: faults, else unknown, else healthy.

    Where no check applied nobody has judged anything, which is not health.
    """
    results = {report.result for report in reports}
    if CheckResult.FAULTS in results:
        return CheckResult.FAULTS
    if CheckResult.HEALTHY in results and not results & {CheckResult.UNKNOWN, CheckResult.STARTING}:
        return CheckResult.HEALTHY
    return CheckResult.UNKNOWN
