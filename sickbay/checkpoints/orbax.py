"""Orbax: a folder for each step, written under another name and renamed, or marked where a store cannot rename.

A copy to such a store lacks the marker and must not be called incomplete for that alone where the library's own
metadata is whole (facts: training, 3.4.15); a folder under its temporary name is never whole.
"""

import re
from collections.abc import Iterator
from typing import Final

from sickbay.checkpoints.model import CheckpointFormat, Level
from sickbay.checkpoints.tree import TEMPORARY, Candidate, Contents, Tree, Want

METADATA: Final = "_CHECKPOINT_METADATA"
COMMITTED: Final = "commit_success.txt"
_SIGNS: Final = (METADATA, COMMITTED, "_METADATA", "manifest.ocdbt", "_sharding")
_FOLDER: Final = re.compile(r"(?:[A-Za-z][\w-]*_)?(?P<step>\d+)")


class Orbax:
    """The format."""

    format = CheckpointFormat.ORBAX

    def matches(self, tree: Tree) -> bool:
        """Any of its own files."""
        return any(path.rpartition("/")[2] in _SIGNS or ".orbax-checkpoint-tmp" in path for path in tree.files)

    def candidates(self, tree: Tree) -> Iterator[Candidate]:
        """Folders named by their step, also those that still bear their temporary name."""
        for folder in tree.folders():
            bare = folder.partition(".orbax-checkpoint-tmp")[0]
            match = _FOLDER.fullmatch(bare)
            if match is not None:
                yield Candidate(step=int(match["step"][:15]), path=folder, format=self.format)

    def wanted(self, tree: Tree, candidate: Candidate) -> tuple[Want, ...]:  # noqa: ARG002 - one shape for all formats
        """Nothing: its files' presence tells."""
        return ()

    def judge(self, tree: Tree, candidate: Candidate, contents: Contents) -> tuple[Level, tuple[str, ...]]:  # noqa: ARG002
        """It bears its final name, and its metadata or its marker is there."""
        files = tree.under(candidate.path)
        if TEMPORARY.search(candidate.path) or any(".orbax-checkpoint-tmp" in path for path in files):
            return Level.LISTED, ("it bears a temporary name: the save never ended",)
        names = {path.rpartition("/")[2] for path in files}
        problems = []
        if not names & {METADATA, COMMITTED}:
            problems.append(f"neither {METADATA} nor {COMMITTED} is there")
        if not names & {"_METADATA", "manifest.ocdbt"} and not any(path.endswith(".zarray") for path in files):
            problems.append("no item of it has its metadata")
        problems += [
            f"{path} is empty" for path, entry in sorted(files.items()) if _must_not_be_empty(path, entry.size)
        ]
        return (Level.LISTED if problems else Level.COMMITTED), tuple(problems)


def _must_not_be_empty(path: str, size: int) -> bool:
    return size == 0 and path.rpartition("/")[2] in ("_METADATA", "manifest.ocdbt", METADATA, "_sharding")
