"""Where each rank stood in its collectives: by its watchdog's words, or by an analyzer's text.

Used by `folder`, for `culprits`. The dumps themselves are `flight_recorder`'s, and NCCL's own report is `ras`'s.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from sickbay.training.evidence import CollectiveEntry, RankEvidence, Sign
from sickbay.training.failures.ras import of_ras

_BLOCK: Final = re.compile(
    r"(?P<missing>Not all ranks joining collective[,:])? ?[Ss]equence number: ?(?P<seq>\d{1,15})"
)
_LINES: Final = {
    "group": re.compile(r"^\W*group info: (?P<value>\S.*)$", re.MULTILINE),
    "operation": re.compile(r"^\W*collective: (?P<value>\S+)", re.MULTILINE),
    "missing": re.compile(r"missing ranks: ?[{\[](?P<value>[\d, ]+)[}\]]"),
    "expected": re.compile(r"expected ranks: ?[{\[](?P<value>[\d, ]+)[}\]]"),
    "errors": re.compile(r"error msg: (?P<value>.*)"),
}
_CULPRIT: Final = re.compile(r"Culprit rank (?P<rank>\d{1,7}); Error type: (?P<error>\w+)")
_DIFFERS: Final = ("COLLECTIVE_TYPE_MISMATCH", "SIZE_OR_SYNTAX_MISMATCH", "COLLECTIVE_DTYPE_MISMATCH")
BLOCKS_MOST: Final = 256
BLOCK_LENGTH: Final = 200_000
RANKS_MOST: Final = 200_000


def collectives_in(text: str, ranks: Iterable[RankEvidence] = ()) -> tuple[CollectiveEntry, ...]:
    """All that some text tells of collectives: an analyzer's output, NCCL's report, else the ranks' watchdogs."""
    return of_analysis(text) or of_ras(text) or of_watchdogs(ranks)


def of_watchdogs(ranks: Iterable[RankEvidence]) -> tuple[CollectiveEntry, ...]:
    """What the watchdogs of ranks said, by rank and group.

    The line of a timeout names no group; the status line of the same sequence number, which follows it, does.
    """
    entries: dict[tuple[int, str], CollectiveEntry] = {}
    for rank in ranks:
        signs = [sign for sign in rank.signs if sign.code in ("watchdog-timeout", "watchdog-status")]
        groups = {sign.details.get("seq", ""): _group(sign) for sign in signs if _group(sign)}
        for sign in signs:
            number = sign.details.get("rank", "")
            who = int(number[:7]) if number.isdecimal() else rank.rank
            if who is None:
                continue
            group = _group(sign) or groups.get(sign.details.get("seq", ""), "default")
            known = entries.get((who, group), CollectiveEntry(rank=who, group=group))
            entries[who, group] = known.model_copy(update=_watchdog(sign.details))
    return tuple(entries[key] for key in sorted(entries))


def of_analysis(text: str) -> tuple[CollectiveEntry, ...]:
    """What PyTorch's `fr_trace` printed: ranks that never joined a collective, and ranks that called another one."""
    starts = [match for match, _ in zip(_BLOCK.finditer(text), range(BLOCKS_MOST), strict=False)]
    found: list[CollectiveEntry] = []
    ends = [*(match.start() for match in starts[1:]), len(text)]
    for match, end in zip(starts, ends, strict=False):
        found += _of_block(int(match["seq"]), text[match.start() : min(end, match.start() + BLOCK_LENGTH)])
    return tuple(found)


def _of_block(sequence: int, block: str) -> Iterator[CollectiveEntry]:
    told = {name: match["value"] for name, regex in _LINES.items() if (match := regex.search(block)) is not None}
    absent, expected = _numbers(told.get("missing", "")), _numbers(told.get("expected", ""))
    differing = {
        int(each["rank"]): each["error"]
        for each in _CULPRIT.finditer(told.get("errors", ""))
        if each["error"] in _DIFFERS
    }
    if not absent and not differing:
        return
    everybody = expected | absent | set(differing)
    operation = told.get("operation", "").removeprefix("nccl:")
    for rank in sorted(everybody):
        reached = sequence - 1 if rank in absent else sequence
        yield CollectiveEntry(
            rank=rank,
            group=told.get("group", "default").strip(),
            group_rank=tuple(sorted(expected)),
            enqueued=reached,
            completed=max(sequence - 1, 0),
            operation=f"{operation} otherwise ({differing[rank]})" if rank in differing else operation,
        )


def _group(sign: Sign) -> str:
    """`0 (default_pg)`, `5`: the number, with its words where they tell more."""
    name, words = sign.details.get("group", ""), sign.details.get("group_words", "")
    if words in ("default_pg", "undefined", ""):
        return "default" if words == "default_pg" else name
    return f"{words} {name}".strip()


def _watchdog(details: Mapping[str, str]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    if "op" in details:
        values |= {"operation": details["op"], "size": details.get("size", "")}
    if "seq" in details and "op" in details:
        values["started"] = int(details["seq"][:15])
    for name in ("enqueued", "completed"):
        if name in details:
            values[name] = int(details[name][:15])
    return values


def _numbers(text: str) -> set[int]:
    return {int(match[0]) for match, _ in zip(re.finditer(r"\d{1,7}", text), range(RANKS_MOST), strict=False)}
