"""Hugging Face's Trainer: `checkpoint-N` folders; `trainer_state.json` is written last.

The library takes the highest N without a look inside, and fails on each start if the newest was cut (facts: training,
3.4.1). Without scheduler or optimizer it goes on silently with neither. Under FSDP or DeepSpeed a checkpoint holds a
folder of theirs, which must be whole too.
"""

import re
import struct
from collections.abc import Iterator, Mapping
from typing import Any, Final

from sickbay.checkpoints import torch_file
from sickbay.checkpoints.dcp import METADATA, part_problems
from sickbay.checkpoints.deepspeed import shard_problems, wanted_shards
from sickbay.checkpoints.model import CheckpointFormat, Level
from sickbay.checkpoints.pointers import LATEST
from sickbay.checkpoints.tree import (
    HEAD,
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
    text,
)

STATE: Final = "trainer_state.json"
_FOLDER: Final = re.compile(r"checkpoint-(?P<step>\d+)")
_INDICES: Final = (
    "model.safetensors.index.json",
    "pytorch_model.bin.index.json",
    "adapter_model.safetensors.index.json",
)
_WEIGHTS: Final = ("model.safetensors", "pytorch_model.bin", "adapter_model.safetensors", "adapter_model.bin")
_RANDOM: Final = re.compile(r"rng_state_(\d+)\.pth$")
_FSDP: Final = re.compile(r"^((?:pytorch_model_fsdp|optimizer)_\d+)/")
_FSDP_WHOLE: Final = ("pytorch_model_fsdp.bin", "optimizer.bin")
_DEEPSPEED: Final = re.compile(r"^(global_step\d+)/")


class HfTrainer:
    """The format."""

    format = CheckpointFormat.HF_TRAINER
    pointer = ""

    def matches(self, tree: Tree) -> bool:
        """A folder of its own."""
        return any(_FOLDER.fullmatch(folder) for folder in tree.folders())

    def candidates(self, tree: Tree) -> Iterator[Candidate]:
        """Its folders."""
        return numbered(tree, _FOLDER)

    def wanted(self, tree: Tree, candidate: Candidate) -> tuple[Want, ...]:
        """State, indices and metadata whole, the heads of safetensors, the ends of torch's files."""
        files = tree.under(candidate.path)
        tag = _folder(files, _DEEPSPEED)
        names = [STATE, *_INDICES, LATEST, *(f"{folder}/{METADATA}" for folder in _folders(files, _FSDP))]
        wants = [Want(path=f"{candidate.path}/{name}") for name in names if name in files]
        wants += [
            Want(path=f"{candidate.path}/{name}", first=HEAD)
            for name in files
            if name.endswith(".safetensors") and "/" not in name
        ]
        wants += [torch_file.ends(f"{candidate.path}/{name}") for name in torch_file.tellable(files) if "/" not in name]
        if tag:
            wants += wanted_shards(tree.under(f"{candidate.path}/{tag}"), f"{candidate.path}/{tag}")
        return tuple(wants)

    def judge(self, tree: Tree, candidate: Candidate, contents: Contents) -> Judgement:
        """The state names this step, and weights, optimizer and random states are complete."""
        files, read = tree.under(candidate.path), inside(contents, candidate.path)
        problems = _state_problems(files, read, candidate.step)
        weights, lengths_known = _weight_problems(files, read)
        top = {name: data for name, data in read.items() if "/" not in name}
        problems += weights + torch_file.problems(files, top) + _random_problems(files)
        problems += _sharded_problems(files, read) if _is_sharded(files) else _optimizer_problems(files)
        if problems:
            return Judgement(Level.LISTED, tuple(dict.fromkeys(problems)))
        return Judgement(Level.VERIFIED if lengths_known else Level.COMMITTED)


def _state_problems(files: Mapping[str, Entry], read: Contents, step: int | None) -> list[str]:
    if STATE not in files:
        return [f"{STATE} is missing: the save never ended"]
    if STATE not in read:
        return []
    state = json_in(read[STATE])
    if not isinstance(state, dict):
        return [f"{STATE} is cut or no JSON"]
    told = state.get("global_step")
    return [] if told == step else [f"{STATE} is of step {told}"]


