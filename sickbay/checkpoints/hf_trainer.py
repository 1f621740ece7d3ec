"""Hugging Face's Trainer: `checkpoint-N` folders; `trainer_state.json` is written last.

The library takes the highest N without a look inside, and fails on each start if the newest was cut (facts: training,
3.4.1). Weights in safetensors tell their own length.
"""

import json
import re
import struct
from collections.abc import Iterator, Mapping
from typing import Any, Final

from sickbay.checkpoints.deepspeed import shard_problems
from sickbay.checkpoints.model import CheckpointFormat, Level
from sickbay.checkpoints.tree import HEAD, Candidate, Contents, Entry, Tree, Want, missing, numbered

STATE: Final = "trainer_state.json"
_FOLDER: Final = re.compile(r"checkpoint-(?P<step>\d+)")
_INDICES: Final = ("model.safetensors.index.json", "pytorch_model.bin.index.json")
_WEIGHTS: Final = ("model.safetensors", "pytorch_model.bin", "adapter_model.safetensors", "adapter_model.bin")
_RANDOM: Final = re.compile(r"rng_state_(\d+)\.pth$")
_SHARDED: Final = re.compile(r"^(?:pytorch_model_fsdp_\d+|global_step\d+|optimizer_\d+)/|^pytorch_model_fsdp\.bin$")


class HfTrainer:
    """The format."""

    format = CheckpointFormat.HF_TRAINER

    def matches(self, tree: Tree) -> bool:
        """A folder of its own."""
        return any(_FOLDER.fullmatch(folder) for folder in tree.folders())

    def candidates(self, tree: Tree) -> Iterator[Candidate]:
        """Its folders."""
        return numbered(tree, _FOLDER, self.format)

    def wanted(self, tree: Tree, candidate: Candidate) -> tuple[Want, ...]:
        """State and index whole, the heads of safetensors."""
        files = tree.under(candidate.path)
        whole = [name for name in (STATE, *_INDICES) if name in files]
        heads = [name for name in files if name.endswith(".safetensors")]
        return (
            *(Want(path=f"{candidate.path}/{name}") for name in whole),
            *(Want(path=f"{candidate.path}/{name}", first=HEAD) for name in heads),
        )

    def judge(self, tree: Tree, candidate: Candidate, contents: Contents) -> tuple[Level, tuple[str, ...]]:
        """The state names this step, and weights, optimizer and random states are complete."""
        files = tree.under(candidate.path)
        inside = {path.removeprefix(candidate.path + "/"): data for path, data in contents.items()}
        problems = _state_problems(files, inside, candidate.step)
        weights, lengths_known = _weight_problems(files, inside)
        problems += weights + _optimizer_problems(files) + _random_problems(files)
        if problems:
            return Level.LISTED, tuple(problems)
        return (Level.VERIFIED if lengths_known else Level.COMMITTED), ()


def _state_problems(files: Mapping[str, Entry], contents: Contents, step: int) -> list[str]:
    if STATE not in files:
        return [f"{STATE} is missing: the save never ended"]
    state = _json(contents.get(STATE))
    if not isinstance(state, dict):
        return [f"{STATE} cannot be read"]
    told = state.get("global_step")
    return [] if told == step else [f"{STATE} is of step {told}"]


def _weight_problems(files: Mapping[str, Entry], contents: Contents) -> tuple[list[str], bool]:
    """What is wrong with the weights, and whether their lengths are known to be right."""
    index = next((name for name in _INDICES if name in files), None)
    if index is not None:
        content = _json(contents.get(index))
        weights = content.get("weight_map") if isinstance(content, dict) else None
        if not isinstance(weights, dict):
            return [f"{index} cannot be read"], False
        shards = sorted({str(name) for name in weights.values()})
        problems = missing(files, shards)
    elif whole := [name for name in _WEIGHTS if name in files]:
        shards, problems = whole[:1], missing(files, whole[:1])
    elif any(_SHARDED.match(name) for name in files):
        shards = []
        inner = {name: entry for name, entry in files.items() if name.startswith("global_step")}
        problems = shard_problems(inner) if inner else []
    else:
        return ["no weights are there"], False
    tensors = [name for name in shards if name.endswith(".safetensors") and name in files]
    problems += [
        problem for name in tensors if (problem := safetensors_problem(name, files[name].size, contents.get(name)))
    ]
    return problems, bool(shards) and len(tensors) == len(shards)


def safetensors_problem(name: str, size: int, head: bytes | None) -> str:
    """What its own header says against a safetensors file; empty if it agrees, or is longer than what was read."""
    if head is None:
        return f"{name} cannot be read"
    if len(head) < 8:
        return f"{name} has {size} bytes, less than a header"
    (length,) = struct.unpack("<Q", head[:8])
    if 8 + length > size:
        return f"{name} is cut within its header"
    if 8 + length > len(head):
        return ""
    header = _json(head[8 : 8 + length])
    if not isinstance(header, dict):
        return f"{name}: its header cannot be read"
    ends = [value["data_offsets"][1] for key, value in header.items() if key != "__metadata__" and _is_tensor(value)]
    wanted = 8 + length + max(ends, default=0)
    return "" if size == wanted else f"{name} has {size} bytes, and its header tells {wanted}"


def _is_tensor(value: Any) -> bool:
    offsets = value.get("data_offsets") if isinstance(value, dict) else None
    return isinstance(offsets, list) and len(offsets) == 2 and isinstance(offsets[1], int)


def _optimizer_problems(files: Mapping[str, Entry]) -> list[str]:
    if any(name.startswith(("global_step", "optimizer_")) for name in files):
        return []
    return missing(files, ("optimizer.pt",)) if "optimizer.bin" not in files else missing(files, ("optimizer.bin",))


def _random_problems(files: Mapping[str, Entry]) -> list[str]:
    ranks = {int(match.group(1)) for name in files if (match := _RANDOM.search(name))}
    if not ranks:
        return []
    absent = sorted(set(range(max(ranks) + 1)) - ranks)
    return [f"rng_state_{rank}.pth is missing" for rank in absent[:4]]


def _json(data: bytes | None) -> Any:
    try:
        return json.loads(data) if data is not None else None
    except (ValueError, RecursionError):
        return None
