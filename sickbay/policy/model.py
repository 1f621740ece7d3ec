"""The policy as an incident knows it: resolved for one pool, read once at opening and kept for the incident's life.

Every default here is the shipped default, and every field says its unit and why it has its value. The YAML file that
people write is read by `sickbay.policy.file`, which resolves it to this.
"""

import re
from datetime import timedelta
from enum import StrEnum
from typing import Annotated

from pydantic import AfterValidator, Field

from sickbay.checks import ActiveDepth
from sickbay.faults import Rung
from sickbay.model import Frozen


class ApprovalNeed(StrEnum):
    """Whether a rung waits for a person's yes."""

    NEVER = "never"
    ALWAYS = "always"


class Limit(Frozen):
    """A ceiling in absolute numbers and in per cent; the smaller of the two holds.

    A per cent is rounded up, so that a small pool is not blocked for ever (Karpenter issues 2134, 2321), and a ceiling
    of 0 in either means none at all.
    """

    count: int = Field(ge=0)
    percent: float = Field(ge=0, le=100)


class RungPolicy(Frozen):
    """How one rung may be tried."""

    enabled: bool = True
    attempts: int = Field(default=1, ge=1)
    """Tries per incident before the next rung."""
    approval: ApprovalNeed = ApprovalNeed.NEVER
    deadline: timedelta
    """From the act to its proof; past it the rung has failed."""


class TaintPolicy(Frozen):
    """A taint of ours beside the cordon, for clusters whose DaemonSets tolerate it."""

    enabled: bool = False
    effect: str = Field(default="NoSchedule", pattern="^(NoSchedule|PreferNoSchedule)$")
    """Never NoExecute: it deletes pods without asking their PodDisruptionBudgets (facts: remediation, 2.4)."""


class HoldChoice(StrEnum):
    """What a drain does with pods that asked not to be moved."""

    HOLD = "hold"
    EVICT = "evict"


class DrainPolicy(Frozen):
    """How a node is emptied."""

    deadline: timedelta = timedelta(minutes=30)
    """Past it the drain has timed out, which is not drained."""
    evictions_per_minute: int = Field(default=60, ge=1)
    unmanaged_pods: HoldChoice = HoldChoice.HOLD
    """Pods without a controller are lost for ever by an eviction."""
    do_not_disrupt: HoldChoice = HoldChoice.HOLD
    """Pods with karpenter.sh/do-not-disrupt or cluster-autoscaler safe-to-evict=false."""
    dead_kubelet_grace: timedelta = timedelta(minutes=5)
    """How long a pod may hang Terminating on a node that is not Ready before it no longer counts for a reboot or a
    replacement. It always counts for a GPU reset."""


class JobsPolicy(Frozen):
    """How long the training jobs on a node have before it is drained. Those that Sickbay does not run are not asked."""

    checkpoint_deadline: timedelta = timedelta(minutes=15)
    """For a grave fault: from the word to the job until its pods have left with a new checkpoint behind them."""
    planned_checkpoint_deadline: timedelta = timedelta(hours=2)
    """For a mild fault: as long as the job may wait for its next planned checkpoint."""


