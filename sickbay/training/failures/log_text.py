"""Reads the logs of ranks: what they say (`Sign`s in order), how far they came, whose lines they are.

Called by `activities.job_evidence` with the end of each pod's log, and by `folder` with whole files. Prefixes of
launchers, colours, progress bars and lines that a terminal broke are normal. It keeps the first sign of each code and
the line that shows it, and no more; a log of any size takes one pass.
"""

import re
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Final

from sickbay.training.evidence import (
    LINE_LENGTH,
    SIGNS_PER_RANK,
    Evidence,
    LogState,
    RankEvidence,
    Sign,
    Source,
)
from sickbay.training.failures.losses import LossSeries
from sickbay.training.failures.patterns import Kind, found_in, kind_of
from sickbay.training.failures.stacks import stacks_in

MARKER: Final = re.compile(r"^###\s+(?P<words>.*)$")
_RANK_WORDS: Final = re.compile(r"\brank\s+(?P<rank>\d+)\b(?:\s*\((?P<node>[\w.:-]+)\))?", re.IGNORECASE)
_NODE_WORDS: Final = re.compile(
    r"^(?:py-spy,?\s+|pod on\s+)?(?P<node>(?:node|worker|ip-|gpu|host)[\w.-]*|[\w-]+\.[\w.-]+)\b"
)
_COLOUR: Final = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_PREFIX: Final = re.compile(
    r"^(?:\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d[\d.,]*Z?:?\s+)?"
    r"(?:\[1,(?P<mpi>\d+)\]<std(?:out|err)>:|\[rank(?P<rank>\d+)\]:|\[default\d+\]:|(?P<number>\d{1,5}): |"
    r"\((?:\w+) pid=\d+(?:, ip=(?P<ip>[\d.]+))?\)\s?)?"
)
_STAMP: Final = re.compile(r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z ")
"""What `kubectl logs --timestamps` puts before each line."""
_INNER_RANK: Final = re.compile(r"^\[rank(?P<rank>\d+)\]:")
_OF_RANK: Final = re.compile(r"Traceback \(most recent call last\): \(RANK (?P<rank>\d+)\)")
_NCCL: Final = re.compile(r"(?:^|\s)(?P<node>[A-Za-z][\w.-]*):\d+:\d+ \[\d+\] ")
_TIME: Final = re.compile(r"(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d:\d\d)")
_STEP: Final = re.compile(
    r"\biteration\s+(\d+)\s*/|\biter(?:ation)?\s*[#:=]?\s*(\d+)\b(?!\s*/\s*s)|\bglobal_step\s*[:=]\s*(\d+)|"
    r"\b[Ss]tep\s*[:=#]?\s*(\d+)\b|\|\s*(\d+)/\d+ \[[^\]]*(?:s/it|it/s)"
)
_TRAINED: Final = re.compile(r"\btrain_step\b|\btrain_batch\b|loss\.backward\(\)|_exec_backward|training_step\(")
_TRAINED_WORDS: Final = re.compile(r"\bloss\b|it/s|s/it|elapsed|toks/s|consumed|grad|Train")
KEPT_ALWAYS: Final = frozenset(
    {"watchdog-timeout", "watchdog-status", "ib-error-12", "ib-error-4", "hca-event", "efa-error", "foreign-gpu-memory"}
)
"""Codes of which every rank's own word counts, and more than one of a rank may."""
REPEATS_KEPT: Final = 4
CLUSTER_SIGNS: Final = 64
SECTIONS_MOST: Final = 4096


class RankReader:
    """Reads the lines of one rank, or of one part of a log."""

    def __init__(self, rank: int | None = None, node: str = "") -> None:
        self.rank, self.node = rank, node
        self.signs: list[Sign] = []
        self.first_step: int | None = None
        self.last_step: int | None = None
        self.losses = LossSeries()
        self.trained = False
        self.lines = 0
        self._seen: dict[str, int] = {}

    def take(self, line: str, at: datetime | None = None) -> None:
        """One line, without its prefix, which may have told its time."""
        line = _STAMP.sub("", line)
        self.lines += 1
        self._take_step(line)
        self.losses.take(line)
        self.trained = self.trained or _TRAINED.search(line) is not None
        nccl = _NCCL.search(line)
        for code, details in found_in(line):
            if len(self.signs) >= SIGNS_PER_RANK:
                return
            most = REPEATS_KEPT if code in KEPT_ALWAYS else 1
            if self._seen.get(code, 0) >= most:
                continue
            self._seen[code] = self._seen.get(code, 0) + 1
            if nccl is not None:
                details.setdefault("node", nccl["node"])
            self.signs.append(
                Sign(code=code, line=line.strip()[:LINE_LENGTH], number=self.lines, at=at, details=details)
            )

    def evidence(self, base: RankEvidence | None = None, *, cut: bool = False) -> RankEvidence:
        """What the rank left, on top of what is known of it."""
        base = base or RankEvidence(rank=self.rank, node=self.node or self._own_node())
        signs = (*base.signs, *self.signs, *self.losses.signs(self.lines))
        state = LogState.CUT if cut else LogState.READ if self.lines else LogState.EMPTY
        return base.model_copy(
            update={"log": state, "signs": signs, "first_step": self.first_step, "last_step": self.last_step}
        )

    def _take_step(self, line: str) -> None:
        match = _STEP.search(line)
        if match is None or not _TRAINED_WORDS.search(line):
            return
        step = int(next(group for group in match.groups() if group is not None)[:12])
        if self.first_step is None:
            self.first_step = step
        self.last_step = max(step, self.last_step or 0)

    def _own_node(self) -> str:
        """The host that NCCL's own lines name, if it is one alone."""
        nodes = {sign.details["node"] for sign in self.signs if "node" in sign.details and _NCCL.search(sign.line)}
        return next(iter(nodes)) if len(nodes) == 1 else ""


def rank_with_log(base: RankEvidence, text: bytes, *, cut: bool = False) -> RankEvidence:
    """A rank with what its log says."""
    reader = RankReader(base.rank, base.node)
    for line in lines_of(text.decode(errors="replace")):
        _, _, bare = unprefixed(line)
        reader.take(bare, _time(line))
    return reader.evidence(base, cut=cut)


def evidence_of_log(text: str) -> Evidence:
    """One log as evidence: parts begin at `### rank N (nodeX)` lines, else at the prefixes that launchers write."""
    readers: dict[tuple[int | None, str, int], RankReader] = {}
    rank, node, part = None, "", 0
    for line in lines_of(text):
        if (marker := MARKER.match(line)) is not None and part < SECTIONS_MOST:
            rank, node = _whose(marker["words"])
            part += 1
            continue
        prefix_rank, ip, bare = unprefixed(line)
        key = (rank if prefix_rank is None else prefix_rank, node or ip, part)
        if key not in readers:
            readers[key] = RankReader(key[0], key[1])
        readers[key].take(bare, _time(line))
    ranks = [reader.evidence() for reader in readers.values() if reader.lines]
    steps = [each.last_step for each in ranks if each.last_step is not None]
    stepped = bool(steps and max(steps) > 0) or any(reader.trained for reader in readers.values())
    return Evidence(
        ranks=tuple(_merged(ranks)),
        stacks=stacks_in(text),
        stepped=stepped,
        last_step=max(steps, default=None),
    )


def cluster_signs(lines: Iterable[str]) -> tuple[Sign, ...]:
    """What events of the cluster say."""
    signs: list[Sign] = []
    for number, line in enumerate(lines, start=1):
        for code, details in found_in(line):
            if kind_of(code) is not Kind.CONTEXT and not any(sign.code == code for sign in signs):
                signs.append(
                    Sign(
                        code=code,
                        source=Source.CLUSTER_EVENT,
                        line=line.strip()[:LINE_LENGTH],
                        number=number,
                        details=details,
                    )
                )
    return tuple(signs[:CLUSTER_SIGNS])


def lines_of(text: str) -> Iterator[str]:
    """Lines, each progress bar one of its own, and those that a terminal broke within a collective joined again."""
    pending = ""
    for raw in re.split(r"[\r\n]+", text):
        line = _COLOUR.sub("", raw)
        if pending:
            line, pending = pending + line, ""
        if "WorkNCCL(" in line and "Timeout(ms)" not in line and len(line) < 4000:
            pending = line
            continue
        yield line
    if pending:
        yield pending


def unprefixed(line: str) -> tuple[int | None, str, str]:
    """Rank and address that a launcher put before the line, and the line without them."""
    match = _PREFIX.match(line)
    if match is None:
        return None, "", line
    rank = match["mpi"] or match["rank"] or match["number"]
    bare = line[match.end() :] if rank is not None or match["ip"] else line
    inner = _INNER_RANK.match(bare.lstrip())
    if inner is not None:
        rank, bare = inner["rank"], bare.lstrip()[inner.end() :]
    of_rank = _OF_RANK.search(line)
    if of_rank is not None:
        rank = of_rank["rank"]
    return (int(rank) if rank is not None else None), match["ip"] or "", bare


def _whose(words: str) -> tuple[int | None, str]:
    """Rank and node that a marker names."""
    if (match := _RANK_WORDS.search(words)) is not None:
        return int(match["rank"][:9]), match["node"] or ""
    match = _NODE_WORDS.match(words.strip())
    return None, match["node"] if match is not None else ""


def _merged(ranks: list[RankEvidence]) -> list[RankEvidence]:
    """Parts of one rank as one; parts without a rank stay apart."""
    merged: dict[tuple[int, str], RankEvidence] = {}
    others = []
    for each in ranks:
        if each.rank is None:
            others.append(each)
            continue
        key = (each.rank, each.node)
        known = merged.get(key)
        merged[key] = each if known is None else known.model_copy(update={"signs": (*known.signs, *each.signs)})
    return [*others, *merged.values()]


def _time(line: str) -> datetime | None:
    match = _TIME.search(line)
    if match is None:
        return None
    try:
        return datetime.fromisoformat(f"{match[1]}T{match[2]}").replace(tzinfo=UTC)
    except ValueError:
        return None
