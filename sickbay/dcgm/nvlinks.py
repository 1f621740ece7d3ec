"""Reads and judges `dcgmi nvlink -s` (states of all links) and `dcgmi nvlink -e` (error counts of one GPU's links).

Called by `sickbay.dcgm.recorded`; the agent itself reads links through NVML. Counts are totals since the driver was
loaded: they tell that errors happened, and not when. A link that is down is a fault only beside links that are up: a
PCIe card without a bridge has none that could be up (NVSentinel#1481).
"""

import re
from collections.abc import Iterator
from typing import Final

from sickbay.checks import CheckOutcome, healthy, judged, starting, unknown
from sickbay.dcgm.diagnostic import Entity, gpu
from sickbay.dcgm.documents import documents, entries, items, member, words
from sickbay.dcgm.reported import reported_fault
from sickbay.dcgm.tables import read_table
from sickbay.faults import ComponentKind, Fault
from sickbay.gpu_readings.products import Topology, product_of
from sickbay.model import Frozen
from sickbay.recorded.model import RecordedContext

_COUNTS: Final = "NVLINK Error Counts"
_STATES: Final = "NvLink Link Status"
_KEY: Final = "Key:"
_OWNER: Final = re.compile(
    r"^\s*(?P<kind>gpuId|physicalId|switchId|nvSwitchId)\s+(?P<number>\d{1,4})\s*:\s*$", re.IGNORECASE
)
_LETTERS: Final = re.compile(r"^\s*\S(?:\s+\S)*\s*$")
_COUNTERS: Final = frozenset(("CRC FLIT Error", "CRC Data Error", "Replay Error", "Recovery Error"))
_JOINED: Final = frozenset((Topology.BOARD, Topology.RACK))
_UP, _DOWN, _DISABLED, _NONE = "U", "D", "X", "_"


class _Part(Frozen):
    """The links of one GPU or switch, a letter each."""

    entity: Entity
    letters: str = ""

    def links(self, letter: str) -> tuple[int, ...]:
        """Numbers of the links in this state."""
        return tuple(number for number, found in enumerate(self.letters) if found == letter)


def judge_nvlinks(text: str, context: RecordedContext) -> CheckOutcome | None:
    """What the text says of links; None if it is none of the two outputs. Raises nothing."""
    if _COUNTS in text:
        return _judge_counts(text, context)
    parts = tuple(_parts(text))
    if parts or _STATES in text:
        return _judge_states(text, parts, context)
    return None


def _parts(text: str) -> Iterator[_Part]:
    part: _Part | None = None
    for line in text.split("\n"):
        if owner := _OWNER.match(line):
            if part:
                yield part
            kind = ComponentKind.GPU if owner["kind"].lower() == "gpuid" else ComponentKind.NVSWITCH
            part = _Part(entity=Entity(kind=kind, number=int(owner["number"])))
        elif part and _LETTERS.match(line):
            part = part.model_copy(update={"letters": part.letters + "".join(line.split())})
    if part:
        yield part


def _judge_states(text: str, parts: tuple[_Part, ...], context: RecordedContext) -> CheckOutcome:
    gpus = [part for part in parts if part.entity.kind is ComponentKind.GPU]
    unjudged = list(_unjudged_states(text, parts, gpus, context))
    known = {product_of(name).topology for name in context.products} - {Topology.UNKNOWN}
    somewhere_up = any(part.links(_UP) for part in gpus)
    if not somewhere_up and any(part.links(_DOWN) or part.links(_DISABLED) for part in gpus):
        if context.fabric_in_progress:
            return starting("no NVLink is up yet: the fabric is being set up")
        if not known:
            return unknown("no NVLink of any GPU is up: there are no bridges, or the whole fabric is down")
    bare = [part for part in gpus if known and not known & _JOINED and not part.links(_UP)]
    found = [fault for part in parts if part not in bare for fault in _faults_of_states(part)]
    outcome = judged(found, "; ".join(unjudged))
    if outcome.why or found:
        return outcome
    numbers = ", ".join(str(part.entity.number) for part in bare)
    return healthy(f"no NVLink bridge on GPU {numbers}" if bare else "")


def _unjudged_states(text: str, parts: tuple[_Part, ...], gpus: list[_Part], context: RecordedContext) -> Iterator[str]:
    if _STATES not in text or _KEY not in text:
        yield "the listing has lost its beginning or its end"
    if sum(bool(_LETTERS.match(line)) for line in text.split("\n")) > len(parts):
        yield "a list of links has lost its GPU"
    strange = sorted({letter for part in parts for letter in part.letters} - {_UP, _DOWN, _DISABLED, _NONE})
    if strange:
        yield f"links are in states that are not known: {' '.join(strange)[:40]}"
    if not gpus or any(not part.letters for part in gpus):
        yield "a GPU has no list of links"
    elif len({len(part.letters) for part in gpus}) > 1:
        yield "some GPUs have fewer links listed than others"
    if context.expected_gpus is not None and len(gpus) < context.expected_gpus:
        yield f"it shows {len(gpus)} of {context.expected_gpus} GPUs"


