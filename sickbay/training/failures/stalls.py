"""Groups of ranks that stand still in a collective: in which one, who has not come, and who is held by another group.

Used by `culprits`, over what flight recorders, watchdogs and NCCL's report tell. A rank that waits in one group cannot
come to another: so the group that stalled first is the one whose missing ranks wait nowhere (facts: training, 2.8).
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from sickbay.training.evidence import CollectiveEntry

DEFAULT_GROUPS: Final = ("default", "default_pg", "0", "0:default_pg", "WORLD")
_MODEL_PARALLEL: Final = (
    "expert", "model", "tensor", "pipeline", "context", "sequence", "embedding", "_tp", "_pp", "_cp", "_ep",
)  # fmt: skip
_REDUCTION: Final = ("data", "grad", "_dp", "replicate", "shard")
_UNEVEN: Final = ("gather", "scatter", "alltoall", "all_to_all", "send", "recv", "coalesced", "unknown")
"""Operations whose ranks may pass different sizes; those of one fixed size (`_base`) are none of them."""


@dataclass
class Stall:
    """One group, as its ranks tell."""

    group: str
    entries: list[CollectiveEntry]
    sequence: int | None = None
    """In which some wait and others never came."""
    waiting: set[int] = field(default_factory=set)
    """Ranks that wait in some collective of this group."""
    absent: set[int] = field(default_factory=set)
    """Ranks that never enqueued `sequence`."""

    @property
    def order(self) -> tuple[int, int, str]:
        """Model-parallel groups first, then those that reduce, the default one last; small ones before large ones."""
        name = self.group.lower()
        if self.group in DEFAULT_GROUPS or name.startswith("ras "):
            place = 3
        elif any(word in name for word in _MODEL_PARALLEL) and "data" not in name:
            place = 0
        else:
            place = 2 if any(word in name for word in _REDUCTION) else 1
        return place, len(self.entries), self.group


def stalls_of(entries: Iterable[CollectiveEntry]) -> list[Stall]:
    """The groups, in the order in which they are looked at."""
    entries = tuple(entries)
    by_group: dict[tuple[str, tuple[int, ...]], list[CollectiveEntry]] = defaultdict(list)
    for entry in entries:
        by_group[entry.group, entry.group_rank].append(entry)
    told = {entry.rank for entry in entries}
    found = [_stall(group, told.intersection(members), own) for (group, members), own in by_group.items()]
    return sorted(found, key=lambda stall: stall.order)


def waits_in(entry: CollectiveEntry) -> int | None:
    """The sequence number of the collective that a rank waits in; None where it waits in none, or nothing tells."""
    if entry.completed is not None and entry.enqueued is not None:
        return entry.completed + 1 if entry.enqueued > entry.completed else None
    if entry.started is not None and (entry.operation or entry.completed is not None):
        return entry.started if entry.completed is None or entry.started > entry.completed else None
    if entry.enqueued is not None and entry.completed is None and entry.operation:
        return entry.enqueued
    return None


def first_of(stalls: Iterable[Stall]) -> Stall | None:
    """The group in which the waiting began: one whose missing ranks wait in no other group, else the innermost."""
    missing = [stall for stall in stalls if stall.absent]
    for stall in missing:
        held = {rank for other in missing if other is not stall for rank in other.waiting}
        if free := stall.absent - held:
            return Stall(stall.group, stall.entries, stall.sequence, stall.waiting, free)
    return missing[0] if missing else None


def differing(stall: Stall, *, same_sequence: bool) -> tuple[str, list[CollectiveEntry]]:
    """Operations or sizes that ranks of one group wait in at once, in words, and those ranks; empty if they agree."""
    by_sequence: dict[int | None, list[CollectiveEntry]] = defaultdict(list)
    for entry in stall.entries:
        sequence = waits_in(entry)
        if entry.operation and sequence is not None:
            by_sequence[sequence if same_sequence else None].append(entry)
    for entries in by_sequence.values():
        operations = sorted({entry.operation for entry in entries})
        if len(operations) > 1:
            return f"wait in different collectives: {', '.join(operations)}", entries
        sizes = sorted({entry.size for entry in entries if entry.size})
        if same_sequence and len(sizes) > 1 and not _may_differ(operations[0]):
            return f"call one collective with different sizes: {', '.join(sizes)}", entries
    return "", []


def _stall(group: str, members: set[int], entries: list[CollectiveEntry]) -> Stall:
    waits = {entry.rank: sequence for entry in entries if (sequence := waits_in(entry)) is not None}
    reached = {entry.rank: entry.enqueued for entry in entries if entry.enqueued is not None}
    # A rank that told of other groups, and of this one nothing, never came to it.
    silent = members - {entry.rank for entry in entries}
    for sequence in sorted(set(waits.values())):
        behind = {rank for rank, enqueued in reached.items() if enqueued < sequence} | silent
        if behind:
            return Stall(group, entries, sequence, set(waits), behind - set(waits) or behind)
    return Stall(group, entries, waiting=set(waits))


def _may_differ(operation: str) -> bool:
    name = operation.lower()
    return "base" not in name and any(word in name for word in _UNEVEN)
