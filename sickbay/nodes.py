"""What we know of a node: who it is (`NodeRef`) and how it stood at one look (`NodeSnapshot`)."""

from datetime import datetime
from enum import StrEnum

from sickbay.checks import CheckReport
from sickbay.faults import Fault
from sickbay.model import Frozen
from sickbay.names import machine_id


class NodeRef(Frozen):
    """One machine. A node that comes back under an old name is another node: compare UIDs, never names."""

    cluster: str
    name: str
    uid: str
    provider_id: str | None = None
    pool: str = ""
    """Karpenter NodePool, EKS node group or ASG name; empty if none is known."""

    @property
    def machine(self) -> str:
        """Instance id, or node UID where there is no cloud."""
        return machine_id(self.provider_id, self.uid)


class Readiness(StrEnum):
    """The kubelet's Ready condition."""

    TRUE = "True"
    FALSE = "False"
    UNKNOWN = "Unknown"


class OwnerKind(StrEnum):
    """Who makes nodes of this pool, hence how one is replaced (facts: remediation, 3.5)."""

    KARPENTER = "karpenter"
    AUTOSCALING_GROUP = "autoscaling_group"
    NOBODY = "nobody"


class NodeOwner(Frozen):
    """The owner of a node: a NodeClaim, an Auto Scaling group, or nobody we know."""

    kind: OwnerKind
    name: str = ""
    """NodeClaim name or Auto Scaling group name."""
    uid: str = ""
    """NodeClaim UID."""
    deleting: bool = False
    """The NodeClaim has a deletion timestamp: somebody is already replacing this node."""


class NodeSnapshot(Frozen):
    """A node as one look at the API server showed it."""

    observed_at: datetime
    exists: bool
    """False when no node of this name has this UID any more; all other fields are then at their defaults."""
    uid: str = ""
    provider_id: str | None = None
    pool: str = ""
    boot_id: str = ""
    ready: Readiness = Readiness.UNKNOWN
    ready_since: datetime | None = None
    unschedulable: bool = False
    incident_mark: str | None = None
    """Incident id in our annotation, if any."""
    prior_unschedulable: bool | None = None
    """What our mark recorded of the cordon before ours."""
    uncordoned_by_person: bool = False
    """Our mark is there, the cordon is not, and a foreign field manager wrote it last: an order (design, 3.7)."""
    deleting: bool = False
    owner: NodeOwner = NodeOwner(kind=OwnerKind.NOBODY)
    foreign_locks: tuple[str, ...] = ()
    """Marks of other actors that forbid us to act now, each in words (driver upgrade, mig-manager, kured, medik8s)."""
    gpu_capacity: int = 0
    gpu_allocatable: int = 0
    gpus_promised: int = 0
    """GPUs of the instance type, by Karpenter's label or our table; 0 where neither knows it."""
    gpu_devices: int = 0
    """Whole GPUs that the node last showed, unlike `gpu_capacity` also where they are shared or cut; 0 if not known."""
    admission_taint: bool = False
    """Our startup taint is there: the node gets no work until it is validated."""
    admitted_boot: str = ""
    """The boot in which it last was; empty if it never had to be."""
    held_boot: str = ""
    """The boot for which we put that taint back after a reboot by others; empty if we never did."""
    mig_config: str = ""
    """The MIG layout that is wished of mig-manager; empty where none is."""
    mig_state: str = ""
    """How far mig-manager is with it, in its own word."""
    faults: tuple[Fault, ...] = ()
    """Open faults by our conditions and annotation, by the node's own Ready, and by the cloud."""
    undecided: tuple[str, ...] = ()
    """Codes of which nobody can tell now whether they are still there."""
    cloud_told: bool = False
    """EC2 has said how the node's instance stands; its last word is in `faults`."""
    conditions_fresh: bool = False
    """Our conditions carry this boot id and a recent heartbeat."""
    conditions_healthy: bool = False
    """Every condition of ours is there and True."""


class DrainOutcome(StrEnum):
    """How a drain ended. Only `DRAINED` opens a disrupting rung (design, 3.8)."""

    DRAINED = "drained"
    BLOCKED = "blocked"
    CANCELLED = "cancelled"
    NODE_GONE = "node_gone"
    TIMED_OUT = "timed_out"


class DrainGoal(StrEnum):
    """What must have left the node: a reset needs no GPU user, a reboot no workload (facts: remediation, 2.3)."""

    GPU_PODS = "gpu_pods"
    WORKLOAD = "workload"


class Blocker(Frozen):
    """One pod that keeps a node from being drained."""

    namespace: str
    pod: str
    reason: str
    """For a person, with the cure where there is one, e.g. the name of the PodDisruptionBudget."""
    budget: str | None = None


class DrainReport(Frozen):
    """The end of one drain."""

    outcome: DrainOutcome
    evicted: tuple[str, ...] = ()
    """`namespace/name` of every pod that left because of us."""
    blockers: tuple[Blocker, ...] = ()


class GpuReading(Frozen):
    """One GPU as the host's NVML told it."""

    uuid: str
    pci: str
    """PCI address without function, e.g. `0000:61:00`."""
    recovery_action: str = "unknown"
    """NVML field 230 in words (`none`, `gpu_reset`, `node_reboot`, ...); `unknown` on drivers that do not tell."""
    remap_pending: bool | None = None
    remap_failed: bool | None = None
    process_count: int | None = None


class HostProbe(Frozen):
    """What the node's own worker saw in one full pass of its layers."""

    observed_at: datetime
    boot_id: str
    gpus: tuple[GpuReading, ...] = ()
    gpus_answered: bool = False
    """NVML answered within its deadline. Silence is a fault, never health (design, 3.1)."""
    expected_gpus: int | None = None
    faults: tuple[Fault, ...] = ()
    """Open faults of this boot after anything that a proven reset has cleared."""
    checks_unknown: tuple[str, ...] = ()
    """Names of checks that could not judge, each of which keeps the node from being called healthy."""
    checks: tuple[CheckReport, ...] = ()
    """Every check of the pass, for people; what counts is above."""
