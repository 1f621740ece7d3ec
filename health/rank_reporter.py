"""Tells Sickbay how a training job's ranks get on: which step, and where its time went. Copy this file into any image.

It needs Python 3.8 or newer and nothing else. A training script calls it once per step; it writes one line of JSON into
a folder of the host, which Sickbay's node agent reads to find slow ranks and hangs. It never raises, never waits for a
disk (a thread of its own writes), and does nothing at all in a process that is not part of a Sickbay job.

    from rank_reporter import Reporter

    reporter = Reporter.from_environment(rank=dist.get_rank(), role="worker", pipeline_stage=0)
    for step in range(first_step, last_step):
        with reporter.timed("data"):
            batch = next(batches)
        with reporter.timed("compute"):
            loss = model(batch); loss.backward(); torch.cuda.synchronize()
        with reporter.timed("collective"):
            all_reduce_gradients(); optimizer.step(); torch.cuda.synchronize()
        reporter.step(step, tokens=batch.numel())

What one must know to get it right:

*   `compute` is the rank's own work until it first waits for others, `collective` what it waits for them. All ranks
    leave a collective together, so that only these two tell who was late. Where backward and communication overlap
    (DDP), time the forward pass as `compute`, or use CUDA events and hand over `compute_ms=` and `collective_ms=`.
*   Give the parallelism's places (`pipeline_stage`, `expert_group`, ...): only ranks of one role, stage and expert
    group are compared. Give `tokens` (or FLOPs) where the load may be uneven: more work is no slow GPU.
*   Report every step, or every n-th; each line is about 350 bytes.

Saving a checkpoint when asked. Before a node is repaired, Sickbay asks for a checkpoint by the file `checkpoint-now` in
the attempt's folder. Ranks may see it at different steps, and one that saves alone hangs the job, so let all agree:

        wanted = torch.tensor([float(reporter.checkpoint_requested())], device="cuda")
        dist.all_reduce(wanted, op=dist.ReduceOp.MAX)
        if wanted.item() or step % 500 == 0:
            with reporter.timed("checkpoint"):
                save_checkpoint(step)
            reporter.checkpoint_done(step)

Settings, which Sickbay puts into every container of a job: SICKBAY_JOB (`namespace/name`), SICKBAY_ATTEMPT, and
SICKBAY_RANK_DIR, a folder of the host that is mounted into the pod. The lines are `sickbay.ranks.model.StepReport`'s.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import re
import sys
import threading
import time
from collections import deque
from typing import Any, Iterator  # noqa: UP035 - for Python 3.8

ROTATE_BYTES = 1_000_000
"""A file that is longer is set aside under `.old`, in the place of the one before."""
WAITING_LINES = 10_000
"""Lines that wait for a disk at most; the oldest are given up first."""
GATHER_SECONDS = 0.2
"""Between two writes: each takes the interpreter's lock from the training script for a moment."""
RETRY_SECONDS = 60.0
"""Between two tries once writing has failed."""
FAILURES_BORNE = 3
"""Failed writes in a row before a pause."""
LONGEST_GAP_SECONDS = 3600.0
"""A longer pause between two steps says nothing of the job's pace."""
REQUEST_FILE = "checkpoint-now"

_JOB = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
_PARTS = ("compute", "collective", "data", "checkpoint", "restore")


