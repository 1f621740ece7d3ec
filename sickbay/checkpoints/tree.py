"""The files of a job's checkpoints as one listing showed them, and what a format wants to read of them.

Made by `activities.checkpoint_stores` of a folder or a bucket; the formats beside this module see no difference.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Protocol

from sickbay.checkpoints.model import Checkpoint, CheckpointFormat, Level

NUMBER: Final = re.compile(r"(\d+)(?!.*\d)")
TEMPORARY: Final = re.compile(
    r"(^|[/._-])(tmp|temp|partial|incomplete|staging)([/._-]|$)|\.orbax-checkpoint-tmp|(^|/)\.|~$", re.I
)
"""Names that writers give to what is not finished."""
HEAD: Final = 1 << 20
SMALL: Final = 256 << 20
"""Bytes of the largest file that is read whole, such as the metadata of a distributed checkpoint."""
PROBLEMS_TOLD: Final = 20
"""Of one checkpoint; a folder of ten thousand missing files needs no more."""
PROBLEM_LENGTH: Final = 400
"""Characters of one problem: it quotes names and contents of others."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One file. No model: a hundred thousand of them are held at once."""

    path: str
    """Below the root, with `/`."""
    size: int
    modified: datetime | None = None


@dataclass(frozen=True, slots=True)
class Want:
    """What to read of a file: all of it, its first bytes, its last, or both in one."""

    path: str
    first: int = 0
    last: int = 0

    @property
    def whole(self) -> bool:
        """Whether all of it is wanted."""
        return not self.first and not self.last


@dataclass(frozen=True, slots=True)
class Candidate:
    """What may be a checkpoint."""

    step: int | None
    """None where only its content tells."""
    path: str
    """Folder or file below the root."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """What a candidate's files say of it."""

    level: Level
    problems: tuple[str, ...] = ()
    step: int | None = None
    """Where the content tells it."""
    attempt: int | None = None


Contents = Mapping[str, bytes]
"""What was read, by path. A file that could not be read is not in it, and its checkpoint is unknown (`survey`)."""


class Tree:
    """All files below a root."""

    def __init__(self, entries: Iterable[Entry], name: str = "") -> None:
        """`name` is the root's own."""
        self.name = name
        self.files: dict[str, Entry] = {}
        self._by_folder: dict[str, dict[str, Entry]] = {}
        self._last: tuple[str, dict[str, Entry]] = ("", {})
        for entry in entries:
            self.files[entry.path] = entry
            folder, separator, _ = entry.path.partition("/")
            if separator:
                self._by_folder.setdefault(folder, {})[entry.path] = entry

    def under(self, folder: str) -> dict[str, Entry]:
        """Files below a folder, by their path inside of it."""
        if self._last[0] != folder:
            prefix = folder + "/"
            near = self._by_folder.get(folder.partition("/")[0], {})
            inside = {path[len(prefix) :]: entry for path, entry in near.items() if path.startswith(prefix)}
            self._last = (folder, inside)
        return self._last[1]

    def folders(self) -> tuple[str, ...]:
        """Folders right below the root, sorted."""
        return tuple(sorted(self._by_folder))

    def size(self, path: str) -> int | None:
        """The size of a file; None if there is none."""
        entry = self.files.get(path)
        return entry.size if entry is not None else None

    def inside_its_parent(self) -> "Tree":
        """The same files as the parent's only folder: where the root itself is one checkpoint."""
        moved = (Entry(f"{self.name}/{entry.path}", entry.size, entry.modified) for entry in self.files.values())
        return Tree(moved)


class Format(Protocol):
    """How one library lays its checkpoints out."""

    format: CheckpointFormat
    pointer: str
    """A file at the root that names the newest checkpoint; empty if the library has none."""

    def matches(self, tree: Tree) -> bool:
        """Whether the files look like this library's."""
        ...

    def candidates(self, tree: Tree) -> Iterator[Candidate]:
        """What may be checkpoints."""
        ...

    def wanted(self, tree: Tree, candidate: Candidate) -> tuple[Want, ...]:
        """What must be read to judge one, each file once. The pointer is read without."""
        ...

    def judge(self, tree: Tree, candidate: Candidate, contents: Contents) -> Judgement:
        """How much is known of it, and what is wrong, by the files and what could be read of them."""
        ...


def step_in(name: str) -> int | None:
    """The last number in a name, compared as a number: iter_10 comes after iter_9."""
    match = NUMBER.search(name)
    return int(match.group(1)[:15]) if match is not None else None


def numbered(tree: Tree, pattern: re.Pattern[str]) -> Iterator[Candidate]:
    """Folders right below the root whose whole name the pattern matches, by its group `step`."""
    for folder in tree.folders():
        match = pattern.fullmatch(folder)
        if match is not None and not TEMPORARY.search(folder):
            yield Candidate(step=int(match["step"][:15]), path=folder)


def missing(files: Mapping[str, Entry], names: Iterable[str]) -> list[str]:
    """Problems for files that are not there, or are empty."""
    problems = []
    for name in names:
        entry = files.get(name)
        if entry is None:
            problems.append(f"{name} is missing")
        elif entry.size == 0:
            problems.append(f"{name} is empty")
    return problems


def inside(contents: Contents, folder: str) -> dict[str, bytes]:
    """What was read below a folder, by its path inside of it."""
    prefix = folder + "/"
    return {path[len(prefix) :]: data for path, data in contents.items() if path.startswith(prefix)}


def text(data: bytes | None) -> str | None:
    """The one line of a pointer file; None if it could not be read."""
    return None if data is None else data[:200].decode(errors="replace").strip().strip("\0")


def json_in(data: bytes | None) -> Any:
    """What the JSON holds; None if there is none."""
    try:
        return json.loads(data) if data is not None else None
    except (ValueError, RecursionError):
        return None


def checkpoint(
    tree: Tree, candidate: Candidate, kind: CheckpointFormat, judged: Judgement, root: str, attempt: int | None
) -> Checkpoint:
    """A judged candidate as others see it; `root` is the URL of the tree's root."""
    own = tree.files.get(candidate.path)
    files = [own] if own is not None else list(tree.under(candidate.path).values())
    step = judged.step if judged.step is not None else candidate.step
    assert step is not None
    return Checkpoint(
        step=step,
        path=_written(f"{root.rstrip('/')}/{candidate.path}"),
        format=kind,
        level=judged.level,
        problems=tuple(_written(words[:PROBLEM_LENGTH]) for words in judged.problems[:PROBLEMS_TOLD]),
        attempt=judged.attempt if attempt is None else attempt,
        written_at=max((entry.modified for entry in files if entry.modified is not None), default=None),
        bytes=sum(entry.size for entry in files),
    )


def _written(words: str) -> str:
    """Text that can be written anywhere: names of files may hold bytes that are no text."""
    return words.encode(errors="replace").decode()
