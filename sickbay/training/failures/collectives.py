"""Where each rank stood in its collectives: by its watchdog's words, an analyzer's text, or a flight recorder's dump.

Used by `folder` and by `culprits`. A dump on disk is a pickle and is never unpickled: `flight_recorder` reads it as
data.
"""

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from sickbay.training.evidence import CollectiveEntry, RankEvidence
from sickbay.training.failures.flight_recorder import UnsafePickleError, plain

_MISSING: Final = re.compile(r"missing ranks: ?[{\[](?P<ranks>[\d, ]+)[}\]]")
_EXPECTED: Final = re.compile(r"expected ranks: ?[{\[](?P<ranks>[\d, ]+)[}\]]")
_SEQUENCE: Final = re.compile(r"sequence number: (?P<seq>\d+)")
_GROUP: Final = re.compile(r"group info: (?P<group>\S+)")
_OPERATION: Final = re.compile(r"collective: (?P<op>\S+)")
ENTRIES_MOST: Final = 20_000


def of_watchdogs(ranks: Iterable[RankEvidence]) -> tuple[CollectiveEntry, ...]:
    """What the watchdogs of ranks said."""
    entries: dict[int, CollectiveEntry] = {}
    for rank in ranks:
        for sign in rank.signs:
            if sign.code not in ("watchdog-timeout", "watchdog-status"):
                continue
            number = sign.details.get("rank", "")
            who = int(number) if number.isdecimal() else rank.rank
            if who is None:
                continue
            known = entries.get(who, CollectiveEntry(rank=who))
            entries[who] = known.model_copy(update=_watchdog(sign.details))
    return tuple(entries[who] for who in sorted(entries))


def of_analysis(text: str) -> tuple[CollectiveEntry, ...]:
    """What PyTorch's flight-recorder analyzer printed of ranks that never joined a collective."""
    missing, expected, sequence = _MISSING.search(text), _EXPECTED.search(text), _SEQUENCE.search(text)
    if missing is None or sequence is None:
        return ()
    absent = _numbers(missing["ranks"])
    everybody = _numbers(expected["ranks"]) if expected else absent
    group, operation = _GROUP.search(text), _OPERATION.search(text)
    seq = int(sequence["seq"][:15])
    common = {
        "group": group["group"] if group else "default",
        "group_rank": tuple(sorted(everybody)),
        "operation": operation["op"] if operation else "",
    }
    return tuple(
        CollectiveEntry(rank=rank, enqueued=seq - 1 if rank in absent else seq, completed=seq - 1, **common)
        for rank in sorted(everybody | absent)
    )


def of_dump(data: bytes, rank: int) -> tuple[CollectiveEntry, ...]:
    """One rank's flight recorder, JSON or pickle; nothing for what is neither."""
    try:
        content = json.loads(data)
    except (ValueError, RecursionError):
        try:
            content = plain(data)
        except UnsafePickleError:
            return ()
    return _of_content(content, rank) if isinstance(content, Mapping) else ()


def _of_content(content: Mapping[Any, Any], rank: int) -> tuple[CollectiveEntry, ...]:
    configs = content.get("pg_config")
    newest: dict[str, dict[str, Any]] = {}
    entries = content.get("entries")
    for entry in entries[:ENTRIES_MOST] if isinstance(entries, list) else ():
        if not isinstance(entry, Mapping):
            continue
        name = entry.get("process_group") or entry.get("pg_name") or entry.get("pg_id", "default")
        group = str(name[0] if isinstance(name, list | tuple) and name else name)
        sequence = entry.get("collective_seq_id") or entry.get("seq_id")
        if isinstance(sequence, int):
            _take(newest.setdefault(group, {}), sequence, entry)
    return tuple(
        CollectiveEntry(rank=rank, group=group, group_rank=_members(configs, group), **values)
        for group, values in sorted(newest.items())
    )


def _take(known: dict[str, Any], sequence: int, entry: Mapping[Any, Any]) -> None:
    state = str(entry.get("state", ""))
    known["enqueued"] = max(sequence, known.get("enqueued", 0))
    if state in ("started", "completed"):
        known["started"] = max(sequence, known.get("started", 0))
    if state == "completed":
        known["completed"] = max(sequence, known.get("completed", 0))
    elif "operation" not in known:
        known["operation"] = str(entry.get("profiling_name", ""))[:100]
        known["size"] = str(entry.get("input_sizes", ""))[:100]


def _members(configs: Any, group: str) -> tuple[int, ...]:
    config = configs.get(group) if isinstance(configs, Mapping) else None
    ranks = config.get("ranks") if isinstance(config, Mapping) else None
    if isinstance(ranks, str):
        return tuple(sorted(_numbers(ranks)))
    return tuple(sorted(rank for rank in ranks if isinstance(rank, int))) if isinstance(ranks, list) else ()


def _watchdog(details: Mapping[str, str]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    if "op" in details:
        values |= {"operation": details["op"], "size": details.get("size", "")}
    if "seq" in details and "op" in details:
        values["started"] = int(details["seq"][:15])
    if "enqueued" in details:
        values["enqueued"] = int(details["enqueued"][:15])
    if "completed" in details:
        values["completed"] = int(details["completed"][:15])
    return values


def _numbers(text: str) -> set[int]:
    return {int(number) for number in re.findall(r"\d{1,7}", text)[:200_000]}
