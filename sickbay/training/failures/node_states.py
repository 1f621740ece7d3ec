"""What a Node object says of a machine that took part in an attempt.

Called by `activities.job_evidence` and `folder`. Only faults near the attempt's end count (facts: training, 1.3: ten
minutes before to five after); which of them weigh is `classify`'s rule.
"""

from datetime import datetime, timedelta
from typing import Final

from sickbay.faults import Fault
from sickbay.kube_objects import Node
from sickbay.node_faults import ready_condition
from sickbay.node_reading import read_node
from sickbay.training.evidence import NodeEvidence

BEFORE: Final = timedelta(minutes=10)
AFTER: Final = timedelta(minutes=5)
PRESSURES: Final = ("DiskPressure", "MemoryPressure", "PIDPressure")
PLANNED_TAINTS: Final = (
    "karpenter.sh/disrupted",
    "node.kubernetes.io/out-of-service",
    "aws-node-termination-handler/spot-itn",
    "aws-node-termination-handler/scheduled-maintenance",
    "ToBeDeletedByClusterAutoscaler",
)


def evidence_of(node: Node, ended_at: datetime) -> NodeEvidence:
    """The node as it stands, around the end of an attempt."""
    snapshot = read_node(node, ended_at, claim=None, claim_gone=False, lease=None)
    pressure = [name for name in PRESSURES if (found := node.condition(name)) is not None and found.status == "True"]
    return NodeEvidence(
        node=node.metadata.name,
        node_uid=node.metadata.uid,
        ready=ready_condition(node).status == "True",
        planned=_planned(node),
        pressure=tuple(pressure),
        faults=tuple(fault for fault in snapshot.faults if near(fault, ended_at)),
    )


def near(fault: Fault, ended_at: datetime) -> bool:
    """Whether a fault was seen around the end; one that tells no time of the wall may have been."""
    seen = fault.last_seen
    if not isinstance(seen, datetime):
        return True
    first = fault.first_seen if isinstance(fault.first_seen, datetime) else seen
    return first <= ended_at + AFTER and seen >= ended_at - BEFORE


def _planned(node: Node) -> str:
    """Why the node was leaving anyway, in words; empty if it was not."""
    if taint := next((taint.key for taint in node.spec.taints if taint.key in PLANNED_TAINTS), None):
        return f"taint {taint}"
    return "it is being deleted" if node.metadata.deletion_timestamp is not None else ""
