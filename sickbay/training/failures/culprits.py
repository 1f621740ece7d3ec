"""Whom the others waited for: the search for the cause of a collective timeout (facts: training, 2.8).

Called by `classify`. In order: a rank that ended before the others gave up; the group that stalled first, inner groups
before the default one, and in it those who never came, which are the lowest in sequence and not the minority; ranks in
different collectives, who are nobody's fault but the code's; a stack that stands apart. A dump that is missing proves
nothing against its rank.
"""

from collections import defaultdict
from collections.abc import Iterable
from enum import StrEnum

from sickbay.model import Frozen
from sickbay.training.evidence import CollectiveEntry, Evidence, RankEvidence, Stack
from sickbay.training.failures.patterns import Kind, kind_of
from sickbay.training.failures.stacks import about, outliers

HANGS = frozenset({"watchdog-timeout", "watchdog-status", "barrier-timeout"})
_DEFAULT_GROUPS = ("default", "default_pg", "0", "0:default_pg", "WORLD")


class CulpritKind(StrEnum):
    """How somebody was found."""

    ENDED_FIRST = "ended_first"
    NEVER_JOINED = "never_joined"
    DEVICE_SIDE = "device_side"
    """It joined, and its device does not finish."""
    MISMATCHED = "mismatched"
    """Ranks called different collectives: the code's fault."""
    OUTLIER = "outlier"
    PEER_NAMED = "peer_named"
    UNKNOWN = "unknown"


class Suspects(Frozen):
    """Who is found, and how."""

    kind: CulpritKind = CulpritKind.UNKNOWN
    ranks: tuple[int, ...] = ()
    nodes: tuple[str, ...] = ()
    about: str = ""
    """Of an outlier: `data` or `storage`."""
    reason: str = ""
    evidence: tuple[str, ...] = ()


def suspects(evidence: Evidence) -> Suspects:
    """Whom the others waited for, by the first rule that finds anybody."""
    for rule in (_mismatched, _ended_first, _stalled_first, _outlier):
        if (found := rule(evidence)) is not None:
            return found
    return Suspects()


def _mismatched(evidence: Evidence) -> Suspects | None:
    """Ranks of one group that stand in different operations at once: whoever is behind is no culprit."""
    for group, entries in _groups(evidence.collectives):
        operations = {entry.operation for entry in entries if entry.operation}
        if len(operations) > 1:
            words = tuple(
                f"rank {entry.rank} in {entry.operation} {entry.started or ''}".strip() for entry in entries[:8]
            )
            reason = f"ranks of group {group} wait in different collectives: {', '.join(sorted(operations))}"
            return Suspects(kind=CulpritKind.MISMATCHED, reason=reason, evidence=words)
        sizes = {entry.size for entry in entries if entry.size and entry.operation}
        same_sequence = len({entry.started for entry in entries if entry.started is not None}) == 1
        if len(sizes) > 1 and same_sequence and not any("gather" in operation.lower() for operation in operations):
            reason = f"ranks of group {group} call one collective with different sizes: {', '.join(sorted(sizes))}"
            return Suspects(kind=CulpritKind.MISMATCHED, reason=reason)
    return None


