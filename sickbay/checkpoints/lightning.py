"""Lightning: a `.ckpt` file of `torch.save`, or a folder with `meta.pt` or with DeepSpeed's shards.

A file whose name tells no step (`last.ckpt`, and `hpc_ckpt_N.ckpt`, whose N only counts) tells it inside.
"""

import re
from collections.abc import Iterator
from typing import Final

from sickbay.checkpoints import torch_file
from sickbay.checkpoints.dcp import METADATA, part_problems
from sickbay.checkpoints.deepspeed import shard_problems, wanted_shards
from sickbay.checkpoints.model import CheckpointFormat, Level
from sickbay.checkpoints.pointers import LATEST
from sickbay.checkpoints.tree import TEMPORARY, Candidate, Contents, Entry, Judgement, Tree, Want, inside, missing

META: Final = "meta.pt"
STEP_KEY: Final = "global_step"
_STEP: Final = re.compile(r"(?:^|[^a-z])step[=_-]?(?P<step>\d+)", re.I)
_COUNTED: Final = re.compile(r"(?:^|/)(?:hpc_ckpt_\d+|last(?:-v\d+)?)\.ckpt$")
_SHARDS: Final = "checkpoint"
"""Folder of DeepSpeed's shards."""


class Lightning:
    """The format."""

    format = CheckpointFormat.LIGHTNING
    pointer = ""

    def matches(self, tree: Tree) -> bool:
        """A file or a folder of its own."""
        return any(".ckpt" in path for path in tree.files)

    def candidates(self, tree: Tree) -> Iterator[Candidate]:
        """Files and folders with its suffix; of a file without a step in its name, the content tells it."""
        for path in sorted({path.partition(".ckpt/")[0] for path in tree.files if ".ckpt/" in path}):
            match = _STEP.search(path.rpartition("/")[2])
            if match is not None and not TEMPORARY.search(path):
                yield Candidate(step=int(match["step"][:15]), path=f"{path}.ckpt")
        for path in sorted(path for path in tree.files if path.endswith(".ckpt") and ".ckpt/" not in path):
            match = _STEP.search(path.rpartition("/")[2])
            if not TEMPORARY.search(path):
                counted = match is None or _COUNTED.search(path)
                yield Candidate(step=None if match is None or counted else int(match["step"][:15]), path=path)

    def wanted(self, tree: Tree, candidate: Candidate) -> tuple[Want, ...]:
        """The ends of a file, and its state where only that tells the step; or what describes a folder."""
        if candidate.path in tree.files:
            read = torch_file.with_state if candidate.step is None else torch_file.ends
            return (read(candidate.path),)
        files = tree.under(candidate.path)
        names = [name for name in (METADATA, LATEST) if name in files]
        wants = [Want(path=f"{candidate.path}/{name}") for name in names]
        wants += [torch_file.ends(f"{candidate.path}/{META}")] if META in files else []
        shards = f"{candidate.path}/{_SHARDS}"
        return (*wants, *wanted_shards(tree.under(shards), shards))

    def judge(self, tree: Tree, candidate: Candidate, contents: Contents) -> Judgement:
        """The zip's directory is whole; or the folder's parts are."""
        size = tree.size(candidate.path)
        if size is not None:
            return _of_file(candidate, size, contents.get(candidate.path))
        files, read = tree.under(candidate.path), inside(contents, candidate.path)
        problems, known = _folder_problems(files, read, tree.under(f"{candidate.path}/{_SHARDS}"))
        if problems:
            return Judgement(Level.LISTED, tuple(problems))
        return Judgement(Level.VERIFIED if known else Level.COMMITTED)


def _of_file(candidate: Candidate, size: int, data: bytes | None) -> Judgement:
    if data is None:
        return Judgement(Level.UNKNOWN, step=candidate.step or 0)
    step = candidate.step
    if step is None:
        step = torch_file.number(torch_file.state_of(data), STEP_KEY)
    name = candidate.path.rpartition("/")[2]
    if words := torch_file.problem(name, size, data):
        return Judgement(Level.LISTED, (words,), step=step or 0)
    if step is None:
        return Judgement(Level.LISTED, ("neither its name nor its content tells a step",), step=0)
    return Judgement(Level.COMMITTED if torch_file.older_form(data) else Level.VERIFIED, step=step)


def _folder_problems(files: dict[str, Entry], read: Contents, shards: dict[str, Entry]) -> tuple[list[str], bool]:
    if META not in files and shards:
        problems, known = shard_problems(shards, inside(read, _SHARDS))
        return missing(files, (LATEST,)) + problems, known
    if META not in files:
        return [f"{META} is missing: the save never ended"], False
    problems = torch_file.problems(files, {name: data for name, data in read.items() if name == META})
    if METADATA not in files and not any(name.endswith(".distcp") for name in files):
        return problems, False
    parts, known = part_problems(files, read.get(METADATA))
    return problems + parts, known
