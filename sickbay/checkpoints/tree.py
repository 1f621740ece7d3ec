"""The files of a job's checkpoints as one listing showed them, and what a format wants to read of them.

Made by `activities.checkpoint_stores` of a folder or a bucket; the formats beside this module see no difference.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, Protocol

from pydantic import AwareDatetime

from sickbay.checkpoints.model import Checkpoint, CheckpointFormat, Level
from sickbay.model import Frozen

NUMBER: Final = re.compile(r"(\d+)(?!.*\d)")
TEMPORARY: Final = re.compile(
    r"(^|[/._-])(tmp|temp|partial|incomplete|staging)([/._-]|$)|\.orbax-checkpoint-tmp|^\.|~$", re.I
)
"""Names that writers give to what is not finished."""
TAIL: Final = 66_000
"""Bytes of a zip's end: its directory's end stands within them."""
HEAD: Final = 1 << 20
SMALL: Final = 256 << 20
"""Largest file that is read whole, such as the metadata of a distributed checkpoint."""


class Entry(Frozen):
    """One file."""

    path: str
    """Below the root, with `/`."""
    size: int
    modified: AwareDatetime | None = None


class Want(Frozen):
    """What to read of a file: all of it, its first or its last bytes."""

    path: str
    first: int = 0
    last: int = 0


class Candidate(Frozen):
    """What may be a checkpoint."""

    step: int
    path: str
    """Folder or file below the root; empty for the root itself."""
    format: CheckpointFormat


Contents = Mapping[str, bytes]
"""What was read, by path. A file that could not be read is not in it."""


class Tree:
    """All files below a root."""

    def __init__(self, entries: Iterable[Entry], name: str = "") -> None:
        """`name` is the root's own, whose number is the step where the root itself is a checkpoint."""
        self.files = {entry.path: entry for entry in entries}
        self.name = name

    def under(self, folder: str) -> dict[str, Entry]:
        """Files below a folder, by their path inside of it; all files for the root."""
        if not folder:
            return self.files
        prefix = folder + "/"
        return {path[len(prefix) :]: entry for path, entry in self.files.items() if path.startswith(prefix)}

    def folders(self) -> tuple[str, ...]:
        """Folders right below the root, sorted."""
        return tuple(sorted({path.partition("/")[0] for path in self.files if "/" in path}))

    def size(self, path: str) -> int | None:
        """The size of a file; None if there is none."""
        entry = self.files.get(path)
        return entry.size if entry is not None else None


class Format(Protocol):
    """How one library lays its checkpoints out."""

    format: CheckpointFormat

    def matches(self, tree: Tree) -> bool:
        """Whether the files look like this library's."""
        ...

    def candidates(self, tree: Tree) -> Iterator[Candidate]:
        """What may be checkpoints."""
        ...

    def wanted(self, tree: Tree, candidate: Candidate) -> tuple[Want, ...]:
        """What must be read to judge one."""
        ...

    def judge(self, tree: Tree, candidate: Candidate, contents: Contents) -> tuple[Level, tuple[str, ...]]:
        """How much is known of it, and what is wrong."""
        ...


def step_in(name: str) -> int | None:
    """The last number in a name, compared as a number: iter_10 comes after iter_9."""
    match = NUMBER.search(name)
    return int(match.group(1)[:15]) if match is not None else None


def numbered(tree: Tree, pattern: re.Pattern[str], kind: CheckpointFormat) -> Iterator[Candidate]:
    """Folders right below the root whose whole name the pattern matches, by its group `step`."""
    for folder in tree.folders():
        match = pattern.fullmatch(folder)
        if match is not None and not TEMPORARY.search(folder):
            yield Candidate(step=int(match["step"][:15]), path=folder, format=kind)


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


def checkpoint(
    tree: Tree, candidate: Candidate, level: Level, problems: Iterable[str], root: str, attempt: int | None
) -> Checkpoint:
    """A judged candidate; `root` is the place's URL."""
    files = tree.under(candidate.path) if candidate.path not in tree.files else {"": tree.files[candidate.path]}
    times = [entry.modified for entry in files.values() if entry.modified is not None]
    return Checkpoint(
        step=candidate.step,
        path=f"{root.rstrip('/')}/{candidate.path}" if candidate.path else root,
        format=candidate.format,
        level=level,
        problems=tuple(problems),
        attempt=attempt,
        written_at=max(times, default=None),
        bytes=sum(entry.size for entry in files.values()),
    )