def _faults_of_states(part: _Part) -> Iterator[Fault]:
    on_gpu = part.entity.kind is ComponentKind.GPU
    for letter, word, code in ((_DOWN, "down", "nvlink-down"), (_DISABLED, "disabled", "dcgm-nvlink-disabled")):
        links = part.links(letter)
        if links and (on_gpu or letter == _DOWN):
            # A switch may have ports that nothing is plugged to: one that is down is told, and condemns nothing.
            numbers = ", ".join(map(str, links))
            evidence = f"dcgmi nvlink: {len(links)} of {part.entity.words}'s links {word}: {numbers}"
            yield reported_fault(code if on_gpu else "dcgm-advice", part.entity, evidence)


class _Link(Frozen):
    """The counters of one link, as they stand."""

    name: str
    counters: tuple[tuple[str, str], ...]


class _Counts(Frozen):
    """One GPU's links."""

    entity: Entity | None
    links: tuple[_Link, ...]
    trouble: str = ""


def _judge_counts(text: str, context: RecordedContext) -> CheckOutcome:
    listings = (*_counts_of_json(text), *_counts_of_tables(text))
    found = [fault for counts in listings for fault in _faults_of_counts(counts)]
    unjudged = [words for counts in listings for words in _unjudged_counts(counts)]
    if len(listings) != text.count(_COUNTS):
        unjudged.append("a part of the listing cannot be read")
    shown = len({counts.entity for counts in listings})
    if context.expected_gpus is not None and shown < context.expected_gpus:
        unjudged.append(f"it shows {shown} of {context.expected_gpus} GPUs")
    outcome = judged(found, "; ".join(unjudged))
    if outcome.why or found:
        return outcome
    numbers = ", ".join(counts.entity.words if counts.entity else "an unnamed GPU" for counts in listings)
    return healthy(f"of {numbers} alone: each GPU is a call of its own")


def _counts_of_json(text: str) -> Iterator[_Counts]:
    for document in documents(text):
        titles = [words(title) for title in items(document.content.get("header"))]
        if _COUNTS not in titles:
            continue
        links = tuple(
            _Link(
                name=name,
                counters=tuple((key, words(member(said, "value"))) for key, said in entries(member(link, "children"))),
            )
            for name, link in entries(document.content.get("body"))
        )
        yield _Counts(entity=_owner(titles), links=links)


def _counts_of_tables(text: str) -> Iterator[_Counts]:
    """Each table begins at its title; the border above it ends the one before."""
    for piece in re.split(rf"(?=^\s*\|\s*{_COUNTS})", text, flags=re.MULTILINE):
        table = read_table(piece)
        if table is None or _COUNTS not in table.titles:
            continue
        links: list[_Link] = []
        for row in table.rows:
            if not row.name.startswith("->"):
                links.append(_Link(name=row.name, counters=()))
            elif links:
                counter = (row.name.lstrip("-> "), row.value.strip())
                links[-1] = links[-1].model_copy(update={"counters": (*links[-1].counters, counter)})
        trouble = "" if table.closed else "the table is cut"
        yield _Counts(entity=_owner(table.titles), links=tuple(links), trouble=trouble)


def _owner(titles: tuple[str, ...] | list[str]) -> Entity | None:
    found = next((match for title in titles if (match := re.match(r"^GPU (\d{1,4})$", title))), None)
    return gpu(int(found[1])) if found else None


def _faults_of_counts(counts: _Counts) -> Iterator[Fault]:
    errors = [
        f"{link.name}: {int(value)} {name}s"
        for link in counts.links
        for name, value in link.counters
        if _is_count(value) and int(value) > 0
    ]
    if errors:
        whose = counts.entity.words if counts.entity else "an unnamed GPU"
        evidence = f"dcgmi nvlink: {whose}: {'; '.join(errors)}"[:400]
        yield reported_fault("dcgm-nvlink-counts", counts.entity, evidence)


def _unjudged_counts(counts: _Counts) -> Iterator[str]:
    if counts.trouble:
        yield counts.trouble
    if not counts.links:
        yield "no link is listed"
    for link in counts.links:
        if not {name for name, _ in link.counters} >= _COUNTERS:
            yield f"{link.name} lacks counters"
        unread = [name for name, value in link.counters if not _is_count(value)]
        if unread:
            yield f"{link.name} has no count of {', '.join(unread)}"


def _is_count(value: str) -> bool:
    """Eighteen digits at most: DCGM's blanks, which stand for a reading that is not there, have nineteen."""
    return value.isascii() and value.isdigit() and len(value) < 19
