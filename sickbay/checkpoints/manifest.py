"""Folders with a `manifest.json` that is written last and lists every file with its size and SHA-256.

The plainest way to be sure of a checkpoint in a store that cannot rename (facts: training, 3.2), for any script:
`{"step": 40, "attempt": 1, "files": [{"path": "weights.npz", "size": 123, "sha256": "..."}]}`.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from sickbay.checkpoints.model import CheckpointFormat, Level
from sickbay.checkpoints.tree import TEMPORARY, Candidate, Contents, Judgement, Tree, Want, json_in, step_in

MANIFEST: Final = "manifest.json"
_FOLDER: Final = re.compile(r"[A-Za-z_-]*\d+")


@dataclass(frozen=True, slots=True)
class ListedFile:
    """One file, as a manifest lists it."""

    path: str
    size: int
    sha256: str = ""


@dataclass(frozen=True, slots=True)
class Listed:
    """What a manifest says."""

    step: int
    attempt: int | None
    files: tuple[ListedFile, ...]


class Manifest:
    """The format."""

    format = CheckpointFormat.MANIFEST
    pointer = ""

    def matches(self, tree: Tree) -> bool:
        """A manifest in a numbered folder."""
        return any(path.endswith("/" + MANIFEST) and step_in(path.partition("/")[0]) is not None for path in tree.files)

    def candidates(self, tree: Tree) -> Iterator[Candidate]:
        """Numbered folders."""
        for folder in tree.folders():
            step = step_in(folder)
            if step is not None and _FOLDER.fullmatch(folder) and not TEMPORARY.search(folder):
                yield Candidate(step=step, path=folder)

    def wanted(self, tree: Tree, candidate: Candidate) -> tuple[Want, ...]:
        """The manifest."""
        path = f"{candidate.path}/{MANIFEST}"
        return (Want(path=path),) if path in tree.files else ()

    def judge(self, tree: Tree, candidate: Candidate, contents: Contents) -> Judgement:
        """Every file that the manifest lists is there and as long."""
        path = f"{candidate.path}/{MANIFEST}"
        if path not in tree.files:
            return Judgement(Level.LISTED, (f"{MANIFEST} is missing: the save never ended",))
        if path not in contents:
            return Judgement(Level.UNKNOWN)
        manifest = listed(contents[path])
        if manifest is None:
            return Judgement(Level.LISTED, (f"{MANIFEST} is cut or no manifest",))
        problems = [] if manifest.step == candidate.step else [f"{MANIFEST} is of step {manifest.step}"]
        files = tree.under(candidate.path)
        for file in manifest.files:
            if file.path not in files:
                problems.append(f"{file.path} is missing")
            elif files[file.path].size != file.size:
                problems.append(f"{file.path} has {files[file.path].size} bytes, and {MANIFEST} lists {file.size}")
        if not manifest.files:
            problems.append(f"{MANIFEST} lists no file")
        level = Level.LISTED if problems else Level.COMMITTED
        return Judgement(level, tuple(problems), attempt=manifest.attempt)


def listed(data: bytes) -> Listed | None:
    """What a manifest says; None if it is none."""
    content = json_in(data)
    if not isinstance(content, dict) or not _is_number(content.get("step")):
        return None
    files = content.get("files")
    if not isinstance(files, list) or not all(_is_file(file) for file in files):
        return None
    attempt = content.get("attempt")
    return Listed(
        step=content["step"],
        attempt=attempt if _is_number(attempt) else None,
        files=tuple(
            ListedFile(path=file["path"], size=file["size"], sha256=str(file.get("sha256") or "")) for file in files
        ),
    )


def _is_number(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 10**18


def _is_file(file: Any) -> bool:
    return isinstance(file, dict) and isinstance(file.get("path"), str) and _is_number(file.get("size"))
