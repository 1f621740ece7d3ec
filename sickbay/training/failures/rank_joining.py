"""What several files tell of one rank, put together; and ranks put onto the nodes of their pods.

Used by `folder`. A pod's number in its job is a rank only where each pod runs one: dumps and error files count global
ranks, and with eight of them in a pod, rank 1 is on the node of pod 0.
"""

from collections.abc import Iterable
from typing import Final

from sickbay.training.evidence import LogState, RankEvidence
from sickbay.training.failures.pod_texts import PodRecord

SIGNS_MOST: Final = 64
_BETTER: Final = (LogState.READ, LogState.CUT, LogState.EMPTY, LogState.UNAVAILABLE)


def joined(*sources: Iterable[RankEvidence]) -> tuple[RankEvidence, ...]:
    """Evidence of one pod, or of one rank, as one; what is of neither stays apart."""
    found: dict[object, RankEvidence] = {}
    for number, each in enumerate(rank for source in sources for rank in source):
        key: object = ("pod", each.pod) if each.pod else ("rank", each.rank) if each.rank is not None else number
        before = found.get(key)
        found[key] = each if before is None else _one(before, each)
    return tuple(found.values())


def placed(ranks: Iterable[RankEvidence], pods: Iterable[PodRecord]) -> tuple[RankEvidence, ...]:
    """Ranks with the nodes of their pods. Pods of several ranks, which files tell apart, bear no rank of their own."""
    ranks, pods = tuple(ranks), tuple(pods)
    apart = [rank for rank in ranks if not rank.pod and rank.rank is not None]
    if not apart or not pods:
        return ranks
    each = max((pod.gpus for pod in pods), default=0)
    if each <= 1 and max(rank.rank or 0 for rank in apart) < len(pods):
        return _same(ranks, apart)
    nodes = {pod.index: pod.node for pod in pods if pod.index is not None and pod.node}
    return tuple(
        rank.model_copy(update={"rank": None})
        if rank.pod
        else rank.model_copy(update={"node": rank.node or nodes.get((rank.rank or 0) // each, "")})
        if each > 1 and rank.rank is not None
        else rank
        for rank in ranks
    )


def _same(ranks: tuple[RankEvidence, ...], apart: list[RankEvidence]) -> tuple[RankEvidence, ...]:
    """Each pod is one rank: what files tell of the rank is the pod's."""
    by_rank = {rank.rank: rank for rank in apart}
    pods = {rank.rank for rank in ranks if rank.pod and rank.rank is not None}
    return tuple(
        _one(rank, by_rank[rank.rank]) if rank.pod and rank.rank in by_rank else rank
        for rank in ranks
        if rank.pod or rank.rank not in pods
    )


def _one(before: RankEvidence, more: RankEvidence) -> RankEvidence:
    steps = [step for step in (before.last_step, more.last_step) if step is not None]
    return before.model_copy(
        update={
            "node": before.node or more.node,
            "rank": before.rank if before.rank is not None else more.rank,
            "exit_code": before.exit_code if before.exit_code is not None else more.exit_code,
            "end": before.end or more.end,
            "error": before.error or more.error,
            "log": min(before.log, more.log, key=_BETTER.index),
            "signs": (before.signs + tuple(sign for sign in more.signs if sign not in before.signs))[:SIGNS_MOST],
            "first_step": before.first_step if before.first_step is not None else more.first_step,
            "last_step": max(steps, default=None),
            "exited_at": before.exited_at or more.exited_at,
        }
    )
