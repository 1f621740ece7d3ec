"""Megatron: `iter_NNNNNNN` folders, and a tracker that names the newest that is finished.

The tracker is written in place and may be empty; Megatron then ends with exit code 0, or begins anew (facts: training,
3.1). An iteration that the tracker does not reach yet may still be written by an asynchronous save.
"""

import re
from collections.abc import Iterator
from typing import Final

from sickbay.checkpoints.dcp import METADATA, parts_of
from sickbay.checkpoints.inert_pickle import UnreadablePickleError
from sickbay.checkpoints.model import CheckpointFormat, Level
from sickbay.checkpoints.tree import Candidate, Contents, Tree, Want, missing, numbered

TRACKER: Final = "latest_checkpointed_iteration.txt"
_FOLDER: Final = re.compile(r"iter_(?P<step>\d{7,})")
_LEGACY: Final = re.compile(r"mp_rank_(\d+)(?:_(\d+))?(?:_(\d+))?/")


class Megatron:
    """The format."""

    format = CheckpointFormat.MEGATRON

    def matches(self, tree: Tree) -> bool:
        """Its tracker, or a folder of its own."""
        return TRACKER in tree.files or any(_FOLDER.fullmatch(folder) for folder in tree.folders())

    def candidates(self, tree: Tree) -> Iterator[Candidate]:
        """Its folders."""
        return numbered(tree, _FOLDER, self.format)

    def wanted(self, tree: Tree, candidate: Candidate) -> tuple[Want, ...]:
        """The tracker, and the metadata of a distributed checkpoint."""
        paths = (TRACKER, f"{candidate.path}/{METADATA}")
        return tuple(Want(path=path) for path in paths if path in tree.files)

    def judge(self, tree: Tree, candidate: Candidate, contents: Contents) -> tuple[Level, tuple[str, ...]]:
        """Its files are there, and the tracker has reached it."""
        files = tree.under(candidate.path)
        problems = _tracked(tree, candidate, contents)
        level = Level.COMMITTED
        if "metadata.json" in files or METADATA in files or "common.pt" in files:
            problems += missing(files, ("metadata.json", "common.pt"))
            if METADATA in files:
                level = Level.VERIFIED
                problems += _parts(
                    contents.get(f"{candidate.path}/{METADATA}"), {name: one.size for name, one in files.items()}
                )
        else:
            problems += _legacy(files)
        problems += [f"{name} is empty" for name, entry in sorted(files.items()) if entry.size == 0]
        return (Level.LISTED if problems else level), tuple(dict.fromkeys(problems))


def tracker_problem(tree: Tree, contents: Contents) -> str:
    """What is wrong with the tracker as a whole, in words; empty if it can be used."""
    if TRACKER not in tree.files:
        return f"{TRACKER} is missing: Megatron would begin anew"
    text = contents.get(TRACKER)
    if text is None:
        return f"{TRACKER} cannot be read"
    words = text.decode(errors="replace").strip()
    if words == "release" or words.isdecimal():
        return ""
    told = f"says {words[:40]!r}" if words else "is empty"
    return f"{TRACKER} {told}: write the newest whole iteration into it, or Megatron ends with exit code 0"


def _tracked(tree: Tree, candidate: Candidate, contents: Contents) -> list[str]:
    if problem := tracker_problem(tree, contents):
        return [problem]
    words = contents[TRACKER].decode(errors="replace").strip()
    if words.isdecimal() and candidate.step > int(words[:15]):
        return [f"{TRACKER} says {words}: this one is not finished"]
    return []


def _parts(data: bytes | None, sizes: dict[str, int]) -> list[str]:
    if data is None:
        return [".metadata cannot be read"]
    try:
        needed = parts_of(data)
    except UnreadablePickleError as error:
        return [f".metadata: {error}"]
    return [
        f"{name} is missing" if name not in sizes else f"{name} has {sizes[name]} bytes, and .metadata names {length}"
        for name, length in sorted(needed.items())
        if sizes.get(name, -1) < length
    ]


def _legacy(files: object) -> list[str]:
    """Every combination of tensor, pipeline and expert rank up to the highest is there."""
    assert isinstance(files, dict)
    ranks = {tuple(int(part) for part in match.groups() if part) for name in files if (match := _LEGACY.match(name))}
    if not ranks:
        return ["it holds no mp_rank folder"]
    shape = [max(rank[place] for rank in ranks if len(rank) > place) + 1 for place in range(max(map(len, ranks)))]
    wanted = 1
    for size in shape:
        wanted *= size
    if len(ranks) != wanted:
        return [f"{len(ranks)} of {wanted} mp_rank folders are there"]
    return []
