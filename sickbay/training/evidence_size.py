"""Keeps an attempt's evidence small enough for a workflow's history, however many ranks it had.

Called by `activities.job_evidence`. Temporal takes 2 MiB in one payload and warns from 256 KiB on (facts: temporal).
Lines are shortened first, then the later signs of each rank go: a cause stands before its consequences. What was cut
is told in `missing`, since what it said is unknown and not absent.
"""

from typing import Final

from sickbay.training.evidence import Evidence, RankEvidence

LARGEST: Final = 1 << 20
"""Bytes of JSON."""
RANKS_MOST: Final = 2048
STEPS: Final = ((160, 24), (120, 12), (80, 6), (60, 3), (40, 1))
"""Characters of a line and signs of a rank, tried in turn."""


def fitted(evidence: Evidence, most: int = LARGEST) -> Evidence:
    """The evidence, cut as little as makes it fit; ranks go last, those at the end first."""
    if len(evidence.ranks) > RANKS_MOST:
        evidence = _fewer(evidence, RANKS_MOST)
    if _size(evidence) <= most:
        return evidence
    told = (*evidence.missing, "words of logs: shortened, since there were too many for one record")
    for characters, signs in STEPS:
        ranks = tuple(_shortened(rank, characters, signs) for rank in evidence.ranks)
        stacks = evidence.stacks[: 2 * signs]
        cut = evidence.model_copy(update={"ranks": ranks, "stacks": stacks, "missing": told})
        if _size(cut) <= most:
            return cut
    while cut.ranks and _size(cut) > most:
        cut = _fewer(cut, len(cut.ranks) // 2)
    return cut


def _fewer(evidence: Evidence, kept: int) -> Evidence:
    told = (*evidence.missing, f"ranks: {len(evidence.ranks) - kept} are left out, since there are too many")
    return evidence.model_copy(
        update={"ranks": evidence.ranks[:kept], "collectives": evidence.collectives[:kept], "missing": told}
    )


def _size(evidence: Evidence) -> int:
    return len(evidence.model_dump_json())


def _shortened(rank: RankEvidence, characters: int, signs: int) -> RankEvidence:
    short = tuple(
        sign.model_copy(update={"line": sign.line[:characters], "details": _short(sign.details, characters)})
        for sign in rank.signs[:signs]
    )
    end = rank.end and rank.end.model_copy(
        update={"message": rank.end.message[:characters], "conditions": _short(rank.end.conditions, characters)}
    )
    return rank.model_copy(update={"signs": short, "end": end})


def _short(words: dict[str, str], characters: int) -> dict[str, str]:
    return {name: value[:characters] for name, value in words.items()}
