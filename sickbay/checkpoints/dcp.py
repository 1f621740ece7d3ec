"""PyTorch's distributed checkpoints: `.metadata`, written last and renamed, names parts of `__R_N.distcp` files.

A second save into one folder keeps the old `.metadata` while it overwrites the parts (facts: training, 3.1): then the
metadata is older than a part, and nothing of it can be trusted.
"""

import re
from collections.abc import Iterator
from datetime import timedelta
from typing import Final

from sickbay.checkpoints.inert_pickle import Record, UnreadablePickleError, read
from sickbay.checkpoints.model import CheckpointFormat, Level
from sickbay.checkpoints.tree import TEMPORARY, Candidate, Contents, Tree, Want, step_in

METADATA: Final = ".metadata"
_PART: Final = re.compile(r"__\d+_\d+\.distcp$")
CLOCKS: Final = timedelta(seconds=5)


class Dcp:
    """The format."""

    format = CheckpointFormat.DCP

    def matches(self, tree: Tree) -> bool:
        """Parts, or the metadata of some."""
        return any(_PART.search(path) or path.rpartition("/")[2] == METADATA for path in tree.files)

    def candidates(self, tree: Tree) -> Iterator[Candidate]:
        """Folders with parts or metadata, the root included, whose name bears a number."""
        folders = {
            path.rpartition("/")[0] for path in tree.files if _PART.search(path) or path.rpartition("/")[2] == METADATA
        }
        for folder in sorted(folders):
            step = step_in(folder or tree.name)
            if step is not None and not TEMPORARY.search(folder.rpartition("/")[2]):
                yield Candidate(step=step, path=folder, format=self.format)

    def wanted(self, tree: Tree, candidate: Candidate) -> tuple[Want, ...]:
        """The metadata."""
        path = _metadata_of(candidate)
        return (Want(path=path),) if path in tree.files else ()

    def judge(self, tree: Tree, candidate: Candidate, contents: Contents) -> tuple[Level, tuple[str, ...]]:
        """Every part that the metadata names is there, and as long as it says."""
        path, files = _metadata_of(candidate), tree.under(candidate.path)
        if path not in tree.files:
            return Level.LISTED, (".metadata is missing: the save never ended",)
        if path not in contents:
            return Level.UNKNOWN, (".metadata cannot be read",)
        try:
            needed = parts_of(contents[path])
        except UnreadablePickleError as error:
            return Level.LISTED, (f".metadata: {error}",)
        problems = []
        for name, length in sorted(needed.items()):
            entry = files.get(name)
            if entry is None:
                problems.append(f"{name} is missing")
            elif entry.size < length:
                problems.append(f"{name} has {entry.size} bytes, and .metadata names {length}")
        written = tree.files[path].modified
        newer = [
            name
            for name in needed
            if written is not None
            and (entry := files.get(name)) is not None
            and entry.modified is not None
            and entry.modified > written + CLOCKS
        ]
        if newer:
            problems.append(f"{newer[0]} is newer than .metadata: another save has begun in this folder")
        if not needed:
            problems.append(".metadata names no part")
        return (Level.LISTED if problems else Level.VERIFIED), tuple(problems)


def parts_of(data: bytes) -> dict[str, int]:
    """How long each part must be at least, by its name. Raises UnreadablePickleError."""
    content = read(data)
    storage = content.state.get("storage_data") if isinstance(content, Record) else None
    if not isinstance(storage, dict):
        raise UnreadablePickleError("it is no metadata of a distributed checkpoint")
    needed: dict[str, int] = {}
    for info in storage.values():
        if not isinstance(info, Record):
            continue
        name, offset, length = (
            info.field(field, place) for place, field in enumerate(("relative_path", "offset", "length"))
        )
        if isinstance(name, str) and isinstance(offset, int) and isinstance(length, int):
            needed[name] = max(needed.get(name, 0), offset + length)
    return needed


def _metadata_of(candidate: Candidate) -> str:
    return f"{candidate.path}/{METADATA}" if candidate.path else METADATA
