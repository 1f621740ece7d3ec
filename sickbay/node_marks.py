"""What we write on Node objects, and how it is undone: pure decisions from a node to the change that is due.

`activities.node_marks` carries the changes out. Each change is one write bound to the resource version it was decided
on, so that mark and cordon come and go together and nobody's write in between is lost (facts: remediation, 2.5). Marks
of others, another incident's included, are never touched.
"""

import hashlib
import re
from datetime import datetime
from typing import Final

from sickbay import gpu_clients, names
from sickbay.cordons import cordon_is_foreign, cordon_owners, uncordoned_by_person
from sickbay.kube_objects import Node, Taint
from sickbay.model import Frozen
from sickbay.node_change import NodeChange
from sickbay.policy.model import TaintPolicy

DO_NOT_DISRUPT: Final = "karpenter.sh/do-not-disrupt"
"""On a node, keeps Karpenter from consolidating it while it stands empty during a repair (facts: remediation, 1.6)."""

_TAINT_VALUE = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")


class ContainDecision(Frozen):
    """What `contain` is to do with a node. Without a change, the node stands as it must or is not ours to contain."""

    change: NodeChange | None = None
    other_incident: str | None = None
    uncordoned_by_person: bool = False
    prior_unschedulable: bool = False

    @property
    def contained(self) -> bool:
        """Whether the node is contained by us once the change is made."""
        return self.other_incident is None and not self.uncordoned_by_person


class ReleaseDecision(Frozen):
    """What `release` is to do with a node."""

    change: NodeChange | None = None
    left_cordoned: bool = False


class ProtectDecision(Frozen):
    """What `protect` or `unprotect` is to do with a node, and how it then stands."""

    change: NodeChange | None = None
    protected: bool
    ours: bool


def contain(node: Node, incident_id: str, at: datetime, taint: TaintPolicy) -> ContainDecision:
    """Cordon, and taint if the policy asks, in the name of one incident; a person's uncordon is not undone."""
    mark = incident_mark(node)
    if mark not in (None, incident_id):
        return ContainDecision(other_incident=mark)
    if uncordoned_by_person(node):
        return ContainDecision(uncordoned_by_person=True, prior_unschedulable=prior_unschedulable(node) is True)
    taints = _with_taint(node, incident_id, taint)
    if mark is None:
        prior = node.spec.unschedulable
        annotations: dict[str, str | None] = {
            names.ANNOTATION_INCIDENT: incident_id,
            names.ANNOTATION_PRIOR_UNSCHEDULABLE: str(prior).lower(),
            names.ANNOTATION_CONTAINED_AT: at.isoformat(),
        }
        return ContainDecision(change=_change(node, annotations, True, taints), prior_unschedulable=prior)
    prior = prior_unschedulable(node) is True
    if node.spec.unschedulable and taints is None:
        return ContainDecision(prior_unschedulable=prior)
    # Software that we know took our cordon away: from now on its traces are old ones (`cordons.uncordoned_by_person`).
    # A cordon that stood before ours went with it, so that the new one is ours alone.
    again: dict[str, str | None] = {}
    if not node.spec.unschedulable:
        prior = False
        again = {names.ANNOTATION_CONTAINED_AT: at.isoformat(), names.ANNOTATION_PRIOR_UNSCHEDULABLE: "false"}
    return ContainDecision(change=_change(node, again, True, taints), prior_unschedulable=prior)


def release(node: Node, incident_id: str, *, keep_cordon: bool, verified_boot: str = "") -> ReleaseDecision:
    """Undo what `contain` did for this incident, and only that. The cordon goes only if it is ours.

    A node that was admitted once and that the incident has verified in its present boot is admitted in that boot by the
    same write, so that nobody sees it in between and validates it again.

    GPU clients that are still paused go back to work too, should the resume after the reset have failed, and so does
    Karpenter: an incident that was terminated undoes nothing itself.
    """
    taints = _without_taint(node, incident_id)
    resumed = gpu_clients.resume(node, incident_id).change
    unprotected = unprotect(node, incident_id).change
    annotations = {**(resumed.annotations if resumed else {}), **(unprotected.annotations if unprotected else {})}
    labels = resumed.labels if resumed else {}
    if incident_mark(node) != incident_id:
        change = _change(node, annotations, None, taints, labels) if annotations or taints is not None else None
        return ReleaseDecision(change=change, left_cordoned=node.spec.unschedulable)
    keeps = node.spec.unschedulable and (keep_cordon or not _cordon_is_ours(node))
    annotations |= {
        names.ANNOTATION_INCIDENT: None,
        names.ANNOTATION_PRIOR_UNSCHEDULABLE: None,
        names.ANNOTATION_CONTAINED_AT: None,
    }
    if names.ANNOTATION_ADMITTED in node.metadata.annotations and verified_boot == node.status.node_info.boot_id != "":
        annotations[names.ANNOTATION_ADMITTED] = verified_boot
    uncordon = False if node.spec.unschedulable and not keeps else None
    return ReleaseDecision(change=_change(node, annotations, uncordon, taints, labels), left_cordoned=keeps)