class Reporter:
    """One rank's reports of one attempt. Every method may be called in any case; without a folder they do nothing."""

    def __init__(self, folder: str | None, job: str, attempt: int, place: dict[str, Any]) -> None:
        """`folder` is the attempt's; None makes a reporter that does nothing. Scripts use `from_environment`."""
        # The same in every line, and so made once.
        always = {"job": job, "attempt": attempt, "place": place}
        self._beginning = json.dumps(always, separators=(",", ":"))[:-1] + ","
        self._request = os.path.join(folder, REQUEST_FILE) if folder else ""
        self._answered = ""
        self._timed = dict.fromkeys(_PARTS, 0.0)
        self._last = 0.0
        self._so_far: dict[str, float] = {}
        self._writer = _Writer(folder, f"rank-{place['rank']}.jsonl") if folder else None

    @classmethod
    def from_environment(
        cls,
        rank: int | None = None,
        role: str = "worker",
        pipeline_stage: int = 0,
        expert_group: int = 0,
        tensor_group: int = 0,
        data_group: int = 0,
        gpu_uuid: str = "",
    ) -> Reporter:
        """The reporter of this process. `rank` is its number in the whole job; without it, that of torchrun or of the
        pod (RANK, JOB_COMPLETION_INDEX). In a process that belongs to no Sickbay job it does nothing."""
        if rank is None:
            rank = _number(os.environ.get("RANK")) or _number(os.environ.get("JOB_COMPLETION_INDEX")) or 0
        place = {
            "rank": int(rank),
            "role": str(role),
            "pipeline_stage": int(pipeline_stage),
            "expert_group": int(expert_group),
            "tensor_group": int(tensor_group),
            "data_group": int(data_group),
            "gpu_uuid": str(gpu_uuid),
        }
        job = os.environ.get("SICKBAY_JOB", "")
        attempt = _number(os.environ.get("SICKBAY_ATTEMPT")) or 0
        root = os.environ.get("SICKBAY_RANK_DIR", "")
        if not root or attempt < 1 or not _JOB.fullmatch(job):
            return cls(None, job, attempt, place)
        return cls(os.path.join(root, job.replace("/", "_"), str(attempt)), job, attempt, place)

    def step(
        self,
        step: int,
        compute_ms: float = 0.0,
        collective_ms: float = 0.0,
        data_ms: float = 0.0,
        checkpoint_ms: float = 0.0,
        restore_ms: float = 0.0,
        tokens: float = 0.0,
    ) -> None:
        """Tell that this step is finished. What `timed` measured since the last call is added to the milliseconds."""
        if self._writer is None:
            return
        try:
            given = (compute_ms, collective_ms, data_ms, checkpoint_ms, restore_ms)
            spent = {part + "_ms": _bounded(value + self._timed[part], 1e11) for part, value in zip(_PARTS, given)}  # noqa: B905
            self._timed = dict.fromkeys(_PARTS, 0.0)
            line = {
                "step": int(step),
                "at": round(time.time(), 3),
                "tokens": _bounded(tokens, 1e30),
                "so_far": self._count(int(step), spent),
            }
            line.update(spent)
            self._writer.put(self._beginning + json.dumps(line, separators=(",", ":"))[1:])
        except Exception as error:  # noqa: BLE001 - training goes on, whatever a script hands over
            self._writer.complain(error)

    @contextlib.contextmanager
    def timed(self, part: str) -> Iterator[None]:
        """Add the time of the block to a part of this step: compute, collective, data, checkpoint or restore."""
        began = time.perf_counter()
        try:
            yield
        finally:
            if part in self._timed:
                self._timed[part] += (time.perf_counter() - began) * 1000

    def checkpoint_requested(self) -> bool:
        """Whether this rank has seen a request to checkpoint that is not answered yet. All ranks must agree on it by a
        collective before any of them saves; see the example above."""
        return bool(self._requested())

    def checkpoint_done(self, step: int) -> None:
        """Tell that the checkpoint of this step is saved: the request that is there now counts as answered."""
        del step  # the checkpoint itself tells it; named so that scripts need not change when it is wanted
        self._answered = self._requested() or self._answered

    def close(self, seconds: float = 1.0) -> None:
        """Write what still waits, for at most this long. Called by itself at the end of the process."""
        if self._writer is not None:
            self._writer.close(seconds)

    def _requested(self) -> str:
        # Nearly always there is none, which this tells without the cost of an exception.
        if not self._request or not os.access(self._request, os.F_OK):
            return ""
        try:
            with open(self._request, encoding="utf-8", errors="replace") as file:
                request = file.read(256).strip() or "?"
        except OSError:
            return ""
        return "" if request == self._answered else request

    def _count(self, step: int, spent: dict[str, float]) -> dict[str, float]:
        """What a reader must know that has not read every line since the attempt's beginning."""
        now = time.monotonic()
        so_far = self._so_far
        if not so_far:
            so_far.update(first_step=step, first_at=round(time.time(), 3), longest_gap_ms=0.0)
            so_far.update(checkpoint_ms=0.0, restore_ms=0.0)
        elif now - self._last < LONGEST_GAP_SECONDS:
            so_far["longest_gap_ms"] = max(so_far["longest_gap_ms"], round((now - self._last) * 1000, 3))
        self._last = now
        for part in ("checkpoint_ms", "restore_ms"):
            so_far[part] = round(so_far[part] + spent[part], 3)
        return so_far


