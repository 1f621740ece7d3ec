"""Lightning: a `.ckpt` file, which is a zip with its directory at its end, or a folder with `meta.pt`.

`last.ckpt` tells no step in its name and is left to the numbered ones.
"""

import re
import struct
from collections.abc import Iterator
from typing import Final

from sickbay.checkpoints.model import CheckpointFormat, Level
from sickbay.checkpoints.tree import TAIL, Candidate, Contents, Tree, Want

_STEP: Final = re.compile(r"step[=_-]?(?P<step>\d+)")
_HPC: Final = re.compile(r"hpc_ckpt_(?P<step>\d+)\.ckpt$")
_END: Final = b"PK\x05\x06"
_END_64: Final = b"PK\x06\x06"


class Lightning:
    """The format."""

    format = CheckpointFormat.LIGHTNING

    def matches(self, tree: Tree) -> bool:
        """A file or a folder of its own."""
        return any(".ckpt" in path for path in tree.files)

    def candidates(self, tree: Tree) -> Iterator[Candidate]:
        """Files and folders whose name tells a step."""
        seen = {path.partition(".ckpt")[0] + ".ckpt" for path in tree.files if ".ckpt" in path}
        for path in sorted(seen):
            match = _HPC.search(path) or _STEP.search(path.rpartition("/")[2])
            if match is not None:
                yield Candidate(step=int(match["step"][:15]), path=path, format=self.format)

    def wanted(self, tree: Tree, candidate: Candidate) -> tuple[Want, ...]:
        """The end of a file."""
        return (Want(path=candidate.path, last=TAIL),) if candidate.path in tree.files else ()

    def judge(self, tree: Tree, candidate: Candidate, contents: Contents) -> tuple[Level, tuple[str, ...]]:
        """The zip's directory is whole; or the folder has its metadata."""
        size = tree.size(candidate.path)
        if size is None:
            files = tree.under(candidate.path)
            entry = files.get("meta.pt")
            if entry is None or entry.size == 0:
                return Level.LISTED, ("meta.pt is missing or empty: the save never ended",)
            return Level.COMMITTED, ()
        if candidate.path not in contents:
            return Level.UNKNOWN, ("it cannot be read",)
        problem = zip_problem(size, contents[candidate.path])
        return (Level.LISTED, (problem,)) if problem else (Level.VERIFIED, ())


def zip_problem(size: int, tail: bytes) -> str:
    """What is wrong with a zip by its last bytes; empty if its directory ends where it should."""
    if size == 0:
        return "it is empty"
    place = tail.rfind(_END)
    if place < 0 or len(tail) < place + 22:
        return "its end is cut: no central directory is there"
    length, start = struct.unpack("<II", tail[place + 12 : place + 20])
    end = size - len(tail) + place
    if start == 0xFFFFFFFF or length == 0xFFFFFFFF:
        return "" if _END_64 in tail else "its end is cut: no central directory is there"
    return "" if start + length <= end else "its central directory points beyond its end"
