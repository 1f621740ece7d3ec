"""Whole checkpoints of every layout, built byte by byte as the libraries write them, without the libraries."""

import io
import json
import pickle
import sys
import zipfile
from argparse import Namespace
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from types import ModuleType
from typing import Any, Final

from sickbay.checkpoints.model import Checkpoint, CheckpointFormat
from sickbay.checkpoints.survey import survey
from sickbay.checkpoints.tree import Contents, Entry, Tree, Want

WRITTEN: Final = datetime(2026, 11, 1, 12, tzinfo=UTC)
Files = dict[str, bytes]


def torch_file(content: Any) -> bytes:
    """What `torch.save` writes of plain objects: a stored zip with the pickle first."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr("archive/data.pkl", pickle.dumps(content, 2))
        archive.writestr("archive/byteorder", "little")
        archive.writestr("archive/data/0", bytes(64))
        archive.writestr("archive/version", "3\n")
    return buffer.getvalue()


def safetensors(floats: int = 4) -> bytes:
    """One tensor."""
    header = json.dumps({"w": {"dtype": "F32", "shape": [floats], "data_offsets": [0, 4 * floats]}}).encode()
    return len(header).to_bytes(8, "little") + header + bytes(4 * floats)


def dcp_metadata(parts: Mapping[str, int]) -> bytes:
    """The pickle of `torch.distributed.checkpoint.metadata.Metadata`, one piece for each part."""
    names = ("torch", "torch.distributed", "torch.distributed.checkpoint", "torch.distributed.checkpoint.metadata",
             "torch.distributed.checkpoint.filesystem")  # fmt: skip
    saved = {name: sys.modules.get(name) for name in names}
    for name in names:
        sys.modules[name] = ModuleType(name)
    try:
        metadata = _class(names[3], "Metadata")
        index = _class(names[3], "MetadataIndex")
        info = _class(names[4], "_StorageInfo")
        pieces = {}
        for name, length in parts.items():
            key = _with(index(), fqn=f"model.{name}", offset=None, index=None)
            pieces[key] = _with(info(), relative_path=name, offset=0, length=length)
        return pickle.dumps(_with(metadata(), state_dict_metadata={}, planner_data=None, storage_data=pieces))
    finally:
        for name, module in saved.items():
            if module is None:
                del sys.modules[name]
            else:
                sys.modules[name] = module


def _class(module: str, name: str) -> type:
    made = type(name, (), {"__module__": module})
    setattr(sys.modules[module], name, made)
    return made


def _with(item: Any, **fields: Any) -> Any:
    item.__dict__.update(fields)
    return item


def dcp(step: int = 100, ranks: int = 2) -> Files:
    """`torch.distributed.checkpoint.save`."""
    parts = {f"__{rank}_0.distcp": 100 + rank for rank in range(ranks)}
    folder = f"step_{step}"
    return {
        **{f"{folder}/{name}": bytes(length) for name, length in parts.items()},
        f"{folder}/.metadata": dcp_metadata(parts),
    }


def megatron(step: int = 100) -> Files:
    """Megatron's distributed form."""
    folder = f"iter_{step:07d}"
    inner = {name.partition("/")[2]: data for name, data in dcp(step).items()}
    return {
        **{f"{folder}/{name}": data for name, data in inner.items()},
        f"{folder}/metadata.json": b'{"sharded_backend": "torch_dist", "sharded_backend_version": 1}',
        f"{folder}/common.pt": torch_file({"iteration": step}),
        "latest_checkpointed_iteration.txt": str(step).encode(),
    }


def megatron_by_rank(step: int = 100) -> Files:
    """Megatron's older form, two tensor-parallel ranks."""
    told = Namespace(tensor_model_parallel_size=2, pipeline_model_parallel_size=1, expert_model_parallel_size=1)
    state = torch_file({"args": told, "iteration": step})
    folder = f"iter_{step:07d}"
    ranks = {f"{folder}/mp_rank_{rank:02d}/model_optim_rng.pt": state for rank in range(2)}
    return {**ranks, "latest_checkpointed_iteration.txt": str(step).encode()}