class _Writer:
    """Appends lines to one file from a thread of its own, and gives up quietly for a while where that fails."""

    def __init__(self, folder: str, name: str) -> None:
        self._path = os.path.join(folder, name)
        self._lines: deque[str] = deque(maxlen=WAITING_LINES)
        self._wake, self._hurry = threading.Event(), threading.Event()
        self._process = 0
        self._put = self._done = 0
        """Lines handed over, and lines that the thread is through with."""
        self._failures = 0
        self._complained = False

    def put(self, line: str) -> None:
        """Leave a line to the thread, which a forked process must start anew."""
        self._lines.append(line)
        self._put += 1
        if self._process != os.getpid():
            self._process = os.getpid()
            self._wake, self._hurry = threading.Event(), threading.Event()
            threading.Thread(target=self._run, name="rank-reporter", daemon=True).start()
            atexit.register(self.close, 1.0)
        self._wake.set()

    def close(self, seconds: float) -> None:
        """Wait for the thread to have written everything."""
        until = time.monotonic() + seconds
        self._hurry.set()
        while self._process == os.getpid() and self._done < self._put and time.monotonic() < until:
            time.sleep(0.002)
        self._hurry.clear()

    def complain(self, error: Exception) -> None:
        """One warning, and no more."""
        if not self._complained:
            self._complained = True
            with contextlib.suppress(Exception):
                sys.stderr.write(f"sickbay: steps are not reported to {self._path}: {error}\n")

    def _run(self) -> None:
        while True:
            self._wake.wait()
            self._hurry.wait(GATHER_SECONDS)
            self._wake.clear()
            put = self._put
            try:
                self._write()
                self._failures = 0
            except Exception as error:  # noqa: BLE001 - this thread must outlive every trouble of a disk
                self._failures += 1
                if self._failures >= FAILURES_BORNE:
                    self.complain(error)
                    self._done = put
                    time.sleep(RETRY_SECONDS)
            self._done = put

    def _write(self) -> None:
        lines = []
        while self._lines:
            lines.append(self._lines.popleft())
        if not lines:
            return
        descriptor = self._open()
        try:
            # After a failed write the file may end in half a line.
            text = ("\n" * (self._failures > 0) + "\n".join(lines) + "\n").encode("utf-8")
            while text:
                text = text[os.write(descriptor, text) :]
            full = os.fstat(descriptor).st_size > ROTATE_BYTES
        finally:
            os.close(descriptor)
        if full:
            os.replace(self._path, self._path + ".old")

    def _open(self) -> int:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        try:
            return os.open(self._path, flags, 0o644)
        except FileNotFoundError:
            os.makedirs(os.path.dirname(self._path), exist_ok=True)
            return os.open(self._path, flags, 0o644)


def _number(text: str | None) -> int | None:
    return int(text) if text and text.isdecimal() and len(text) < 10 else None


def _bounded(value: float, limit: float) -> float:
    """A number that JSON and a reader can take: not negative, not infinite, not NaN."""
    number = float(value)
    return round(number, 3) if 0.0 <= number < limit else 0.0
