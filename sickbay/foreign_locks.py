"""Marks of other actors that forbid us to act on a node now (facts: remediation, 2.5, 5, 7; peer-nvsentinel).

Two that repair or change one node at once harm it. Used by `sickbay.node_reading`; the incident waits, then asks a
person.
"""

from datetime import datetime, timedelta
from typing import Final

from sickbay.cordons import DRIVER_UPGRADE_STATE
from sickbay.kube_objects import Lease, Node

LEASE_NAMESPACE: Final = "medik8s-leases"
"""Where Medik8s' remediators and its node maintenance keep one lease per node, `node-<name>`."""

DRIVER_UPGRADE_STATES: Final = frozenset(
    {
        "cordon-required",
        "wait-for-jobs-required",
        "pod-deletion-required",
        "drain-required",
        "node-maintenance-required",
        "post-maintenance-required",
        "pod-restart-required",
        "validation-required",
        "uncordon-required",
    }
)
"""States between the driver upgrade's cordon and its uncordon."""
MIG_STATE: Final = "nvidia.com/mig.config.state"
MIG_STATES: Final = frozenset({"pending", "rebooting"})
KURED_REBOOT: Final = "weave.works/kured-reboot-in-progress"
NVSENTINEL_STATE: Final = "dgxc.nvidia.com/nvsentinel-state"
NVSENTINEL_STATES: Final = frozenset({"draining", "drain-succeeded", "remediating"})
REMEDIATION_TAINTS: Final = frozenset(
    {"medik8s.io/remediation", "remediation.medik8s.io/fence-agents-remediation", "node.kubernetes.io/out-of-service"}
)
"""Taints of remediators that are at work on the node."""


def foreign_locks(node: Node, lease: Lease | None, now: datetime) -> tuple[str, ...]:
    """Each lock in words, for people; empty if nobody else is at work. `lease` is Medik8s' for this node, if any."""
    labels = node.metadata.labels
    found: list[str] = []
    if (state := labels.get(DRIVER_UPGRADE_STATE)) in DRIVER_UPGRADE_STATES:
        found.append(f"the GPU operator upgrades the driver ({DRIVER_UPGRADE_STATE}={state})")
    if (state := labels.get(MIG_STATE)) in MIG_STATES:
        found.append(f"mig-manager changes the MIG layout ({MIG_STATE}={state})")
    if KURED_REBOOT in node.metadata.annotations:
        found.append(f"kured reboots the node (annotation {KURED_REBOOT})")
    if (state := labels.get(NVSENTINEL_STATE)) in NVSENTINEL_STATES:
        found.append(f"NVSentinel repairs the node ({NVSENTINEL_STATE}={state})")
    taints = [taint.key for taint in node.spec.taints if taint.key in REMEDIATION_TAINTS]
    found.extend(f"a remediator works on the node (taint {key})" for key in taints)
    if lease is not None and _is_held(lease, now):
        found.append(f"{lease.spec.holder_identity} holds the node's lease in {LEASE_NAMESPACE}")
    return tuple(found)


def _is_held(lease: Lease, now: datetime) -> bool:
    spec = lease.spec
    # A holder that no longer renews is gone, and its lock with it (kured issues 137, 822).
    return bool(spec.holder_identity) and (
        spec.renew_time is None or now < spec.renew_time + timedelta(seconds=spec.lease_duration_seconds)
    )
