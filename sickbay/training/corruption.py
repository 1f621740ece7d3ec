"""Which of a job's work a node may have spoilt: the windows in which it took part before it was known to compute wrong.

Called by the training workflow where corruption is confirmed: by a verdict on its own attempt, or by an incident whose
active checks found it. A suspicion taints nothing (facts: training, 6). Nobody tells a job when a node last passed a
test, so that all since the node joined the job is tainted.
"""

from collections.abc import Iterable
from datetime import datetime
from typing import Final

from sickbay.checkpoints.model import Lineage, TaintWindow
from sickbay.training.history import JobHistory
from sickbay.training.verdicts import NodeBlame

CODES: Final = frozenset({"gpu-wrong-result", "nccl-wrong-result"})
"""Faults of detectors that compare results: the node computes or moves something wrong and reports no error."""
KEPT: Final = 100


def spoilt(history: JobHistory, blamed: Iterable[NodeBlame], now: datetime) -> JobHistory:
    """The history with a window for each node that is blamed for wrong results."""
    for blame in blamed:
        if blame.corrupts:
            history = _with_window(history, blame.node, blame.reason, now)
    return history


def told_of(history: JobHistory, node: str, codes: Iterable[str], now: datetime) -> JobHistory:
    """The history with a window for a node of which an incident tells these faults, if one is such."""
    wrong = sorted(CODES.intersection(codes))
    return _with_window(history, node, ", ".join(wrong), now) if wrong else history


def joined_at(history: JobHistory, node: str) -> datetime | None:
    """When a node first took part in the job; None if it never did. Where nobody knows who took part, it may have."""
    return min((each.began_at for each in history.lineage if _took_part(each, history, node)), default=None)


def _took_part(lineage: Lineage, history: JobHistory, node: str) -> bool:
    names = lineage.nodes
    if lineage.ended_at is None and history.attempts:
        names = history.attempts[-1].node_names
    return not names or node in names


def _with_window(history: JobHistory, node: str, reason: str, now: datetime) -> JobHistory:
    since = joined_at(history, node)
    if since is None or any(each.node == node and each.since <= since and each.until >= now for each in history.taints):
        return history
    others = tuple(each for each in history.taints if each.node != node)
    window = TaintWindow(node=node, since=since, until=now, confirmed=True, reason=reason)
    return history.model_copy(update={"taints": (*others, window)[-KEPT:]})
