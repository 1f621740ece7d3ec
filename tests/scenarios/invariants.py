"""What must hold at the end of every story: no mark of ours without an open incident, and no mark of others changed."""

from collections.abc import Sequence

from sickbay import names
from sickbay.gpu_clients import PAUSED
from sickbay.kube_objects import Node, Taint
from sickbay.model import Frozen
from sickbay.node_marks import DO_NOT_DISRUPT
from tests.scenarios.cluster import Cluster, incident_id
from tests.scenarios.waiting import seen

FOREIGN = "example.com/"
SETTLING_SECONDS = 20.0
"""The watch contains a node before its incident is open, and a controller that has just started has both to find."""


class ForeignMarks(Frozen):
    """What others wrote on a node."""

    annotations: dict[str, str]
    labels: dict[str, str]
    taints: tuple[Taint, ...]
    protected: str | None
    """Karpenter's `do-not-disrupt`, where it is not ours."""


def marks_of(node: Node) -> tuple[str, ...]:
    """Every mark of ours on a node, in words."""
    annotations = node.metadata.annotations
    found = [f"{key}={annotations[key]}" for key in names.MARKS if key in annotations]
    found += [f"{label}={value}" for label, value in node.metadata.labels.items() if PAUSED in value]
    found += [f"taint {taint.key}" for taint in node.spec.taints if taint.key == names.TAINT_INCIDENT]
    if node.spec.unschedulable and _wrote_cordon(node):
        found.append("cordon")
    return tuple(found)


def foreign_marks(node: Node) -> ForeignMarks:
    """What others wrote on a node, the stories' own marks among it."""
    meta = node.metadata
    ours = names.ANNOTATION_DO_NOT_DISRUPT in meta.annotations
    return ForeignMarks(
        annotations={key: value for key, value in meta.annotations.items() if key.startswith(FOREIGN)},
        labels={key: value for key, value in meta.labels.items() if key.startswith(FOREIGN)},
        taints=tuple(taint for taint in node.spec.taints if taint.key.startswith(FOREIGN)),
        protected=None if ours else meta.annotations.get(DO_NOT_DISRUPT),
    )


async def plant_foreign_marks(cluster: Cluster, protected: Sequence[str] = ()) -> dict[str, ForeignMarks]:
    """Mark every node as others do, and protect some from Karpenter; what then stands on each, by UID."""
    for node in await cluster.nodes():
        marks = {f"{FOREIGN}owner": node.metadata.name}
        protection = {DO_NOT_DISRUPT: "true"} if node.metadata.name in protected else {}
        taint = Taint(key=f"{FOREIGN}shared", value="yes", effect="PreferNoSchedule")
        taints = [each.model_dump(mode="json", exclude_none=True, by_alias=True) for each in (*node.spec.taints, taint)]
        await cluster.change_node(
            node.metadata.name,
            {
                "metadata": {"annotations": {**marks, **protection}, "labels": dict(marks)},
                "spec": {"taints": list(taints)},
            },
        )
    return {node.metadata.uid: foreign_marks(node) for node in await cluster.nodes()}


async def assert_marks_are_right(cluster: Cluster, planted: dict[str, ForeignMarks]) -> None:
    """The invariant, over all nodes."""

    async def every_mark_has_its_incident() -> bool:
        return not [node for node in await cluster.nodes() if not await _is_right(cluster, node)]

    await seen("every mark of ours has an open incident", every_mark_has_its_incident, SETTLING_SECONDS)
    for node in await cluster.nodes():
        before = planted.get(node.metadata.uid)
        assert before is None or foreign_marks(node) == before, node.metadata.name


async def _is_right(cluster: Cluster, node: Node) -> bool:
    if not marks_of(node):
        return True
    machine = names.machine_id(node.spec.provider_id, node.metadata.uid)
    return await cluster.is_open(incident_id(machine))


def _wrote_cordon(node: Node) -> bool:
    return any(
        entry.manager == names.FIELD_MANAGER and entry.owns("spec", "unschedulable")
        for entry in node.metadata.managed_fields
    )
