"""Orbax: a folder for each step, written under another name and renamed, or marked where a store cannot rename.

`_CHECKPOINT_METADATA` tells when it was committed, and which items it holds. A copy to a store without renames lacks
the marker `commit_success.txt` and must not be called incomplete for that alone (facts: training, 3.4.15); but where
other steps beside it are marked, one without the mark never ended. A folder under its temporary name is never whole.
Whether OCDBT's data files are all there, and as long as they should be, only Orbax itself can tell.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from sickbay.checkpoints.model import CheckpointFormat, Level
from sickbay.checkpoints.tree import (
    TEMPORARY,
    Candidate,
    Contents,
    Entry,
    Judgement,
    Tree,
    Want,
    inside,
    json_in,
    missing,
)

METADATA: Final = "_CHECKPOINT_METADATA"
COMMITTED: Final = "commit_success.txt"
ITEM: Final = "_METADATA"
OCDBT: Final = "manifest.ocdbt"
_SIGNS: Final = (METADATA, COMMITTED, ITEM, OCDBT, "_sharding")
_TEMPORARY: Final = ".orbax-checkpoint-tmp"
_FOLDER: Final = re.compile(r"(?:[A-Za-z][\w-]*[_-])?(?P<step>\d+)")
_OF_ARRAYS: Final = ("StandardCheckpointHandler", "PyTreeCheckpointHandler")


class Orbax:
    """The format."""

    format = CheckpointFormat.ORBAX
    pointer = ""

    def matches(self, tree: Tree) -> bool:
        """Any of its own files."""
        return any(path.rpartition("/")[2] in _SIGNS or _TEMPORARY in path for path in tree.files)

    def candidates(self, tree: Tree) -> Iterator[Candidate]:
        """Folders named by their step, also those that still bear their temporary name."""
        for folder in tree.folders():
            match = _FOLDER.fullmatch(folder.partition(_TEMPORARY)[0])
            if match is not None:
                yield Candidate(step=int(match["step"][:15]), path=folder)

    def wanted(self, tree: Tree, candidate: Candidate) -> tuple[Want, ...]:
        """What describes it, and each of its items."""
        files = tree.under(candidate.path)
        names = [name for name in files if name == METADATA or name.rpartition("/")[2] == ITEM]
        return tuple(Want(path=f"{candidate.path}/{name}") for name in names)

    def judge(self, tree: Tree, candidate: Candidate, contents: Contents) -> Judgement:
        """It bears its final name, was committed, and each of its items is described and holds something."""
        files, read = tree.under(candidate.path), inside(contents, candidate.path)
        if TEMPORARY.search(candidate.path) or any(_TEMPORARY in path for path in files):
            return Judgement(Level.LISTED, ("it bears a temporary name: the save never ended",))
        described = json_in(read.get(METADATA))
        problems = _commit_problems(tree, files, read, described)
        items = _items(files, described)
        for folder, of_arrays in sorted(items.items()):
            problems += _item_problems(folder, of_arrays, files, read)
        if not items:
            problems.append("it holds no item")
        problems += [f"{path} is empty" for path, entry in sorted(files.items()) if entry.size == 0]
        return Judgement(Level.LISTED if problems else Level.COMMITTED, tuple(dict.fromkeys(problems)))


def _commit_problems(tree: Tree, files: Mapping[str, Entry], read: Contents, described: Any) -> list[str]:
    if COMMITTED in files:
        return [] if METADATA in files or not _newer_library(files) else [f"{METADATA} is missing"]
    if any(f"{folder}/{COMMITTED}" in tree.files for folder in tree.folders()):
        return [f"{COMMITTED} is missing, which others here have: the save never ended"]
    if METADATA not in files:
        return [f"neither {METADATA} nor {COMMITTED} is there"]
    if METADATA not in read:
        return []
    if not isinstance(described, dict):
        return [f"{METADATA} is cut or no JSON"]
    if "commit_timestamp_nsecs" in described and not described["commit_timestamp_nsecs"]:
        return [f"{METADATA} tells no time of commit: the save never ended"]
    return []


def _newer_library(files: Mapping[str, Entry]) -> bool:
    """Whether its items are marked too, as versions do that always write the metadata (0.12.3 on)."""
    return any(path.endswith("/" + COMMITTED) for path in files)


def _items(files: Mapping[str, Entry], described: Any) -> dict[str, bool]:
    """Folders of the items, empty for the checkpoint itself, and whether each holds arrays."""
    handlers = described.get("item_handlers") if isinstance(described, dict) else None
    if isinstance(handlers, str):
        return {"": handlers.endswith(_OF_ARRAYS)}
    if isinstance(handlers, dict) and handlers:
        return {str(name): isinstance(kind, str) and kind.endswith(_OF_ARRAYS) for name, kind in handlers.items()}
    folders = {path.rpartition("/")[0] for path in files if path.rpartition("/")[2] in (ITEM, OCDBT)}
    return {folder: True for folder in folders if "ocdbt.process_" not in folder}


def _item_problems(folder: str, of_arrays: bool, files: Mapping[str, Entry], read: Contents) -> list[str]:
    prefix = f"{folder}/" if folder else ""
    own = {path[len(prefix) :] for path in files if path.startswith(prefix)}
    if not own - {COMMITTED}:
        return [f"{folder} is missing"]
    if not of_arrays:
        return []
    problems = missing(files, (prefix + ITEM,))
    content = json_in(read.get(prefix + ITEM))
    if prefix + ITEM in read and not isinstance(content, dict):
        problems.append(f"{prefix}{ITEM} is cut or no JSON")
    arrays = {path.rpartition("/")[0] for path in own if path.endswith("/.zarray")}
    if OCDBT in own or (isinstance(content, dict) and content.get("use_ocdbt")) or not arrays:
        problems += missing(files, (prefix + OCDBT,))
        if not any(path.startswith(("d/", "ocdbt.process_")) and "/d/" in f"/{path}" for path in own):
            problems.append(f"{prefix}d holds no data")
    held = {path.rpartition("/")[0] for path in own if path.rpartition("/")[2] != ".zarray"}
    return problems + [f"{prefix}{array} holds no data" for array in sorted(arrays - held)]
