"""PyTorch's flight recorder: what one rank enqueued, started and completed in each of its process groups.

Used by `folder`. A dump on disk (`nccl_trace_rank_N`) is a pickle and is never unpickled: `plain_pickle` reads it as
data; the same as JSON is what `_dump_nccl_trace_json` gives, and `fr_trace -j` prints. The names of keys, states and
files are those of FlightRecorder.hpp and ProcessGroupNCCL.cpp (dump versions 1.5 to 2.10). The recorder is a ring, and
its statuses stand beside it: a group whose entries were overwritten is still told of by its status.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from sickbay.training.evidence import CollectiveEntry
from sickbay.training.failures.plain_pickle import UnsafePickleError, plain

ENTRIES_MOST: Final = 50_000
"""Entries of one dump that are looked at, the newest."""
GROUPS_MOST: Final = 256
MEMBERS_MOST: Final = 200_000
LARGEST: Final = 128 << 20
"""Bytes of a dump as JSON; with stacks it is some times larger than the pickle."""
DEFAULT_GROUP: Final = "default_pg"

_NUMBER: Final = re.compile(r"\d{1,7}")


def of_dump(data: bytes, rank: int) -> tuple[CollectiveEntry, ...] | None:
    """Where one rank stood in each group, by its dump, JSON or pickle. None for what is no dump, or cannot be read.

    An empty tuple is a dump without any collective: that rank is alive, and recorded nothing.
    """
    content = _content(data)
    if not isinstance(content, Mapping) or not any(key in content for key in ("entries", "pg_config", "pg_status")):
        return None
    return tuple(_entry(rank, group) for group in _groups(content))


@dataclass
class _Group:
    """What a dump tells of one group."""

    name: str
    members: tuple[int, ...] = ()
    enqueued: int | None = None
    started: int | None = None
    completed: int | None = None
    first_open: tuple[int, str, str] | None = None
    """Sequence number, operation and sizes of the oldest collective that is not completed."""

    def take(self, sequence: int, state: str, operation: str, size: str) -> None:
        """One recorded collective."""
        self.enqueued = max(sequence, self.enqueued or 0)
        if state in ("started", "completed"):
            self.started = max(sequence, self.started or 0)
        if state == "completed":
            self.completed = max(sequence, self.completed or 0)
        elif self.first_open is None or sequence < self.first_open[0]:
            self.first_open = (sequence, operation, size)


def _content(data: bytes) -> Any:
    if len(data) > LARGEST:
        return None
    if data[:1] in (b"{", b"[") or data[:1].isspace():
        try:
            return json.loads(data)
        except (ValueError, RecursionError):
            return None
    try:
        return plain(data)
    except UnsafePickleError:
        return None


def _groups(content: Mapping[Any, Any]) -> list[_Group]:
    """By the group's own name (its number), which is the same on all its ranks; the words beside it are not."""
    configs = content.get("pg_config")
    groups: dict[str, _Group] = {}
    by_id: dict[str, _Group] = {}
    entries = content.get("entries")
    for entry in entries[-ENTRIES_MOST:] if isinstance(entries, list) else ():
        if not isinstance(entry, Mapping):
            continue
        key, words = _name(entry)
        group = groups.get(key)
        if group is None:
            if len(groups) >= GROUPS_MOST:
                continue
            group = groups[key] = _new(key, words, configs)
        by_id[_text(entry.get("pg_id"))] = group
        sequence = _whole(entry.get("collective_seq_id", entry.get("seq_id")))
        # Point-to-point operations are counted apart, and wait for one peer only.
        if sequence is not None and entry.get("is_p2p") is not True:
            group.take(sequence, _text(entry.get("state")), _text(entry.get("profiling_name")), _sizes(entry))
    _take_statuses(content.get("pg_status"), groups, by_id, configs)
    return [groups[key] for key in sorted(groups)]


def _take_statuses(statuses: Any, groups: dict[str, _Group], by_id: dict[str, _Group], configs: Any) -> None:
    """The recorder's own counters, which outlive overwritten entries; -1 or absent where nothing happened yet."""
    for number, status in list(statuses.items())[:GROUPS_MOST] if isinstance(statuses, Mapping) else ():
        if not isinstance(status, Mapping):
            continue
        group = by_id.get(str(number)) or groups.get(str(number))
        if group is None:
            group = groups.setdefault(str(number), _new(str(number), "", configs))
        for field in ("enqueued", "started", "completed"):
            told = _whole(status.get(f"last_{field}_collective"))
            if told is not None:
                known = getattr(group, field)
                setattr(group, field, told if known is None else max(told, known))


def _entry(rank: int, group: _Group) -> CollectiveEntry:
    operation, size = (group.first_open[1], group.first_open[2]) if group.first_open else ("", "")
    if group.first_open is not None and group.completed is not None and group.first_open[0] <= group.completed:
        operation, size = "", ""
    return CollectiveEntry(
        rank=rank,
        group=group.name,
        group_rank=group.members,
        enqueued=group.enqueued,
        started=group.started,
        completed=group.completed,
        operation=operation.removeprefix("nccl:"),
        size=size,
    )


def _name(entry: Mapping[Any, Any]) -> tuple[str, str]:
    """A group's own name and its words; older dumps have one of the two, or the number alone."""
    found = entry.get("process_group", entry.get("pg_name"))
    if isinstance(found, list | tuple) and found:
        return _text(found[0]), _text(found[1]) if len(found) > 1 else ""
    return _text(found if found is not None else entry.get("pg_id", "0")), ""


def _new(key: str, words: str, configs: Any) -> _Group:
    config = configs.get(key) if isinstance(configs, Mapping) else None
    config = config if isinstance(config, Mapping) else {}
    words = words or _text(config.get("desc"))
    if words in (DEFAULT_GROUP, "") and key in ("0", ""):
        name = DEFAULT_GROUP
    else:
        name = f"{words} {key}".strip() if words and words != "undefined" else key
    return _Group(name=name, members=_members(config.get("ranks")))


def _members(ranks: Any) -> tuple[int, ...]:
    """`[0, 1, 2]`, as a list or in words; empty for the default group of some versions."""
    if isinstance(ranks, str):
        numbers: Iterator[int] = (int(match[0]) for match in _NUMBER.finditer(ranks))
    elif isinstance(ranks, list | tuple):
        numbers = (rank for rank in ranks if _whole(rank) is not None)
    else:
        return ()
    return tuple(sorted({number for number, _ in zip(numbers, range(MEMBERS_MOST), strict=False)}))


def _sizes(entry: Mapping[Any, Any]) -> str:
    """`[[1024, 8]]` as words, however deep or long the dump makes it."""
    words = []
    sizes = entry.get("input_sizes")
    for size in sizes[:8] if isinstance(sizes, list | tuple) else ():
        parts = size[:8] if isinstance(size, list | tuple) else [size]
        words.append("x".join(_text(part)[:12] for part in parts))
    return ", ".join(words)[:100]


def _whole(value: Any) -> int | None:
    """A sequence number, also as a word, as the JSON form has its counters; None for -1 and for what is none."""
    if isinstance(value, str) and value.isdecimal() and len(value) < 16:
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63 else None


def _text(value: Any) -> str:
    return str(value)[:100] if isinstance(value, str | int) else ""
