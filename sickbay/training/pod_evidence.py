"""What one pod of an ended attempt left, put together: its end, its log, the error record of its launcher.

Called by `activities.job_evidence` with a pod object and the end of its log. What words and end states mean is
`failures`'; here they only meet. A log that nobody could read is unavailable, and says nothing for or against the rank.
"""

from datetime import UTC, datetime
from typing import Final

from sickbay.kube_objects import Pod
from sickbay.model import Frozen
from sickbay.training.evidence import SIGNS_PER_RANK, RankEvidence, Stack
from sickbay.training.failures import error_files, log_text, pod_states
from sickbay.training.failures.stacks import stacks_in

NEVER: Final = datetime.max.replace(tzinfo=UTC)


class PodLeft(Frozen):
    """One pod's evidence."""

    rank: RankEvidence
    stacks: tuple[Stack, ...] = ()


def end_of(pod: Pod, rank: int) -> RankEvidence:
    """What the pod's object says. A launcher's error file counts where the pod's termination message carries it."""
    end = pod_states.end_of(pod.model_dump(mode="json", by_alias=True))
    ended = (each.state.terminated for each in pod.status.container_statuses)
    messages = [each.message for each in ended if each is not None and each.message.lstrip().startswith("{")]
    return RankEvidence(
        rank=rank,
        node=pod.spec.node_name,
        pod=pod.metadata.name,
        exit_code=end.exit_code,
        end=end,
        error=error_files.error_of(messages[0]) if messages else None,
        exited_at=end.finished_at,
    )


def never_ran(pod: Pod) -> bool:
    """Whether no container of it ever began: then there is no log, rather than one that is missing."""
    states = [each.state for each in (*pod.status.init_container_statuses, *pod.status.container_statuses)]
    return pod.status.phase in ("Pending", "Failed") and not any(state.running or state.terminated for state in states)


def with_log(base: RankEvidence, log: bytes, *, cut: bool) -> PodLeft:
    """The pod with what its log says, and what a launcher printed there of the ranks it ran."""
    rank = log_text.rank_with_log(base, log, cut=cut)
    text = log.decode(errors="replace")
    recorded = [each for each in error_files.errors_in(text) if each.error is not None or each.signs]
    first = min(recorded, key=lambda each: each.exited_at or NEVER, default=None)
    if first is not None:
        codes = {sign.code for sign in rank.signs}
        more = tuple(sign for sign in first.signs if sign.code not in codes)
        rank = rank.model_copy(
            update={"error": rank.error or first.error, "signs": (*rank.signs, *more)[:SIGNS_PER_RANK]}
        )
    stacks = tuple(
        stack.model_copy(
            update={"node": stack.node or base.node, "rank": base.rank if stack.rank is None else stack.rank}
        )
        for stack in stacks_in(text)
    )
    return PodLeft(rank=rank, stacks=stacks)