def protect(node: Node, incident_id: str) -> ProtectDecision:
    """Keep Karpenter's hands off the node, unless somebody else has a say in that already."""
    present = node.metadata.annotations.get(DO_NOT_DISRUPT)
    owner = protection_owner(node)
    if present is not None or owner is not None:
        return ProtectDecision(protected=present == "true", ours=owner == incident_id)
    annotations: dict[str, str | None] = {DO_NOT_DISRUPT: "true", names.ANNOTATION_DO_NOT_DISRUPT: incident_id}
    return ProtectDecision(change=_change(node, annotations), protected=True, ours=True)


def unprotect(node: Node, incident_id: str) -> ProtectDecision:
    """Undo `protect` for this incident; a value that somebody changed since is theirs and stays."""
    present = node.metadata.annotations.get(DO_NOT_DISRUPT)
    if protection_owner(node) != incident_id:
        return ProtectDecision(protected=present == "true", ours=False)
    annotations: dict[str, str | None] = {names.ANNOTATION_DO_NOT_DISRUPT: None}
    if present == "true":
        annotations[DO_NOT_DISRUPT] = None
    return ProtectDecision(change=_change(node, annotations), protected=False, ours=False)


def incident_mark(node: Node) -> str | None:
    """The incident whose mark the node bears."""
    return node.metadata.annotations.get(names.ANNOTATION_INCIDENT)


def protection_owner(node: Node) -> str | None:
    """The incident that protects the node from Karpenter."""
    return node.metadata.annotations.get(names.ANNOTATION_DO_NOT_DISRUPT)


def prior_unschedulable(node: Node) -> bool | None:
    """Whether the node was cordoned before us; None without a legible mark."""
    return {"true": True, "false": False}.get(node.metadata.annotations.get(names.ANNOTATION_PRIOR_UNSCHEDULABLE, ""))


def taint_value(incident_id: str) -> str:
    """The incident id as a taint's value, which holds 63 characters at most; a hash where it does not fit."""
    if _TAINT_VALUE.fullmatch(incident_id):
        return incident_id
    return f"incident-{hashlib.sha256(incident_id.encode()).hexdigest()[:16]}"


def _cordon_is_ours(node: Node) -> bool:
    prior = prior_unschedulable(node)
    if prior is None:
        return cordon_owners(node) == (names.FIELD_MANAGER,)
    return not prior and not cordon_is_foreign(node)


def _with_taint(node: Node, incident_id: str, policy: TaintPolicy) -> tuple[Taint, ...] | None:
    if not policy.enabled:
        return None
    # A taint's identity is key and effect: one with another value is somebody else's, and blocks new work as well.
    if any(taint.key == names.TAINT_INCIDENT and taint.effect == policy.effect for taint in node.spec.taints):
        return None
    ours = Taint(key=names.TAINT_INCIDENT, effect=policy.effect, value=taint_value(incident_id))
    return (*node.spec.taints, ours)


def _without_taint(node: Node, incident_id: str) -> tuple[Taint, ...] | None:
    value = taint_value(incident_id)
    rest = tuple(
        taint for taint in node.spec.taints if not (taint.key == names.TAINT_INCIDENT and taint.value == value)
    )
    return None if len(rest) == len(node.spec.taints) else rest


def _change(
    node: Node,
    annotations: dict[str, str | None],
    unschedulable: bool | None = None,
    taints: tuple[Taint, ...] | None = None,
    labels: dict[str, str | None] | None = None,
) -> NodeChange:
    return NodeChange(
        resource_version=node.metadata.resource_version,
        annotations=annotations,
        labels=labels or {},
        unschedulable=unschedulable,
        taints=taints,
    )
