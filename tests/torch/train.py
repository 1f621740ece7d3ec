"""A small training run for torchrun, on CPUs: gloo, sharded DCP checkpoints, an optimizer with a state.

Run by `test_torchrun` with an interpreter that has torch. A step's batch is cut into SHARDS parts; their gradients are
gathered and added in order, so that the weights are the same to the last bit on any number of ranks that divides it.
"""
# mypy: disable-error-code="import-not-found"

import argparse
import hashlib
import os
import signal
import sys
from pathlib import Path
from typing import Any, Final

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.elastic.multiprocessing.errors import record
from torch.distributed.tensor import Shard, distribute_tensor

SHARDS: Final = 6
WIDTH: Final = 24
SAMPLES: Final = 8


def main() -> None:
    options = _options()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    mesh = init_device_mesh("cpu", (world,))
    step, weights, momentum = _begin(options.resume, mesh)
    while step < options.steps:
        if rank == options.trouble_on and step == options.trouble_at:
            _trouble(options)
        gradient = _added([_gradient(weights, step, shard) for shard in range(SHARDS) if shard % world == rank], world)
        momentum = 0.9 * momentum + gradient
        weights = weights - 0.05 * momentum
        step += 1
        if rank == 0:
            print(f"iteration {step}/{options.steps} | grad norm: {float(gradient.norm()):.6f}", flush=True)  # noqa: T201
        if step % options.save_every == 0:
            dcp.save(_state(step, weights, momentum, mesh), checkpoint_id=options.checkpoints / f"step-{step}")
    if rank == 0:
        digest = hashlib.sha256(torch.cat([weights, momentum]).numpy().tobytes()).hexdigest()
        (options.checkpoints / "digest").write_text(digest)
    dist.barrier()
    dist.destroy_process_group()
    sys.stdout.flush()
    # Not by the interpreter's end, at which torch's threads now and then abort a process that has done all its work.
    os._exit(0)


def _begin(resume: Path | None, mesh: DeviceMesh) -> tuple[int, torch.Tensor, torch.Tensor]:
    """Step, weights and momentum of a checkpoint, whatever number of ranks wrote it; else the first ones."""
    weights = torch.randn(2 * WIDTH * WIDTH, generator=torch.Generator().manual_seed(7)) / WIDTH
    if resume is None:
        return 0, weights, torch.zeros_like(weights)
    state = _state(0, weights, torch.zeros_like(weights), mesh)
    dcp.load(state, checkpoint_id=resume)
    return int(state["step"]), state["weights"].full_tensor(), state["momentum"].full_tensor()


def _state(step: int, weights: torch.Tensor, momentum: torch.Tensor, mesh: DeviceMesh) -> dict[str, Any]:
    """What a checkpoint holds: of each tensor every rank writes its part."""
    parts = {"weights": weights, "momentum": momentum}
    return {"step": step, **{name: distribute_tensor(whole, mesh, [Shard(0)]) for name, whole in parts.items()}}


def _gradient(weights: torch.Tensor, step: int, shard: int) -> torch.Tensor:
    """Of one shard: the same numbers wherever and whenever it is computed."""
    random = torch.Generator().manual_seed(1000 * step + shard)
    inputs = torch.randn(SAMPLES, WIDTH, generator=random)
    wanted = torch.randn(SAMPLES, WIDTH, generator=random)
    leaf = weights.detach().clone().requires_grad_()
    first, second = leaf.view(2, WIDTH, WIDTH)
    (torch.tanh(inputs @ first) @ second - wanted).square().mean().backward()
    assert leaf.grad is not None
    return leaf.grad / SHARDS


def _added(own: list[torch.Tensor], world: int) -> torch.Tensor:
    """The sum over all shards, in their order and no other."""
    mine = torch.stack(own)
    whole = [torch.empty_like(mine) for _ in range(world)]
    dist.all_gather(whole, mine)
    total = torch.zeros_like(mine[0])
    for shard in range(SHARDS):
        total = total + whole[shard % world][shard // world]
    return total


def _trouble(options: argparse.Namespace) -> None:
    """Stand still until somebody kills this process, or fail as code fails."""
    if options.trouble == "raise":
        raise ValueError("the labels of shard 3 are no labels")
    (options.checkpoints / "standing").write_text(str(os.getpid()))
    signal.pause()


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--checkpoints", type=Path, required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--save-every", type=int, required=True)
    parser.add_argument("--resume", type=Path)
    parser.add_argument("--trouble", choices=("stand", "raise"))
    parser.add_argument("--trouble-on", type=int, default=-1)
    parser.add_argument("--trouble-at", type=int)
    return parser.parse_args()


if __name__ == "__main__":
    # Writes the error file of a rank that raises.
    record(main)()
