"""DeepSpeed: a folder for each tag, and a file `latest` that names the newest (`pointers`).

A folder has no marker of its own. How many shards it must have stands in its model states, which are read inertly;
without them the highest ranks seen must do, and a shard that is missing at the end is not seen.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from sickbay.checkpoints import torch_file
from sickbay.checkpoints.model import CheckpointFormat, Level
from sickbay.checkpoints.pointers import LATEST, beyond
from sickbay.checkpoints.tree import (
    TEMPORARY,
    Candidate,
    Contents,
    Entry,
    Judgement,
    Tree,
    Want,
    inside,
    step_in,
)

_FOLDER: Final = re.compile(r"global_step\d+")
_MODEL: Final = re.compile(r"^(?:zero_pp_rank_(?P<data>\d+)_)?mp_rank_(?P<model>\d+)_model_states\.pt$")
_OPTIMIZER: Final = re.compile(
    r"^(?:(?:bf16|fp16)_)?zero_pp_rank_(?P<data>\d+)_mp_rank_(?P<model>\d+)_optim_states\.pt$"
)


class DeepSpeed:
    """The format."""

    format = CheckpointFormat.DEEPSPEED
    pointer = LATEST

    def matches(self, tree: Tree) -> bool:
        """A folder of its own."""
        return next(self.candidates(tree), None) is not None

    def candidates(self, tree: Tree) -> Iterator[Candidate]:
        """Folders with its shards, and those of its usual name, whose name bears a step."""
        shards = {path.partition("/")[0] for path in tree.files if path.count("/") == 1 and _is_shard(path)}
        for folder in tree.folders():
            step = step_in(folder)
            if step is not None and not TEMPORARY.search(folder) and (folder in shards or _FOLDER.fullmatch(folder)):
                yield Candidate(step=step, path=folder)

    def wanted(self, tree: Tree, candidate: Candidate) -> tuple[Want, ...]:
        """The ends of all shards, and the state of one."""
        return tuple(wanted_shards(tree.under(candidate.path), candidate.path))

    def judge(self, tree: Tree, candidate: Candidate, contents: Contents) -> Judgement:
        """Its shards are complete and whole, and `latest` has reached it."""
        problems = beyond(LATEST, contents, candidate.step)
        own, verified = shard_problems(tree.under(candidate.path), inside(contents, candidate.path))
        problems += own
        if problems:
            return Judgement(Level.LISTED, tuple(problems))
        return Judgement(Level.VERIFIED if verified else Level.COMMITTED)


def wanted_shards(files: Mapping[str, Entry], folder: str) -> Iterator[Want]:
    """What of a tag's folder must be read."""
    telling = next(iter(sorted(name for name in files if _MODEL.match(name))), None)
    for name in torch_file.tellable(files):
        path = f"{folder}/{name}"
        yield torch_file.with_state(path) if name == telling else torch_file.ends(path)


def shard_problems(files: Mapping[str, Entry], read: Contents) -> tuple[list[str], bool]:
    """What is missing of model and optimizer, and whether their number is known; shards of an earlier, larger world are
    no problem."""
    problems = [f"{name} is empty" for name, entry in sorted(files.items()) if entry.size == 0]
    problems += [words for words in torch_file.problems(files, read) if words not in problems]
    models = _ranks(files, _MODEL)
    optimizers = _ranks(files, _OPTIMIZER)
    if not models:
        return [*problems, "no model states are there"], False
    state = next((torch_file.state_of(read[name]) for name in sorted(read) if _MODEL.match(name)), None)
    data, model = torch_file.number(state, "dp_world_size"), torch_file.number(state, "mp_world_size")
    known = data is not None and model is not None
    for name, held, sharded in (
        ("model", models, any(rank is not None for rank, _ in models)),
        ("optimizer", optimizers, bool(optimizers) or _stage(state) > 0),
    ):
        ranks = (data if data is not None else _most(rank for rank, _ in held)) if sharded else 1
        places = model if model is not None else _most(place for _, place in held)
        # Counted, not listed: a name may tell any number.
        there = sum((rank is not None) == sharded and (rank or 0) < ranks and place < places for rank, place in held)
        if there < ranks * places and (sharded or name == "model"):
            problems.append(f"{there} of {ranks * places} {name} shards are there")
    return problems, known


def _ranks(files: Mapping[str, Entry], pattern: re.Pattern[str]) -> set[tuple[int | None, int]]:
    """Data-parallel and model-parallel rank of each shard; the first None where it is not sharded so."""
    return {
        (int(match["data"]) if match["data"] is not None else None, int(match["model"]))
        for name in files
        if (match := pattern.match(name))
    }


def _most(ranks: Iterable[int | None]) -> int:
    return max((rank for rank in ranks if rank is not None), default=0) + 1


def _stage(state: dict[Any, Any] | None) -> int:
    """How far ZeRO shards, by the configuration that the state keeps; 0 where nobody says."""
    config = state.get("ds_config") if state is not None else None
    zero = config.get("zero_optimization") if isinstance(config, dict) else None
    return torch_file.number(zero, "stage") or 0


def _is_shard(path: str) -> bool:
    name = path.rpartition("/")[2]
    return _MODEL.match(name) is not None or _OPTIMIZER.match(name) is not None
