"""Where a failed attempt's culprit ran, whether its failure is explained, and which nodes a job has to leave.

Called by the training workflow at the end of an attempt. Naming a place is no blame: it lets the cluster see a failure
that follows one node over different jobs (`sickbay.suspicions`).
"""

import re
from datetime import datetime

from sickbay.training.attempts import Exclusion
from sickbay.training.evidence import Evidence
from sickbay.training.exclusions import HARDWARE_FOR
from sickbay.training.handshake import NodeTrouble
from sickbay.training.verdicts import FailureClass, FailureVerdict

_RANK = re.compile(r"\brank (\d+)")
_EXPLAINED = (FailureClass.APPLICATION, FailureClass.CONFIG, FailureClass.DISRUPTION, FailureClass.POLICY)


def culprit(verdict: FailureVerdict, evidence: Evidence) -> tuple[str, str]:
    """Node and GPU of the one rank or node that the verdict names; empty where it names none, or several."""
    nodes = {blamed.node for blamed in verdict.blamed}
    gpus: set[str] = set()
    known = {each.node for each in evidence.nodes} | {each.node for each in evidence.ranks if each.node}
    by_rank = {each.rank: each for each in evidence.ranks if each.rank is not None}
    for words in verdict.culprits:
        nodes |= {node for node in known if re.search(rf"(?<![\w.-]){re.escape(node)}(?![\w.-])", words)}
        if (match := _RANK.search(words)) and (rank := by_rank.get(int(match.group(1)))) is not None:
            nodes |= {rank.node} - {""}
            gpus |= {rank.gpu_uuid} - {""}
    if len(nodes) != 1:
        return "", ""
    return next(iter(nodes)), next(iter(gpus)) if len(gpus) == 1 else ""


def is_explained(verdict: FailureVerdict) -> bool:
    """Whether something other than a hidden fault of the node explains the failure."""
    return verdict.failure_class in _EXPLAINED or any(blamed.hardware for blamed in verdict.blamed)


def left_node(trouble: NodeTrouble, now: datetime) -> Exclusion:
    """A node that is about to be disrupted: kept off until its incident is over, and not for ever."""
    return Exclusion(
        node=trouble.node.name,
        node_uid=trouble.node.uid,
        reason=f"{trouble.incident_id}: {', '.join(trouble.codes) or trouble.rung}",
        since=now,
        until=now + HARDWARE_FOR,
    )
