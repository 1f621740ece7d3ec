"""Whom the others waited for: the search for the cause of a collective timeout (facts: training, 2.8).

Called by the rules of `classify`. In order: a sick node; a rank that ended before the others gave up; the group that
stalled first, and in it those who never came, which are the lowest in sequence and not the minority; ranks in different
collectives, who are nobody's fault but the code's; a device that does not finish; a stack that stands apart. A dump
that is missing proves nothing against its rank.
"""

from collections.abc import Iterable
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

from sickbay.faults import Rung
from sickbay.model import Frozen
from sickbay.training.evidence import CollectiveEntry, Evidence, LogState, RankEvidence, Stack
from sickbay.training.failures.patterns import Kind, kind_of
from sickbay.training.failures.roots import roots
from sickbay.training.failures.stacks import about, outliers
from sickbay.training.failures.stalls import Stall, differing, first_of, stalls_of, waits_in

HANGS: Final = frozenset({"watchdog-timeout", "watchdog-status", "barrier-timeout"})
NAMED: Final = 16
"""Ranks that a sentence names."""
_ENDED_BY_OTHERS: Final = (None, 143)
_ABORTED: Final = 134
"""SIGABRT: how a watchdog ends its own process, too."""


class CulpritKind(StrEnum):
    """How somebody was found."""

    FAULTY_NODE = "faulty_node"
    ENDED_FIRST = "ended_first"
    NEVER_JOINED = "never_joined"
    DEVICE_SIDE = "device_side"
    """It joined, and its device does not finish."""
    MISMATCHED = "mismatched"
    """Ranks called different collectives: the code's fault."""
    OUTLIER = "outlier"
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
    stalls = stalls_of(evidence.collectives)
    for found in (
        _faulty_node(evidence),
        _mismatched(stalls, same_sequence=True),
        _ended_first(evidence),
        _never_joined(evidence, stalls),
        _mismatched(stalls, same_sequence=False),
        _device_side(evidence, stalls),
        _outlier(evidence),
    ):
        if found is not None:
            return found
    return Suspects(reason=_unknown(evidence, stalls))


def _faulty_node(evidence: Evidence) -> Suspects | None:
    """A node with a fault of its hardware: everybody waits for what runs on it."""
    sick = [
        (node.node, fault)
        for node in evidence.nodes
        for fault in node.faults
        if fault.rung.disrupts and fault.rung is not Rung.STOP_WORKLOAD
    ]
    if not sick:
        return None
    nodes = tuple(dict.fromkeys(name for name, _ in sick))
    return Suspects(
        kind=CulpritKind.FAULTY_NODE,
        ranks=tuple(rank.rank for rank in evidence.ranks if rank.node in nodes and rank.rank is not None),
        nodes=nodes,
        reason=f"a detector found {sick[0][1].code} on {sick[0][0]}",
        evidence=tuple(f"{name}: {fault.code}" for name, fault in sick[:4]),
    )


def _mismatched(stalls: Iterable[Stall], *, same_sequence: bool) -> Suspects | None:
    """Ranks of one group in different operations, or with different sizes: whoever is behind is no culprit."""
    for stall in stalls:
        words, entries = differing(stall, same_sequence=same_sequence)
        if words:
            return Suspects(
                kind=CulpritKind.MISMATCHED,
                reason=f"ranks of group {stall.group} {words}",
                evidence=tuple(_place(entry) for entry in entries[:8]),
            )
    return None


