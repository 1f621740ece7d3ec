"""DeepSpeed: `global_stepN` folders, and a file `latest` that names the newest.

Without `latest` DeepSpeed warns, loads nothing, and trains from the beginning (facts: training, 3.1).
"""

import re
from collections.abc import Iterator
from typing import Final

from sickbay.checkpoints.model import CheckpointFormat, Level
from sickbay.checkpoints.tree import Candidate, Contents, Entry, Tree, Want, numbered, step_in

LATEST: Final = "latest"
_FOLDER: Final = re.compile(r"global_step(?P<step>\d+)")
_MODEL: Final = re.compile(
    r"(?:mp_rank_\d+|zero_pp_rank_\d+_mp_rank_\d+|layer_\d+-model_\d+-model)_(?:model_)?states\.pt$|"
    r"-model_states\.pt$"
)
_OPTIMIZER: Final = re.compile(r"(?:bf16_)?zero_pp_rank_(?P<data>\d+)_mp_rank_(?P<model>\d+)_optim_states\.pt$")


class DeepSpeed:
    """The format."""

    format = CheckpointFormat.DEEPSPEED

    def matches(self, tree: Tree) -> bool:
        """A folder of its own."""
        return any(_FOLDER.fullmatch(folder) for folder in tree.folders())

    def candidates(self, tree: Tree) -> Iterator[Candidate]:
        """Its folders."""
        return numbered(tree, _FOLDER, self.format)

    def wanted(self, tree: Tree, candidate: Candidate) -> tuple[Want, ...]:  # noqa: ARG002 - one shape for all formats
        """`latest`."""
        return (Want(path=LATEST),) if LATEST in tree.files else ()

    def judge(self, tree: Tree, candidate: Candidate, contents: Contents) -> tuple[Level, tuple[str, ...]]:
        """Its shards are complete, and `latest` has reached it."""
        problems = shard_problems(tree.under(candidate.path))
        if LATEST not in tree.files:
            problems.append("`latest` is missing: DeepSpeed would begin anew without a word")
        elif LATEST not in contents:
            problems.append("`latest` cannot be read")
        else:
            tag = contents[LATEST].decode(errors="replace").strip()
            newest = step_in(tag)
            if not tag:
                problems.append("`latest` is empty")
            elif newest is not None and candidate.step > newest:
                problems.append(f"`latest` says {tag}: this one is not finished")
        return (Level.LISTED if problems else Level.COMMITTED), tuple(problems)


def shard_problems(files: dict[str, Entry]) -> list[str]:
    """What is missing of model and optimizer, whose count is data-parallel ranks times model-parallel ranks."""
    names = [name.rpartition("/")[2] for name in files]
    problems = [f"{name} is empty" for name, entry in sorted(files.items()) if entry.size == 0]
    if not any(_MODEL.search(name) for name in names):
        problems.append("no model states are there")
    shards = {(int(match["data"]), int(match["model"])) for name in names if (match := _OPTIMIZER.search(name))}
    if shards:
        wanted = (max(data for data, _ in shards) + 1) * (max(model for _, model in shards) + 1)
        if len(shards) != wanted:
            problems.append(f"{len(shards)} of {wanted} optimizer shards are there")
    return problems