def deepspeed(step: int = 100) -> Files:
    """ZeRO over two data-parallel ranks."""
    folder = f"global_step{step}"
    model = torch_file({"dp_world_size": 2, "mp_world_size": 1, "ds_config": {"zero_optimization": {"stage": 2}}})
    shards = {f"{folder}/zero_pp_rank_{rank}_mp_rank_00_optim_states.pt": torch_file({}) for rank in range(2)}
    return {f"{folder}/mp_rank_00_model_states.pt": model, **shards, "latest": folder.encode()}


def orbax(step: int = 100) -> Files:
    """One item of arrays."""
    described = {"item_handlers": {"state": "x.StandardCheckpointHandler"}, "commit_timestamp_nsecs": 7}
    return {
        f"{step}/_CHECKPOINT_METADATA": json.dumps(described).encode(),
        f"{step}/state/_METADATA": b'{"tree_metadata": {}, "use_ocdbt": true}',
        f"{step}/state/manifest.ocdbt": b"\x0c\xdb",
        f"{step}/state/d/0123": bytes(32),
    }


def hf_trainer(step: int = 100) -> Files:
    """Two shards of weights, two ranks."""
    folder = f"checkpoint-{step}"
    index = {"weight_map": {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}}
    return {
        f"{folder}/model-00001-of-00002.safetensors": safetensors(),
        f"{folder}/model-00002-of-00002.safetensors": safetensors(8),
        f"{folder}/model.safetensors.index.json": json.dumps(index).encode(),
        f"{folder}/optimizer.pt": torch_file({"state": {}}),
        f"{folder}/scheduler.pt": torch_file({"last_epoch": 1}),
        f"{folder}/rng_state_0.pth": torch_file({"python": 1}),
        f"{folder}/rng_state_1.pth": torch_file({"python": 2}),
        f"{folder}/trainer_state.json": json.dumps({"global_step": step, "epoch": 1.0}).encode(),
    }


def lightning(step: int = 100) -> Files:
    """One file."""
    return {f"epoch=1-step={step}.ckpt": torch_file({"global_step": step})}


def manifest(step: int = 100) -> Files:
    """A folder with a list of its files."""
    files = [
        {
            "path": "weights.npz",
            "size": 32,
            "sha256": "66687aadf862bd776c8fc18b8e9f8e20089714856ee233b3902a591d0d5f2925",
        }
    ]
    folder = f"step-{step:08d}"
    listed = json.dumps({"step": step, "attempt": 1, "files": files}).encode()
    return {f"{folder}/weights.npz": bytes(32), f"{folder}/manifest.json": listed}


LAYOUTS: Final[dict[str, Callable[..., Files]]] = {
    made.__name__: made for made in (dcp, megatron, megatron_by_rank, deepspeed, orbax, hf_trainer, lightning, manifest)
}


def without(files: Files, *ends: str) -> Files:
    """Files but for those whose name ends so. At least one must."""
    assert any(name.endswith(ends) for name in files)
    return {name: data for name, data in files.items() if not name.endswith(ends)}


def surveyed(
    files: Mapping[str, bytes],
    kind: CheckpointFormat = CheckpointFormat.AUTO,
    *,
    unreadable: Iterable[str] = (),
    later: Iterable[str] = (),
    newest: int = 20,
) -> tuple[tuple[Checkpoint, ...], tuple[str, ...]]:
    """What the survey makes of these files. Those in `later` were written an hour after the others."""
    refused, late = frozenset(unreadable), frozenset(later)

    def read(wants: tuple[Want, ...]) -> Contents:
        return {want.path: _wanted(files[want.path], want) for want in wants if want.path not in refused}

    moments = {name: WRITTEN + timedelta(hours=name in late) for name in files}
    tree = Tree((Entry(name, len(data), moments[name]) for name, data in files.items()), "run")
    return survey(tree, kind, "/run", read, newest=newest)


def steps(files: Mapping[str, bytes], **more: Any) -> dict[int, bool]:
    """Which steps are found, and whether each may be resumed from."""
    return {each.step: each.may_resume for each in surveyed(files, **more)[0]}


def _wanted(data: bytes, want: Want) -> bytes:
    if want.whole or len(data) <= want.first + want.last:
        return data
    return data[: want.first] + (data[-want.last :] if want.last else b"")
