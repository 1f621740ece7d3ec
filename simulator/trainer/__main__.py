"""One rank of a small data-parallel training run: `python -m simulator.trainer --steps 200 --save-every 20`.

Real where it matters to Sickbay: real processes, sockets, files and signals, the variables that every attempt gets, the
rank reporter, checkpoints with a manifest written last. The model is a linear one in NumPy. A step's batch is cut into
SHARDS parts whose gradients are added in order, so that the weights are the same to the last bit for any number of
ranks and any number of restarts. It fails as real trainers do: what its machine's devices show (`devices.json`, and
`trouble.json` for tests) becomes the words that CUDA and NCCL would print.
"""

import argparse
import hashlib
import importlib.util
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any, Final

import numpy as np

from simulator.trainer.ring import PeerLostError, Ring
from simulator.trainer.saving import BrokenCheckpointError, load, save

SHARDS: Final = 12
"""Parts of a step's batch: divided by 1, 2, 3, 4, 6 and 12 ranks."""
WIDTH: Final = 32
SAMPLES: Final = 16
RATE: Final = 0.05
NOISE: Final = 0.5
"""In what it learns, so that its loss falls to a floor, as losses do."""


def main() -> int:
    """Train; the exit code."""
    options = _options()
    rank, world = int(os.environ.get("JOB_COMPLETION_INDEX", "0")), int(os.environ.get("SICKBAY_NODES", "1"))
    attempt = int(os.environ.get("SICKBAY_ATTEMPT", "1"))
    job = os.environ.get("SICKBAY_JOB", "default/run").partition("/")[2]
    signal.signal(signal.SIGTERM, _on_sigterm)
    try:
        step, weights = _begin()
        ring = Ring(rank, world, f"{job}-a{attempt}-0")
        return _train(options, ring, step, weights, attempt)
    except PeerLostError as error:
        print(f"[rank{rank}]: ncclRemoteError: remote process exited or there was a network error: {error}", flush=True)
        return 1
    except BrokenCheckpointError as error:
        print(f"[rank{rank}]: RuntimeError: {error}", flush=True)
        return 1


def _train(options: argparse.Namespace, ring: Ring, step: int, weights: Any, attempt: int) -> int:
    reporter = _reporter(ring.rank)
    url = os.environ.get("SICKBAY_CHECKPOINT_URL", "")
    while step < options.steps:
        began = time.monotonic()
        _suffer(ring.rank)
        own = {shard: _backward(weights, step, shard) for shard in range(SHARDS) if shard % ring.world == ring.rank}
        if _trouble().get("nan"):
            own = {shard: [float("nan")] * (WIDTH + 1) for shard in own}
        time.sleep(options.step_seconds * float(_trouble().get("slow", 1)))
        computed = time.monotonic()
        wishes = bool(reporter and reporter.checkpoint_requested())
        whole = ring.gather({**own, -1 - ring.rank: wishes})
        answer = ring.spread(_added(whole, ring.rank) if ring.rank == 0 else None)
        waited = time.monotonic()
        if answer["bad"]:
            return _no_numbers(ring, step + 1, [shard for shard in answer["bad"] if shard in own])
        loss, *gradient = answer["sum"]
        weights = weights - RATE * np.asarray(gradient)
        step += 1
        saved = 0.0
        if step % options.save_every == 0 or answer["wished"] or step >= options.steps:
            if ring.rank == 0:
                save(url, step, weights, attempt=attempt, world=ring.world)
            # No rank goes on, nor tells that a checkpoint is done, before it is.
            ring.spread(step)
            saved = time.monotonic() - waited
            if reporter:
                reporter.checkpoint_done(step)
        if reporter:
            reporter.step(
                step,
                compute_ms=(computed - began) * 1000,
                collective_ms=(waited - computed) * 1000,
                checkpoint_ms=saved * 1000,
                tokens=SHARDS * SAMPLES,
            )
        if step % 10 == 0:
            print(f"iteration {step}/{options.steps} | loss: {loss:.6f}", flush=True)
    if reporter:
        reporter.close()
    print(f"weights {digest(weights)} at step {step}", flush=True)
    return 0


def _no_numbers(ring: Ring, step: int, shards: list[int]) -> int:
    """A rank tells of its own shards alone; the others only see that it leaves."""
    if not shards:
        raise PeerLostError("Connection closed by remote peer")
    print(f"[rank{ring.rank}]: found NaN in local grad norm at iteration {step}, shards {shards}", flush=True)
    return 1


def digest(weights: Any) -> str:
    """The weights to the last bit, in short."""
    return hashlib.sha256(np.ascontiguousarray(weights, dtype=np.float64).tobytes()).hexdigest()


def _begin() -> tuple[int, Any]:
    """Step and weights to begin with: of the checkpoint that the attempt was given, else the first."""
    path, step = os.environ.get("SICKBAY_RESUME_FROM", ""), os.environ.get("SICKBAY_RESUME_STEP", "")
    if path:
        return int(step), load(path, int(step))
    return 0, np.random.default_rng(7).standard_normal(WIDTH)


def _backward(weights: Any, step: int, shard: int) -> list[float]:
    """Loss and gradient of one shard: the same numbers wherever and whenever they are computed."""
    random = np.random.default_rng([11, step, shard])
    inputs = random.standard_normal((SAMPLES, WIDTH))
    wanted = inputs @ np.arange(WIDTH) / WIDTH + NOISE * random.standard_normal(SAMPLES)
    missed = inputs @ weights - wanted
    parts: list[float] = [float(missed @ missed / 2), *(inputs.T @ missed).tolist()]
    return [part / (SAMPLES * SHARDS) for part in parts]


def _added(whole: dict[int, Any], rank: int) -> dict[str, Any]:
    """The sum in order of the shards, which shards are no numbers, and whether any rank was asked to save."""
    assert rank == 0
    total = np.zeros(WIDTH + 1)
    for shard in range(SHARDS):
        total = total + np.asarray(whole[shard])
    bad = [shard for shard in range(SHARDS) if not np.isfinite(whole[shard]).all()]
    return {"sum": total.tolist(), "bad": bad, "wished": any(whole[key] for key in whole if key < 0)}


def _suffer(rank: int) -> None:
    """What CUDA would say of a device that its machine has lost."""
    lost = _read("devices.json").get("lost")
    if lost:
        print(
            f"[rank{rank}]: RuntimeError: CUDA error: uncorrectable ECC error encountered (device {lost[0]})",
            flush=True,
        )
        os._exit(1)


def _trouble() -> dict[str, Any]:
    return _read("trouble.json")


def _read(name: str) -> dict[str, Any]:
    path = Path(os.environ.get("SIMULATOR_HOST", "/nonexistent")) / name
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def _reporter(rank: int) -> Any:
    """The real reporter, loaded as a training image would have it: by its file."""
    path = os.environ.get("SICKBAY_REPORTER", "")
    spec = importlib.util.spec_from_file_location("rank_reporter", path) if path else None
    if spec is None or spec.loader is None:
        return None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.Reporter.from_environment(rank=rank)


def _on_sigterm(*_: object) -> None:
    # Not `print`, which may be what the signal has interrupted.
    os.write(sys.stdout.fileno(), b"Received 15 death signal, shutting down\n")
    os._exit(143)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="simulator.trainer")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--save-every", type=int, default=20)
    parser.add_argument("--step-seconds", type=float, default=0.03)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
