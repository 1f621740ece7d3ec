"""Which GPU clients that run as pods step aside for a GPU reset, and how they are put back exactly as they were.

A reset is refused while any process holds a GPU (facts: remediation, 4.2). The clients of NVIDIA's GPU operator are
DaemonSets, each with the node selector `nvidia.com/gpu.deploy.<operand>: "true"`: another value of that label on a node
ends the operand's pod there, and the old value brings it back. So they are paused by their labels, as mig-manager and
the driver upgrade pause them too. What a label said before stands in one annotation that bears the incident's id,
written with the label in one write.

Pure decisions, carried out by `activities.gpu_client_pods`; `sickbay.node_marks.release` uses `resume` as well, so that
every way out of an incident and the controller's sweep put back what was left paused. Host services that hold a GPU are
`activities.gpu_clients`' affair.
"""

from collections.abc import Iterable
from datetime import datetime
from typing import Final

from pydantic import ValidationError

from sickbay import names
from sickbay.kube_objects import Node, Pod
from sickbay.model import Frozen
from sickbay.node_change import NodeChange

DEPLOY_LABEL: Final = "nvidia.com/gpu.deploy."
"""Before the operand's name: the node label that the operator's DaemonSets select."""
PAUSED: Final = "paused-for-sickbay"
_DEPLOYED: Final = "true"
_NOT_DEPLOYED: Final = frozenset({"", "false"})
_PAUSED_BY_ANYBODY: Final = "paused-for-"
_LONGEST_VALUE: Final = 63
"""Characters of a label value (Kubernetes: labels and selectors)."""


class PausedClients(Frozen):
    """The annotation: whose pause it is, and what each label said before it."""

    incident: str
    labels: dict[str, str]


class PauseDecision(Frozen):
    """What a pause of one operand is to do with a node; `paused` says whether we have it paused afterwards."""

    change: NodeChange | None = None
    paused: bool = False


class ResumeDecision(Frozen):
    """What a resume is to do with a node."""

    change: NodeChange | None = None
    resumed: tuple[str, ...] = ()
    """Operands whose labels go back to what they said; others were changed by somebody else since, and are theirs."""


def pause(node: Node, incident_id: str, operand: str) -> PauseDecision:
    """Pause one operand. One that is not deployed here, or that somebody else has paused, is left alone."""
    label = DEPLOY_LABEL + operand
    value = node.metadata.labels.get(label, "")
    # A pause that an incident before us left behind is taken over: its record holds what the labels said before it.
    record = _record(node) or PausedClients(incident=incident_id, labels={})
    ours = label in record.labels and value == paused_value(record.labels[label])
    if ours and record.incident == incident_id:
        return PauseDecision(paused=True)
    if not ours and (value in _NOT_DEPLOYED or _PAUSED_BY_ANYBODY in value):
        return PauseDecision()
    prior = record.labels[label] if ours else value
    mine = PausedClients(incident=incident_id, labels={**record.labels, label: prior})
    change = NodeChange(
        resource_version=node.metadata.resource_version,
        annotations={names.ANNOTATION_PAUSED_CLIENTS: mine.model_dump_json()},
        labels={label: paused_value(prior)},
    )
    return PauseDecision(change=change, paused=True)


def resume(node: Node, incident_id: str) -> ResumeDecision:
    """Put back every label that this incident changed and nobody else since; nothing if it has paused nothing."""
    record = _record(node)
    if record is None or record.incident != incident_id:
        return ResumeDecision()
    present = node.metadata.labels
    labels = {label: prior for label, prior in record.labels.items() if present.get(label) == paused_value(prior)}
    change = NodeChange(
        resource_version=node.metadata.resource_version,
        annotations={names.ANNOTATION_PAUSED_CLIENTS: None},
        labels=dict(labels),
    )
    return ResumeDecision(change=change, resumed=tuple(label.removeprefix(DEPLOY_LABEL) for label in labels))


def paused_value(prior: str) -> str:
    """What a label says while its operand is paused.

    A value of the user's own, which DaemonSets of the user's may select, is kept in front, as the operator's own tools
    do it; it is cut where the whole would not fit, since the annotation holds it in full.
    """
    if prior == _DEPLOYED:
        return PAUSED
    suffix = f"_{PAUSED}"
    return prior[: _LONGEST_VALUE - len(suffix)] + suffix


def operand_pods(pods: Iterable[Pod], operand: str) -> tuple[Pod, ...]:
    """Those of a node's pods that belong to an operand and have not ended."""
    label = DEPLOY_LABEL + operand
    return tuple(pod for pod in pods if label in pod.spec.node_selector and not _has_ended(pod))


def missing_operands(pods: Iterable[Pod], operands: Iterable[str]) -> tuple[str, ...]:
    """Operands without a pod that serves."""
    present = tuple(pods)
    return tuple(operand for operand in operands if not any(pod.serves for pod in operand_pods(present, operand)))


class PodSelection(Frozen):
    """Some pods of a node: a namespace, empty for all of them, and a label selector."""

    namespace: str
    selector: str


def selection(text: str) -> PodSelection:
    """`namespace/label=value` of a policy as a selection; `*` stands for every namespace."""
    namespace, _, selector = text.partition("/")
    return PodSelection(namespace="" if namespace == "*" else namespace, selector=selector)


def latched(pods: Iterable[Pod], reset_at: datetime) -> tuple[Pod, ...]:
    """Those pods that have run since before the reset, and may hold on to what they saw then."""
    # The server stamps whole seconds.
    return tuple(
        pod
        for pod in pods
        if not _has_ended(pod)
        and pod.metadata.deletion_timestamp is None
        and (
            pod.metadata.creation_timestamp is None or pod.metadata.creation_timestamp < reset_at.replace(microsecond=0)
        )
    )


def _has_ended(pod: Pod) -> bool:
    return pod.status.phase in ("Succeeded", "Failed")


def _record(node: Node) -> PausedClients | None:
    """What the annotation says; one that cannot be read is nobody's."""
    text = node.metadata.annotations.get(names.ANNOTATION_PAUSED_CLIENTS)
    try:
        return PausedClients.model_validate_json(text) if text is not None else None
    except ValidationError:
        return None
