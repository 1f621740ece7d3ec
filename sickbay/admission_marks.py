"""What an admission writes on Node objects: pure decisions, beside those of an incident in `sickbay.node_marks`.

Carried out by `activities.node_marks`, each as one write bound to the resource version it was decided on: the list of
taints has no keys for the server, so that only the whole can be written, and nobody's taint in it may be lost (facts:
remediation, 2.5). Nothing here touches what an incident writes, and nothing there touches this.
"""

from sickbay import names
from sickbay.kube_objects import Node, Taint
from sickbay.model import Frozen
from sickbay.node_change import NodeChange
from sickbay.node_marks import incident_mark
from sickbay.node_reading import awaits_admission

EFFECT = "NoSchedule"
"""Never NoExecute, which deletes pods without asking their disruption budgets (facts: remediation, 2.4)."""


class AdmitDecision(Frozen):
    """What an admission is to do with a node at its end; with `why_not`, nothing."""

    change: NodeChange | None = None
    why_not: str = ""


class HoldDecision(Frozen):
    """What a reboot by others is to do with a node that was admitted before it."""

    change: NodeChange | None = None
    held: bool = False


def admit(node: Node, boot_id: str) -> AdmitDecision:
    """Take our startup taint away and note the boot that was validated; nothing on a node that changed since then."""
    running = node.status.node_info.boot_id
    if not boot_id or running != boot_id:
        return AdmitDecision(why_not=f"the node runs boot {running} by now, and boot {boot_id} was validated")
    if (mark := incident_mark(node)) is not None:
        return AdmitDecision(why_not=f"{mark} has this node")
    if not awaits_admission(node) and node.metadata.annotations.get(names.ANNOTATION_ADMITTED) == boot_id:
        return AdmitDecision()
    rest = tuple(taint for taint in node.spec.taints if taint.key != names.TAINT_ADMISSION)
    annotations: dict[str, str | None] = {names.ANNOTATION_ADMITTED: boot_id}
    if names.ANNOTATION_HELD_BOOT in node.metadata.annotations:
        annotations[names.ANNOTATION_HELD_BOOT] = None
    return AdmitDecision(change=_change(node, annotations, rest))


def hold_back(node: Node) -> HoldDecision:
    """Put our taint back on a node that was admitted in another boot than its present one; once in a boot."""
    admitted, running = node.metadata.annotations.get(names.ANNOTATION_ADMITTED, ""), node.status.node_info.boot_id
    if awaits_admission(node):
        return HoldDecision(held=True)
    if not admitted or running in ("", admitted) or incident_mark(node) is not None:
        return HoldDecision()
    if node.metadata.annotations.get(names.ANNOTATION_HELD_BOOT) == running:
        return HoldDecision()
    taints = (*node.spec.taints, Taint(key=names.TAINT_ADMISSION, effect=EFFECT))
    return HoldDecision(change=_change(node, {names.ANNOTATION_HELD_BOOT: running}, taints), held=True)


def held_back(node: Node) -> bool:
    """Whether the node once worked and waits for its admission again: it counts as taken out by us."""
    return awaits_admission(node) and names.ANNOTATION_ADMITTED in node.metadata.annotations


def taken_out(node: Node) -> bool:
    """Whether it is we who keep new work from the node: by an incident's mark on one that works, or by holding it back.

    One that waits for its first admission has not worked yet, and an incident takes nothing from it.
    """
    return held_back(node) or (incident_mark(node) is not None and not awaits_admission(node))


def _change(node: Node, annotations: dict[str, str | None], taints: tuple[Taint, ...]) -> NodeChange:
    return NodeChange(resource_version=node.metadata.resource_version, annotations=annotations, taints=taints)