def _weight_problems(files: Mapping[str, Entry], read: Contents) -> tuple[list[str], bool]:
    """What is wrong with the weights, and whether all their lengths are known to be right."""
    index = next((name for name in _INDICES if name in files), None)
    if index is not None:
        if index not in read:
            return [], False
        content = json_in(read[index])
        weights = content.get("weight_map") if isinstance(content, dict) else None
        if not isinstance(weights, dict) or not weights:
            return [f"{index} is cut or no JSON"], False
        shards = sorted({str(name) for name in weights.values()})
    else:
        shards = [name for name in _WEIGHTS if name in files][:1]
        if not shards:
            return ([] if _is_sharded(files) else ["no weights are there"]), _is_sharded(files)
    problems, known = missing(files, shards), True
    for name in shards:
        if name.endswith(".safetensors") and name in files and name in read:
            words, told = safetensors_problem(name, files[name].size, read[name])
            problems += [words] if words else []
            known = known and told
    return problems, known


def safetensors_problem(name: str, size: int, head: bytes) -> tuple[str, bool]:
    """What its own header says against a safetensors file, empty if nothing; and whether the header could tell: it may
    be longer than what was read."""
    if len(head) < 8:
        return f"{name} has {size} bytes, less than a header", True
    (length,) = struct.unpack("<Q", head[:8])
    if 8 + length > size:
        return f"{name} is cut within its header", True
    if 8 + length > len(head):
        return "", False
    header = json_in(head[8 : 8 + length])
    if not isinstance(header, dict):
        return f"{name}: its header cannot be understood", True
    ends = [value["data_offsets"][1] for key, value in header.items() if key != "__metadata__" and _is_tensor(value)]
    wanted = 8 + length + max(ends, default=0)
    return ("" if size == wanted else f"{name} has {size} bytes, and its header tells {wanted}"), True


def _is_tensor(value: Any) -> bool:
    offsets = value.get("data_offsets") if isinstance(value, dict) else None
    return isinstance(offsets, list) and len(offsets) == 2 and isinstance(offsets[1], int)


def _optimizer_problems(files: Mapping[str, Entry]) -> list[str]:
    """The library takes neither of the two if one is missing, and does not say so."""
    return missing(files, ("optimizer.pt", "scheduler.pt"))


def _is_sharded(files: Mapping[str, Entry]) -> bool:
    return bool(_folders(files, _FSDP) or _folder(files, _DEEPSPEED)) or any(name in files for name in _FSDP_WHOLE)


def _sharded_problems(files: Mapping[str, Entry], read: Contents) -> list[str]:
    """What is wrong with the folders of FSDP or DeepSpeed."""
    if tag := _folder(files, _DEEPSPEED):
        shards, _ = shard_problems(_under(files, tag), inside(read, tag))
        pointer = missing(files, (LATEST,))
        told = text(read.get(LATEST))
        if not pointer and told is not None and told != tag:
            pointer = [f"{LATEST} says {told[:60]!r}, and {tag} is there"]
        return pointer + shards
    problems = []
    for folder in _folders(files, _FSDP):
        parts, _ = part_problems(_under(files, folder), read.get(f"{folder}/{METADATA}"))
        problems += [f"{folder}/{words}" for words in parts]
    kinds = {folder.rpartition("_")[0] for folder in _folders(files, _FSDP)}
    if kinds == {"pytorch_model_fsdp"} and "optimizer.bin" not in files:
        problems.append("no optimizer is there")
    if kinds == {"optimizer"}:
        problems.append("no folder of weights is there")
    return problems + missing(files, [name for name in _FSDP_WHOLE if name in files] if kinds else _FSDP_WHOLE)


def _under(files: Mapping[str, Entry], folder: str) -> dict[str, Entry]:
    return {path[len(folder) + 1 :]: entry for path, entry in files.items() if path.startswith(folder + "/")}


def _folders(files: Mapping[str, Entry], pattern: re.Pattern[str]) -> list[str]:
    return sorted({match.group(1) for name in files if (match := pattern.match(name))})


def _folder(files: Mapping[str, Entry], pattern: re.Pattern[str]) -> str:
    """The newest that matches; empty if none does."""
    return max(_folders(files, pattern), key=lambda name: (len(name), name), default="")


def _random_problems(files: Mapping[str, Entry]) -> list[str]:
    """Every rank has its random state, up to the highest that is there; a lone rank's file bears no number."""
    ranks = {int(match.group(1)[:9]) for name in files if (match := _RANDOM.match(name))}
    if not ranks:
        return []
    absent = [rank for rank in range(min(max(*ranks, 1) + 1, len(ranks) + 1)) if rank not in ranks]
    return [f"rng_state_{rank}.pth is missing" for rank in absent]
