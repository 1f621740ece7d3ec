"""Folders with a `manifest.json` that is written last and lists every file with its size and SHA-256.

The plainest way to be sure of a checkpoint in a store that cannot rename (facts: training, 3.2), for any script:
`{"step": 40, "attempt": 1, "files": [{"path": "weights.npz", "size": 123, "sha256": "..."}]}`.
"""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from sickbay.checkpoints.model import CheckpointFormat, Level
from sickbay.checkpoints.tree import TEMPORARY, Candidate, Contents, Tree, Want, step_in

MANIFEST: Final = "manifest.json"
_FOLDER: Final = re.compile(r"[A-Za-z_-]*\d+")


class Manifest:
    """The format."""

    format = CheckpointFormat.MANIFEST

    def matches(self, tree: Tree) -> bool:
        """A manifest in a numbered folder."""
        return any(path.endswith("/" + MANIFEST) and step_in(path.partition("/")[0]) is not None for path in tree.files)

    def candidates(self, tree: Tree) -> Iterator[Candidate]:
        """Numbered folders."""
        for folder in tree.folders():
            step = step_in(folder)
            if step is not None and _FOLDER.fullmatch(folder) and not TEMPORARY.search(folder):
                yield Candidate(step=step, path=folder, format=self.format)

    def wanted(self, tree: Tree, candidate: Candidate) -> tuple[Want, ...]:
        """The manifest."""
        path = f"{candidate.path}/{MANIFEST}"
        return (Want(path=path),) if path in tree.files else ()

    def judge(self, tree: Tree, candidate: Candidate, contents: Contents) -> tuple[Level, tuple[str, ...]]:
        """Every file that the manifest lists is there and as long."""
        path = f"{candidate.path}/{MANIFEST}"
        if path not in tree.files:
            return Level.LISTED, (f"{MANIFEST} is missing: the save never ended",)
        if path not in contents:
            return Level.UNKNOWN, (f"{MANIFEST} cannot be read",)
        content = listed(contents[path])
        if content is None:
            return Level.LISTED, (f"{MANIFEST} cannot be read as one",)
        step, files = content
        problems = [] if step == candidate.step else [f"{MANIFEST} is of step {step}"]
        sizes = {name: entry.size for name, entry in tree.under(candidate.path).items()}
        for name, (size, _) in sorted(files.items()):
            if name not in sizes:
                problems.append(f"{name} is missing")
            elif sizes[name] != size:
                problems.append(f"{name} has {sizes[name]} bytes, and {MANIFEST} lists {size}")
        if not files:
            problems.append(f"{MANIFEST} lists no file")
        return (Level.LISTED if problems else Level.COMMITTED), tuple(problems)


def listed(data: bytes) -> tuple[int, dict[str, tuple[int, str]]] | None:
    """Step, and size and SHA-256 of each file by its path; None if it is no manifest."""
    try:
        content = json.loads(data)
    except (ValueError, RecursionError):
        return None
    if not isinstance(content, dict) or not isinstance(content.get("step"), int):
        return None
    files = content.get("files")
    if not isinstance(files, list) or not all(_is_file(file) for file in files):
        return None
    return content["step"], {file["path"]: (file["size"], str(file.get("sha256", ""))) for file in files}


def _is_file(file: Any) -> bool:
    return isinstance(file, Mapping) and isinstance(file.get("path"), str) and isinstance(file.get("size"), int)
