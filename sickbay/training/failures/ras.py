"""NCCL's own report of a running job (RAS, `ncclras`): which ranks launched how many collectives.

Used by `collectives` and `folder`. RAS lists the ranks of the smaller side only, and the smaller side is not the
culprit: in NVIDIA/nccl#1911 two ranks were ahead, and healthy. So the counts are kept as they are told, and the side
that is not listed is what remains. Its rank numbers are those of the communicator, so that only communicators of the
whole job are read.
"""

import re
from collections.abc import Iterator
from typing import Final

from sickbay.training.evidence import CollectiveEntry, RankEvidence

_SECTION: Final = re.compile(r"^#(?P<id>[\d-]+) \([0-9a-f]+\) (?P<state>[A-Z,]+)\s*$", re.MULTILINE)
_SUMMARY: Final = re.compile(r"^Job summary\s*\n=+\s*$", re.MULTILINE)
_TOTAL: Final = re.compile(r"^[ \t]+\d+[ \t]+\d+[ \t]+\d+[ \t]+\d+[ \t]+(?P<gpus>\d{1,7})[ \t]*$", re.MULTILINE)
_OPERATION: Final = re.compile(r"Communicator ranks have different (?P<operation>\w+) operation counts")
_COUNT: Final = re.compile(
    r"^\s+(?P<ranks>\d{1,7}) ranks? ha(?:ve|s) launched up to operation (?P<operation>\d{1,15})\s*$"
)
_RANK: Final = re.compile(
    r"^\s+Rank (?P<rank>\d{1,7}) -- GPU \S+ managed by process (?P<process>\d+) on node (?P<node>\S+)\s*$"
)
LARGEST: Final = 4 << 20
RANKS_MOST: Final = 200_000


def of_ras(text: str) -> tuple[CollectiveEntry, ...]:
    """Counts of each rank in communicators of the whole job whose ranks differ."""
    found: list[CollectiveEntry] = []
    for name, section in _sections(text):
        match = _OPERATION.search(section)
        if match is not None:
            found += _of_section(f"ras {name}", match["operation"], section[match.end() :], _gpus(text))
    return tuple(found)


def ranks_of_ras(text: str) -> tuple[RankEvidence, ...]:
    """Nodes of the ranks that the report lists in communicators of the whole job."""
    found: dict[int, RankEvidence] = {}
    for _, section in _sections(text):
        for line in section.splitlines():
            if (match := _RANK.match(line)) is not None and int(match["rank"]) < (_gpus(text) or 0):
                found[int(match["rank"])] = RankEvidence(rank=int(match["rank"]), node=match["node"])
    return tuple(found.values())


def _sections(text: str) -> Iterator[tuple[str, str]]:
    text = text[:LARGEST]
    starts = list(_SECTION.finditer(text)) if _SUMMARY.search(text) else []
    ends = [*(match.start() for match in starts[1:]), len(text)]
    for match, end in zip(starts, ends, strict=False):
        yield match["id"], text[match.end() : end]


def _of_section(name: str, operation: str, section: str, gpus: int | None) -> list[CollectiveEntry]:
    counts: list[tuple[int, int]] = []
    listed: dict[int, int] = {}
    named: dict[int, int] = {}
    for line in section.splitlines():
        if (count := _COUNT.match(line)) is not None:
            counts.append((int(count["ranks"]), int(count["operation"])))
        elif (rank := _RANK.match(line)) is not None and counts:
            listed[int(rank["rank"])] = counts[-1][1]
            named[counts[-1][1]] = named.get(counts[-1][1], 0) + 1
        elif counts and line.strip() and not line.startswith(" "):
            break
    everybody = sum(ranks for ranks, _ in counts)
    silent = [launched for ranks, launched in counts if launched not in named]
    if everybody != gpus or everybody > RANKS_MOST or len(silent) > 1:
        return []
    reached = {rank: listed.get(rank, silent[0] if silent else -1) for rank in range(everybody)}
    # What the furthest have launched, the others have not: in it those wait.
    waited = max(reached.values(), default=0)
    return [
        CollectiveEntry(
            rank=rank,
            group=name,
            enqueued=launched,
            completed=max(waited - 1, 0),
            operation=operation if launched == waited else "",
        )
        for rank, launched in reached.items()
        if launched >= 0
    ]


def _gpus(text: str) -> int | None:
    """GPUs of the whole job, by its summary."""
    start = _SUMMARY.search(text)
    match = _TOTAL.search(text, start.end(), start.end() + 2000) if start is not None else None
    return int(match["gpus"]) if match is not None else None