def _operand(name: str) -> str:
    if not re.fullmatch(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?", name):
        raise ValueError("is no operand of the GPU operator; write its name, e.g. dcgm-exporter")
    return name


def _pod_selection(text: str) -> str:
    label = r"[A-Za-z0-9][A-Za-z0-9_./-]*=[A-Za-z0-9][A-Za-z0-9_.-]*"
    if not re.fullmatch(rf"([*]|[a-z0-9]([a-z0-9-]*[a-z0-9])?)/{label}(,{label})*", text):
        raise ValueError("selects no pods; write NAMESPACE/LABEL=VALUE, with * for every namespace")
    return text


OperandName = Annotated[str, AfterValidator(_operand)]
"""What follows `nvidia.com/gpu.deploy.` in a node label."""
PodSelectionText = Annotated[str, AfterValidator(_pod_selection)]
"""`namespace/label=value`, `*` for every namespace; see `sickbay.gpu_clients.selection`."""


class GpuClientsPolicy(Frozen):
    """The GPU clients that run as pods, which a GPU reset needs out of its way."""

    operands: tuple[OperandName, ...] = (
        "mig-manager",
        "node-status-exporter",
        "nvsm",
        "dcgm-exporter",
        "dcgm",
        "gpu-feature-discovery",
        "device-plugin",
        "dra-driver",
    )
    """Operands of NVIDIA's GPU operator, paused one after the other in this order; those that a node does not deploy
    are passed over. Monitors of the GPUs come before DCGM, which they ask; the DRA driver stops last, since the kubelet
    needs it to take claims back (facts: remediation, 4.2). mig-manager holds no GPU, but must not change the layout
    during a reset, and puts it back when it returns."""
    restart: tuple[PodSelectionText, ...] = (
        "*/name=nvidia-device-plugin-ds",
        "*/app.kubernetes.io/name=nvidia-device-plugin",
        "kube-system/app.kubernetes.io/name=eks-node-monitoring-agent",
    )
    """Pods that hold on to what they saw before a reset and are restarted after a proven one: the device plugin where
    no operator runs it never calls a GPU healthy again, and the EKS node monitoring agent keeps its condition False
    (facts: remediation, 1.8 and 4.2). The first two are the labels of the plugin's manifest and of its chart."""
    deadline: timedelta = timedelta(minutes=5)
    """For all operands to leave, and again for them to come back; the operator's own tools give each so long."""


class LemonPolicy(Frozen):
    """A machine that keeps coming back starts higher on the ladder."""

    window: timedelta = timedelta(days=7)
    incidents: int = Field(default=2, ge=1)
    """Repaired incidents inside the window that make the machine a lemon."""
    start_at: Rung = Rung.REPLACE


class BudgetPolicy(Frozen):
    """How many nodes of this pool may be out at once, whoever took them out."""

    max_unavailable: Limit = Limit(count=2, percent=20)
    permit_deadline: timedelta = timedelta(hours=2)
    """How long an incident waits for its permit before a person is asked."""
    lease: timedelta = timedelta(hours=1)
    """A permit that its holder does not renew within this is taken back if the holder is gone."""


class AdmissionPolicy(Frozen):
    """How nodes of this pool are validated before they get any work."""

    enabled: bool = False
    """Off by default: it needs our startup taint in the pool, and its toleration in every DaemonSet of a GPU node."""
    deadline: timedelta = timedelta(minutes=30)
    """From its beginning until a person is told; metal instances take as long to be ready (facts: remediation, 3.1)."""
    at_once: int = Field(default=20, ge=1)
    """Nodes of the whole cluster that may be under validation before one of this pool begins; others wait. Those that
    still boot count, so that a small number would keep a pool of hundreds from its first work for most of a day."""
    depth: ActiveDepth = ActiveDepth.BURN_IN
    """A node can pass every check without load and fail under it (facts: peer-nvsentinel, 4.31)."""
    burn_in: timedelta = timedelta(minutes=3)
    """How long the GPUs are loaded: minutes, since nobody waits hours for a node."""
    gpus: int = Field(default=0, ge=0)
    """GPUs that a node of this pool has; 0 takes what Karpenter's label, else the node itself, says."""
    look_every: timedelta = timedelta(seconds=15)


class VerificationPolicy(Frozen):
    """How far the active checks go after a rung, on GPUs that nobody uses."""

    stop_workload: ActiveDepth = ActiveDepth.NONE
    """It has repaired nothing."""
    reset_gpu: ActiveDepth = ActiveDepth.QUICK
    """The work of other GPUs may run on, and the soak follows."""
    reboot: ActiveDepth = ActiveDepth.BURN_IN
    """The node is empty; without load it may pass and fail again at once (facts: peer-nvsentinel, 4.31)."""
    replace: ActiveDepth = ActiveDepth.BURN_IN
    """Of the successor; one that was admitted has been loaded already."""
    burn_in: timedelta = timedelta(minutes=3)

    def after(self, rung: Rung) -> ActiveDepth:
        """The depth after one rung; none after a rung that disrupts nothing."""
        depths = {
            Rung.STOP_WORKLOAD: self.stop_workload,
            Rung.RESET_GPU: self.reset_gpu,
            Rung.REBOOT: self.reboot,
            Rung.REPLACE: self.replace,
        }
        return depths.get(rung, ActiveDepth.NONE)


class FaultPolicy(Frozen):
    """What this pool thinks differently of one fault code."""

    code: str
    rung: Rung | None = None
    """Start here instead of where the catalogue says."""
    tolerance: timedelta | None = None
    """How long the fault may last before anything disrupts the node."""


class IncidentPolicy(Frozen):
    """Everything an incident of one pool needs to know of the policy."""

    version: str = "default-1"
    """The file's own version word; kept in the incident (design, 3.12)."""
    digest: str = ""
    """Hash of the file's text, so that two files of one version can be told apart."""
    pool: str = ""

    taint: TaintPolicy = TaintPolicy()
    tolerance: timedelta = timedelta(seconds=0)
    """How long a fault that no rule names may last before the first disrupting rung."""
    faults: tuple[FaultPolicy, ...] = (
        FaultPolicy(code="node-not-ready", tolerance=timedelta(minutes=5)),
        FaultPolicy(code="monitor-silent", tolerance=timedelta(minutes=10)),
    )
    recovery_soak: timedelta = timedelta(minutes=5)
    """How long a fault that went by itself must stay away before the incident is withdrawn."""

    stop_workload: RungPolicy = RungPolicy(deadline=timedelta(minutes=10))
    reset_gpu: RungPolicy = RungPolicy(attempts=1, deadline=timedelta(minutes=10))
    reboot: RungPolicy = RungPolicy(deadline=timedelta(minutes=30))
    """Metal and large-memory instances take up to 30 minutes (facts: remediation, 3.1)."""
    replace: RungPolicy = RungPolicy(approval=ApprovalNeed.ALWAYS, deadline=timedelta(hours=2))

    jobs: JobsPolicy = JobsPolicy()
    drain: DrainPolicy = DrainPolicy()
    gpu_clients: GpuClientsPolicy = GpuClientsPolicy()
    host_pickup: timedelta = timedelta(minutes=1)
    """How long a host activity may wait for the node's own worker before the node counts as dead."""
    verify_deadline: timedelta = timedelta(minutes=10)
    """From proof to a full healthy pass; drivers and fabric need minutes to train after a boot."""
    verify_every: timedelta = timedelta(seconds=15)
    verification: VerificationPolicy = VerificationPolicy()
    soak: timedelta = timedelta(minutes=15)
    """The watch over a repaired node before the incident closes."""
    approval_deadline: timedelta = timedelta(hours=8)
    watch_deadline: timedelta = timedelta(hours=4)
    """How long new work stays blocked for trouble that no repair is meant for, before a person is asked."""
    foreign_lock_deadline: timedelta = timedelta(hours=2)
    """How long somebody else's lock on the node is respected in silence, before a person is asked."""
    look_every: timedelta = timedelta(minutes=10)
    """Between two looks at the node while the incident waits: it may be gone, or made schedulable by a person."""
    handover_reminder: timedelta = timedelta(days=1)
    handover_deadline: timedelta = timedelta(days=30)
    """A handed-over incident that no person ended by then closes, leaving the cordon to people."""
    lemon: LemonPolicy = LemonPolicy()
    budget: BudgetPolicy = BudgetPolicy()
    admission: AdmissionPolicy = AdmissionPolicy()

    def for_rung(self, rung: Rung) -> RungPolicy:
        """The rules of one disrupting rung. Raises KeyError for a rung that disrupts nothing."""
        return {
            Rung.STOP_WORKLOAD: self.stop_workload,
            Rung.RESET_GPU: self.reset_gpu,
            Rung.REBOOT: self.reboot,
            Rung.REPLACE: self.replace,
        }[rung]

    def for_fault(self, code: str) -> FaultPolicy:
        """What this pool says of a fault code; an empty rule where it says nothing."""
        return next((rule for rule in self.faults if rule.code == code), FaultPolicy(code=code))

    def tolerance_of(self, code: str) -> timedelta:
        """How long this fault may last before the node is disrupted for it."""
        rule = self.for_fault(code)
        return self.tolerance if rule.tolerance is None else rule.tolerance


class ContainmentPolicy(Frozen):
    """The cap of the watch's own cordons, which ask nobody: a bad detector must not cordon a fleet (design, 3.11)."""

    cap: Limit = Limit(count=5, percent=20)
    """Of the GPU nodes of the cluster, cordoned by us at one time."""