def _ended_first(evidence: Evidence) -> Suspects | None:
    """A rank that failed by itself, while the others only timed out waiting."""
    waiting = [rank for rank in evidence.ranks if any(sign.code in HANGS for sign in rank.signs)]
    failed = [rank for rank in evidence.ranks if rank not in waiting and _failed_itself(rank)]
    if not waiting or not failed or len(failed) > max(1, len(evidence.ranks) // 2):
        return None
    ranks = tuple(rank.rank for rank in failed if rank.rank is not None)
    words = ", ".join(str(rank) for rank in ranks) or "one without a number"
    return Suspects(
        kind=CulpritKind.ENDED_FIRST,
        ranks=ranks,
        nodes=tuple(dict.fromkeys(rank.node for rank in failed if rank.node)),
        reason=f"rank {words} failed by itself, the others only waited for it",
        evidence=tuple(rank.signs[0].line for rank in failed if rank.signs)[:4],
    )


def _failed_itself(rank: RankEvidence) -> bool:
    kinds = {kind_of(sign.code) for sign in rank.signs}
    own = kinds - {Kind.CONTEXT, Kind.CASCADE, Kind.HANG, Kind.NOISE}
    traceback = any(sign.code == "traceback" for sign in rank.signs) and Kind.CASCADE not in kinds
    return bool(own) or traceback or (rank.exit_code not in (None, 0, 143) and not kinds)


def _stalled_first(evidence: Evidence) -> Suspects | None:
    """In the group that stalled first: those who never enqueued what the others wait in, else who does not finish."""
    for group, entries in _groups(evidence.collectives):
        enqueued = [entry for entry in entries if entry.enqueued is not None]
        if len(enqueued) < 2:
            continue
        furthest = max(entry.enqueued or 0 for entry in enqueued)
        behind = [entry for entry in enqueued if (entry.enqueued or 0) < furthest]
        if behind and len(behind) < len(enqueued):
            lowest = min(entry.enqueued or 0 for entry in behind)
            return _never_joined(evidence, group, [entry for entry in behind if entry.enqueued == lowest], furthest)
        completed = [entry for entry in entries if entry.completed is not None]
        if len(completed) > 1:
            least = min(entry.completed or 0 for entry in completed)
            slowest = [entry for entry in completed if entry.completed == least]
            if len(slowest) < len(completed):
                return Suspects(
                    kind=CulpritKind.DEVICE_SIDE,
                    ranks=tuple(entry.rank for entry in slowest),
                    nodes=_nodes_of(evidence, (entry.rank for entry in slowest)),
                    reason=f"all ranks of group {group} joined, and some do not finish: a device or link",
                )
    return None


def _never_joined(evidence: Evidence, group: str, entries: list[CollectiveEntry], sequence: int) -> Suspects:
    ranks = tuple(entry.rank for entry in entries)
    words = ", ".join(map(str, ranks[:16]))
    return Suspects(
        kind=CulpritKind.NEVER_JOINED,
        ranks=ranks,
        nodes=_nodes_of(evidence, ranks),
        reason=f"rank {words} never joined collective {sequence} of group {group}, in which the others wait",
    )


def _outlier(evidence: Evidence) -> Suspects | None:
    apart = outliers(evidence.stacks)
    if not apart:
        return None
    first = apart[0]
    return Suspects(
        kind=CulpritKind.OUTLIER,
        ranks=tuple(stack.rank for stack in apart if stack.rank is not None),
        nodes=tuple(dict.fromkeys(stack.node for stack in apart if stack.node)),
        about=about(first),
        reason=f"{_who(first)} waits outside of any collective while the others wait in one",
        evidence=first.frames[:4],
    )


def _who(stack: Stack) -> str:
    rank = f"rank {stack.rank}" if stack.rank is not None else f"process {stack.process}"
    return f"{rank} on {stack.node}" if stack.node else rank


def who(stack: Stack) -> str:
    """An outlier as a verdict names it."""
    return _who(stack)


def _groups(entries: Iterable[CollectiveEntry]) -> list[tuple[str, list[CollectiveEntry]]]:
    """Entries by group: small groups first, the default one last, since a blocked inner group blocks the outer ones."""
    by_group: dict[str, list[CollectiveEntry]] = defaultdict(list)
    for entry in entries:
        by_group[entry.group].append(entry)
    return sorted(by_group.items(), key=lambda item: (item[0] in _DEFAULT_GROUPS, len(item[1]), item[0]))


def _nodes_of(evidence: Evidence, ranks: Iterable[int]) -> tuple[str, ...]:
    wanted = set(ranks)
    return tuple(dict.fromkeys(rank.node for rank in evidence.ranks if rank.rank in wanted and rank.node))
