"""Whose a cordon is, and who took ours away.

`spec.unschedulable` is one boolean of many actors. The server records in managed fields who wrote it, but not who
removed it: an uncordon leaves no trace of its own. Used by `sickbay.node_reading` and `sickbay.node_marks`.
"""

from datetime import UTC, datetime, timedelta
from typing import Final

from pydantic import AwareDatetime, TypeAdapter, ValidationError

from sickbay.kube_objects import ManagedFields, Node
from sickbay.names import ANNOTATION_CONTAINED_AT, ANNOTATION_INCIDENT, FIELD_MANAGER

CONTROLLERS: Final = (
    "karpenter",
    "kube-controller-manager",
    "cluster-autoscaler",
    "cluster-api",
    "gpu-operator",
    "k8s-driver-manager",
    "kured",
    "aws-node-termination-handler",
    "node-maintenance-operator",
    "machine-config",
    "nvsentinel",
)
"""How the field managers of software that cordons by itself begin; what it writes is no person's order."""

DRIVER_UPGRADE_STATE: Final = "nvidia.com/gpu-driver-upgrade-state"
"""Label of the GPU operator's driver upgrade, which cordons and uncordons on its way (facts: remediation, 2.5)."""

CLOCK_SLACK: Final = timedelta(seconds=2)
"""Managed fields carry whole seconds, by another clock than our mark's."""

_MOMENT: Final = TypeAdapter[datetime](AwareDatetime)
_EPOCH: Final = datetime.fromtimestamp(0, UTC)


def cordon_owners(node: Node) -> tuple[str, ...]:
    """Field managers that own the cordon, the latest last; empty if nobody is recorded."""
    owning = [entry for entry in node.metadata.managed_fields if entry.owns("spec", "unschedulable")]
    return tuple(entry.manager for entry in sorted(owning, key=_written_at))


def cordon_is_foreign(node: Node) -> bool:
    """Whether the node is cordoned, and anybody but us is recorded to want it so."""
    return node.spec.unschedulable and any(owner != FIELD_MANAGER for owner in cordon_owners(node))


def uncordoned_by_person(node: Node) -> bool:
    """Whether our mark is there and the cordon is not, by no software that we know: a person's order (design, 3.7).

    Our mark and our cordon come and go in one write, so that a mark without a cordon is never our own doing. A server
    that keeps `unschedulable: false` names who wrote it. One that drops the field names nobody; then it was the driver
    upgrade if that moved on since we contained the node, and else a person: to take software for a person only leaves
    the node alone, the reverse would fight a person.
    """
    if ANNOTATION_INCIDENT not in node.metadata.annotations or node.spec.unschedulable:
        return False
    owners = cordon_owners(node)
    if owners:
        return owners[-1] != FIELD_MANAGER and not owners[-1].lower().startswith(CONTROLLERS)
    return not _driver_upgrade_moved(node)


def contained_at(node: Node) -> datetime | None:
    """When our mark says that the node was contained; None without a legible mark."""
    try:
        return _MOMENT.validate_python(node.metadata.annotations.get(ANNOTATION_CONTAINED_AT, ""))
    except ValidationError:
        return None


def _driver_upgrade_moved(node: Node) -> bool:
    since = contained_at(node)
    return since is not None and any(
        entry.owns("metadata", "labels", DRIVER_UPGRADE_STATE) and _written_at(entry) >= since - CLOCK_SLACK
        for entry in node.metadata.managed_fields
    )


def _written_at(entry: ManagedFields) -> datetime:
    return entry.time or _EPOCH
