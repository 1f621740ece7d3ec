"""PyTorch's distributed checkpoints: `.metadata`, written last and renamed, names parts of `__R_N.distcp` files.

A second save into one folder keeps the old `.metadata` while it overwrites the parts (facts: training, 3.1): then the
metadata is older than a part, and nothing of it can be trusted. A copy that changed the files' times looks the same.
Megatron, the Trainer with FSDP, and Lightning's sharded checkpoints hold such folders too.
"""

import re
from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Final

from sickbay.checkpoints.inert_pickle import Record, UnreadablePickleError, read
from sickbay.checkpoints.model import CheckpointFormat, Level
from sickbay.checkpoints.tree import TEMPORARY, Candidate, Contents, Entry, Judgement, Tree, Want, step_in

METADATA: Final = ".metadata"
CLOCKS: Final = timedelta(seconds=5)
"""Between the clocks of two writers of one save."""
PARSED_MOST: Final = 24 << 20
"""Bytes of metadata, of some 200,000 pieces, that are read as a whole; of longer ones only the names of the parts."""
_PART: Final = re.compile(r"__\d+_\d+\.distcp$")
_NAMED: Final = re.compile(rb"__\d{1,9}_\d{1,9}\.distcp")
_STEP: Final = re.compile(r"(?:^|[/_.-])(?:step|iter|iteration|checkpoint|ckpt|epoch)s?[-_=]?(\d+)(?![^/]*\d)", re.I)


class Dcp:
    """The format."""

    format = CheckpointFormat.DCP
    pointer = ""

    def matches(self, tree: Tree) -> bool:
        """Parts, or the metadata of some."""
        return any(_is_of_it(path) for path in tree.files)

    def candidates(self, tree: Tree) -> Iterator[Candidate]:
        """Folders with parts or metadata whose name, or whose parent's, bears a step."""
        for folder in sorted({path.rpartition("/")[0] for path in tree.files if _is_of_it(path)} - {""}):
            step = _step_of(folder)
            if step is not None and not TEMPORARY.search(folder):
                yield Candidate(step=step, path=folder)

    def wanted(self, tree: Tree, candidate: Candidate) -> tuple[Want, ...]:
        """The metadata."""
        path = f"{candidate.path}/{METADATA}"
        return (Want(path=path),) if path in tree.files else ()

    def judge(self, tree: Tree, candidate: Candidate, contents: Contents) -> Judgement:
        """Every part that the metadata names is there, and as long as it says."""
        problems, lengths_known = part_problems(
            tree.under(candidate.path), contents.get(f"{candidate.path}/{METADATA}")
        )
        if problems:
            return Judgement(Level.LISTED, tuple(problems))
        return Judgement(Level.VERIFIED if lengths_known else Level.COMMITTED)


def part_problems(files: Mapping[str, Entry], data: bytes | None) -> tuple[list[str], bool]:
    """What is wrong with a folder of parts, and whether their lengths were compared.

    `files` are the folder's, `data` its metadata; None if that could not be read, which is no problem of the files.
    """
    metadata = files.get(METADATA)
    if metadata is None:
        return [f"{METADATA} is missing: the save never ended"], False
    if data is None:
        return [], False
    lengths_known = len(data) <= PARSED_MOST
    try:
        needed = parts_of(data) if lengths_known else names_of(data)
    except UnreadablePickleError as error:
        return [f"{METADATA}: {error}"], False
    problems = [] if needed else [f"{METADATA} names no part"]
    for name, length in sorted(needed.items()):
        entry = files.get(name)
        if entry is None:
            problems.append(f"{name} is missing")
        elif entry.size < length:
            problems.append(f"{name} has {entry.size} bytes, and {METADATA} names {length}")
    newer = [name for name in needed if name in files and _is_newer(files[name], metadata)]
    if newer:
        problems.append(
            f"{newer[0]} is newer than {METADATA}: another save has begun in this folder (if it was only copied, touch "
            f"{METADATA})"
        )
    return problems, lengths_known


def parts_of(data: bytes) -> dict[str, int]:
    """How long each part must be at least, by its name. Raises UnreadablePickleError."""
    content = read(data)
    storage = content.field("storage_data", 1) if isinstance(content, Record) else None
    if not isinstance(storage, dict):
        raise UnreadablePickleError("it is no metadata of a distributed checkpoint")
    needed: dict[str, int] = {}
    for info in storage.values():
        if not isinstance(info, Record):
            raise UnreadablePickleError("it names a part that cannot be understood")
        name, offset, length = (
            info.field(field, place) for place, field in enumerate(("relative_path", "offset", "length"))
        )
        if not (isinstance(name, str) and isinstance(offset, int) and isinstance(length, int)):
            raise UnreadablePickleError("it names a part that cannot be understood")
        needed[name] = max(needed.get(name, 0), offset + length)
    return needed


def names_of(data: bytes) -> dict[str, int]:
    """Names of parts in metadata that is too long to be read as a whole, each of at least one byte. Raises
    UnreadablePickleError if it is cut."""
    if not data.endswith(b"."):
        raise UnreadablePickleError("it is cut")
    return {match.group().decode(): 1 for match in _NAMED.finditer(data)}


def _is_newer(part: Entry, metadata: Entry) -> bool:
    return part.modified is not None and metadata.modified is not None and part.modified > metadata.modified + CLOCKS


def _is_of_it(path: str) -> bool:
    return path.rpartition("/")[2] == METADATA or _PART.search(path) is not None


def _step_of(folder: str) -> int | None:
    """By a word for steps in its name, else by the innermost name with a number."""
    named = list(_STEP.finditer(folder))
    if named:
        return int(named[-1].group(1)[:15])
    return next((step for name in reversed(folder.split("/")) if (step := step_in(name)) is not None), None)
