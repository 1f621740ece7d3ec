"""Puts GPUs to work in a child with a deadline, and reads what it said.

Called by `health.active`. The child (`health.cuda_child`) sees only the GPUs that it is given, by UUID. What its words
mean is in `sickbay.active`.
"""

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Final

from pydantic import ValidationError

from health import cuda_child
from health.children import ChildResult, run_child
from sickbay.active.answers import CudaAnswer, CudaFailure, CudaStep, Rate, WrongData
from sickbay.model import Frozen

CHILD_DEADLINE: Final = timedelta(seconds=30)
"""For one small piece of work; a second or two on a well GPU, ten where the driver must start first."""

_ENVIRONMENT: Final = {
    "CUDA_CACHE_DISABLE": "1",  # nothing is written to the host, nor read from what an older driver left there
    "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
}


class _Line(Frozen):
    step: CudaStep | None = None
    failed: CudaFailure | None = None
    wrong: WrongData | None = None
    pci: str | None = None
    compute_mode: int | None = None
    free_bytes: int | None = None
    total_bytes: int | None = None
    peer_access: bool | None = None
    measured: str | None = None
    gigabytes_per_second: float = 0.0
    passes: int | None = None
    end: bool = False


@dataclass(frozen=True)
class Cuda:
    """The driver's library, as the child shall find it."""

    library: str = ""
    """Path of libcuda.so.1 where it is not on the loader's path."""

    def ask(
        self,
        task: str,
        visible: Sequence[str],
        deadline: timedelta = CHILD_DEADLINE,
        **order: float,
    ) -> CudaAnswer:
        """Carry out a task of `health.cuda_child` on these GPUs. Blocking, at most for the deadline and a second."""
        # Isolated from the directory and variables of whoever started us; the package itself is still found.
        command = [sys.executable, "-I", str(Path(cuda_child.__file__)), json.dumps({"task": task, **order})]
        environment = {
            **_ENVIRONMENT,
            "CUDA_VISIBLE_DEVICES": ",".join(visible),
            cuda_child.LIBRARY: self.library,
        }
        return read_answer(run_child(command, deadline, environment))


def read_answer(result: ChildResult) -> CudaAnswer:
    """What a child said, as far as it came."""
    said: dict[str, object] = {}
    rates: list[Rate] = []
    ended = False
    for line in _lines(result.stdout):
        ended = ended or line.end
        if line.measured is not None:
            rates.append(Rate(what=line.measured, gigabytes_per_second=line.gigabytes_per_second))
        known = line.model_dump(exclude_none=True, exclude={"measured", "gigabytes_per_second", "end"})
        said.update(known)
    whole = ended or "failed" in said or "wrong" in said
    return CudaAnswer.model_validate(
        {**said, "rates": rates, "timed_out": result.timed_out, "silent": "" if whole else result.words}
    )


def _lines(output: str) -> Iterator[_Line]:
    """The lines that can be read; one cut by the kill, or written by the driver's library, is left out."""
    for text in output.splitlines():
        try:
            yield _Line.model_validate_json(text)
        except ValidationError:
            continue