def _ended_first(evidence: Evidence) -> Suspects | None:
    """A rank that ended or failed by itself, while the others only timed out waiting."""
    waiting = [rank for rank in evidence.ranks if any(sign.code in HANGS for sign in rank.signs)]
    timeouts = [sign.at for rank in waiting for sign in rank.signs if sign.code in HANGS and sign.at is not None]
    first = min(timeouts, default=None)
    skew = timedelta(seconds=evidence.clock_skew_seconds)
    failed = [rank for rank in evidence.ranks if rank not in waiting and _failed_itself(rank, first, skew)]
    if not waiting or not failed or len(failed) > max(1, len(evidence.ranks) // 2):
        return None
    failed = list(roots(failed, evidence.clock_skew_seconds)) or failed
    ranks = tuple(rank.rank for rank in failed if rank.rank is not None)
    return Suspects(
        kind=CulpritKind.ENDED_FIRST,
        ranks=ranks,
        nodes=tuple(dict.fromkeys(rank.node for rank in failed if rank.node)),
        reason=f"{_ranks(ranks) or 'one without a number'} failed by itself, the others only waited for it",
        evidence=tuple(rank.signs[0].line for rank in failed if rank.signs)[:4],
    )


def _failed_itself(rank: RankEvidence, first: datetime | None, skew: timedelta) -> bool:
    before = None if rank.exited_at is None or first is None else rank.exited_at < first - skew
    if before is False:
        return False
    kinds = {kind_of(sign.code) for sign in rank.signs}
    if kinds - {Kind.CONTEXT, Kind.CASCADE, Kind.HANG, Kind.NOISE}:
        return True
    if any(sign.code == "traceback" for sign in rank.signs) and Kind.CASCADE not in kinds:
        return True
    if rank.exit_code == 0:
        # It left the others behind; but only a time tells that it went before they gave up.
        return before is True
    if rank.exit_code == _ABORTED and rank.log is LogState.UNAVAILABLE and before is None:
        return False
    return rank.exit_code not in _ENDED_BY_OTHERS and not kinds


def _never_joined(evidence: Evidence, stalls: list[Stall]) -> Suspects | None:
    """In the group that stalled first: those who never enqueued what the others wait in."""
    stall = first_of(stalls)
    if stall is None:
        return None
    reached = {entry.rank: entry.enqueued if entry.enqueued is not None else -1 for entry in stall.entries}
    lowest = min(reached.get(rank, -1) for rank in stall.absent)
    ranks = tuple(sorted(rank for rank in stall.absent if reached.get(rank, -1) == lowest))
    told = [entry for entry in stall.entries if entry.rank in ranks or entry.rank in stall.waiting]
    return Suspects(
        kind=CulpritKind.NEVER_JOINED,
        ranks=ranks,
        nodes=_nodes_of(evidence, ranks),
        reason=f"{_ranks(ranks)} never joined collective {stall.sequence} of group {stall.group}, "
        "in which the others wait",
        evidence=tuple(_place(entry) for entry in told[:8]),
    )


def _device_side(evidence: Evidence, stalls: Iterable[Stall]) -> Suspects | None:
    """All joined, and some have started or completed less than others: a device, or a link."""
    for stall in stalls:
        if not stall.waiting:
            continue
        for done in ("completed", "started"):
            counts = {entry.rank: count for entry in stall.entries if (count := getattr(entry, done)) is not None}
            least = min(counts.values(), default=0)
            slowest = tuple(sorted(rank for rank, count in counts.items() if count == least))
            if len(counts) > 1 and len(slowest) < len(counts):
                return Suspects(
                    kind=CulpritKind.DEVICE_SIDE,
                    ranks=slowest,
                    nodes=_nodes_of(evidence, slowest),
                    reason=f"all ranks of group {stall.group} joined, and {_ranks(slowest)} has {done} least: "
                    "a device or link",
                    evidence=tuple(_place(entry) for entry in stall.entries if entry.rank in slowest)[:8],
                )
    return None


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
        reason=f"{who(first)} waits outside of any collective while the others wait in one",
        evidence=first.frames[:4],
    )


def who(stack: Stack) -> str:
    """An outlier as a verdict names it."""
    rank = f"rank {stack.rank}" if stack.rank is not None else f"process {stack.process}"
    return f"{rank} on {stack.node}" if stack.node else rank


def _unknown(evidence: Evidence, stalls: Iterable[Stall]) -> str:
    """Why nobody is found, where ranks wait for one that told nothing."""
    told = {entry.rank for entry in evidence.collectives}
    for stall in stalls:
        members = {rank for entry in stall.entries for rank in entry.group_rank}
        if stall.waiting and members - told:
            silent = tuple(sorted(members - told))
            return f"{_ranks(silent)} of group {stall.group} left no dump, which proves nothing against it"
    return ""


def _ranks(ranks: tuple[int, ...]) -> str:
    if not ranks:
        return ""
    more = f" and {len(ranks) - NAMED} more" if len(ranks) > NAMED else ""
    return f"rank {', '.join(map(str, ranks[:NAMED]))}{more}"


def _place(entry: CollectiveEntry) -> str:
    """`rank 3 of group tp 5: enqueued 90, completed 89, waits in all_reduce 90`."""
    counts = [
        f"{name} {count}"
        for name in ("enqueued", "started", "completed")
        if (count := getattr(entry, name)) is not None
    ]
    sequence = waits_in(entry)
    waits = [f"waits in {entry.operation or 'collective'} {sequence}"] if sequence is not None else []
    return f"rank {entry.rank} of group {entry.group}: {', '.join(counts + waits)}"[:400]


def _nodes_of(evidence: Evidence, ranks: Iterable[int]) -> tuple[str, ...]:
    wanted = set(ranks)
    return tuple(dict.fromkeys(rank.node for rank in evidence.ranks if rank.rank in wanted and rank.node))
