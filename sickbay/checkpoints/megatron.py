"""Megatron: `iter_NNNNNNN` folders, and a tracker that names the newest that is finished (`pointers`).

A folder is distributed (`metadata.json`, written last, tells its backend) or of the older kind with one folder for each
rank, whose count its own arguments tell. Zarr's chunks cannot be counted.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from sickbay.checkpoints import torch_file
from sickbay.checkpoints.dcp import METADATA, part_problems
from sickbay.checkpoints.inert_pickle import Record
from sickbay.checkpoints.model import CheckpointFormat, Level
from sickbay.checkpoints.pointers import TRACKER, beyond
from sickbay.checkpoints.tree import (
    Candidate,
    Contents,
    Entry,
    Judgement,
    Tree,
    Want,
    inside,
    json_in,
    missing,
    numbered,
)

CONFIG: Final = "metadata.json"
COMMON: Final = "common.pt"
_FOLDER: Final = re.compile(r"iter_(?P<step>\d{7,})")
_RANK: Final = re.compile(r"mp_rank_(\d+)(?:_(\d+))?(?:_(\d+))?/(?P<file>[^/]+)$")
_MODEL: Final = re.compile(r"model(?:_optim)?_rng\.pt$")
_SIZES: Final = ("tensor_model_parallel_size", "pipeline_model_parallel_size", "expert_model_parallel_size")


class Megatron:
    """The format."""

    format = CheckpointFormat.MEGATRON
    pointer = TRACKER

    def matches(self, tree: Tree) -> bool:
        """Its tracker, or a folder of its own."""
        return TRACKER in tree.files or any(_FOLDER.fullmatch(folder) for folder in tree.folders())

    def candidates(self, tree: Tree) -> Iterator[Candidate]:
        """Its folders."""
        return numbered(tree, _FOLDER)

    def wanted(self, tree: Tree, candidate: Candidate) -> tuple[Want, ...]:
        """What describes a distributed checkpoint, and the ends of torch's files; the state of one rank's."""
        files = tree.under(candidate.path)
        models = sorted(name for name in files if _RANK.match(name) and _MODEL.search(name))
        whole = [name for name in (CONFIG, METADATA) if name in files]
        return (
            *(Want(path=f"{candidate.path}/{name}") for name in whole),
            *(torch_file.with_state(f"{candidate.path}/{name}") for name in models[:1]),
            *(
                torch_file.ends(f"{candidate.path}/{name}")
                for name in torch_file.tellable(files)
                if name not in models[:1]
            ),
        )

    def judge(self, tree: Tree, candidate: Candidate, contents: Contents) -> Judgement:
        """Its files are there and whole, and the tracker has reached it."""
        files, read = tree.under(candidate.path), inside(contents, candidate.path)
        problems = beyond(TRACKER, contents, candidate.step)
        if any(_RANK.match(name) for name in files) and CONFIG not in files:
            own, verified = _legacy_problems(files, read, candidate.step)
        else:
            own, verified = _distributed_problems(files, read)
        problems += own + torch_file.problems(files, read)
        problems += [f"{name} is empty" for name, entry in sorted(files.items()) if entry.size == 0]
        if problems:
            return Judgement(Level.LISTED, tuple(dict.fromkeys(problems)))
        return Judgement(Level.VERIFIED if verified else Level.COMMITTED)


def _distributed_problems(files: Mapping[str, Entry], read: Contents) -> tuple[list[str], bool]:
    problems = missing(files, (CONFIG, COMMON))
    if CONFIG not in files or CONFIG not in read:
        return problems, False
    config = json_in(read[CONFIG])
    if not isinstance(config, dict):
        return [*problems, f"{CONFIG} cannot be understood"], False
    if config.get("sharded_backend") == "zarr":
        arrays = any(name.endswith("/.zarray") for name in files)
        return problems + ([] if arrays else ["no array is there"]), False
    parts, lengths_known = part_problems(files, read.get(METADATA))
    return problems + parts, lengths_known


def _legacy_problems(files: Mapping[str, Entry], read: Contents, step: int | None) -> tuple[list[str], bool]:
    """Each combination of tensor, pipeline and expert rank is there, with the same files; and the step's state."""
    held: dict[tuple[int, ...], set[str]] = {}
    for name in files:
        if match := _RANK.match(name):
            rank = tuple(int(part) for part in match.groups()[:3] if part)
            held.setdefault(rank, set()).add(match["file"])
    state = next(
        (torch_file.state_of(read[name]) for name in sorted(read) if _RANK.match(name) and _MODEL.search(name)), None
    )
    problems = [
        f"mp_rank {'_'.join(map(str, rank))} holds no model"
        for rank, names in sorted(held.items())
        if not any(_MODEL.search(name) for name in names)
    ]
    wanted = _ranks_told(state, max(map(len, held))) or _ranks_seen(tuple(held))
    if len(held) < wanted:
        problems.append(f"{len(held)} of {wanted} mp_rank folders are there")
    told = torch_file.number(state, "iteration")
    if told is not None and told != step:
        problems.append(f"its state is of iteration {told}")
    return problems, state is not None


def _ranks_told(state: dict[Any, Any] | None, parts: int) -> int | None:
    """How many ranks there must be, by the arguments that the state keeps."""
    arguments = state.get("args") if state is not None else None
    if not isinstance(arguments, Record):
        return None
    sizes = [torch_file.number(arguments, name) for name in _SIZES]
    tensor, pipeline, expert = (size if size is not None and size > 0 else 1 for size in sizes)
    if sizes[0] is None:
        return None
    return tensor * pipeline * (expert if parts == 3 or (parts == 2 and pipeline == 1) else 1)


def _ranks_seen(ranks: tuple[tuple[int, ...], ...]) -> int:
    """How many there must be at least, by the highest of each part."""
    wanted = 1
    for place in range(max(map(len, ranks))):
        wanted *= max(rank[place] for rank in ranks if len(rank) > place) + 1
    return wanted
