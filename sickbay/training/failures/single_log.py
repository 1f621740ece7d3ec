"""What a single log needs before its words count: people's comments go, and so do words that its own records refute.

Used by `folder`.
"""

import re
from collections.abc import Iterable
from typing import Final

from sickbay.training.evidence import RankEvidence, Sign
from sickbay.training.failures.patterns import Kind, kind_of
from sickbay.training.failures.pod_states import DISRUPTIONS, TERMINAL
from sickbay.training.failures.pod_texts import PodRecord

_COMMENTS: Final = re.compile(r"\A(?:# [^\n]*(?:\n|\Z))+")


def without_comments(text: str) -> str:
    """The text without the comments at its head."""
    return _COMMENTS.sub("", text)


def without_stale(ranks: Iterable[RankEvidence], pods: Iterable[PodRecord]) -> tuple[RankEvidence, ...]:
    """Ranks without the words of a DisruptionTarget whose pod goes on running: it was announced, and never came."""
    stale, due = set[str](), set[str]()
    for pod in pods:
        over = pod.end.phase in TERMINAL or pod.end.deleting or not pod.end.phase
        for name in DISRUPTIONS:
            reason = pod.end.conditions.get(name, "").partition(":")[0]
            if reason:
                (due if over else stale).add(reason)
    stale -= due
    if not stale:
        return tuple(ranks)
    return tuple(
        rank.model_copy(update={"signs": tuple(sign for sign in rank.signs if not _says(sign, stale))})
        for rank in ranks
    )


def _says(sign: Sign, reasons: set[str]) -> bool:
    return kind_of(sign.code) in (Kind.DISRUPTION, Kind.PLATFORM) and any(reason in sign.line for reason in reasons)
