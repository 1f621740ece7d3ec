"""The NVML layer: asks the driver through a child with a hard deadline, and reads what the child said.

Called by `health.nvml_check`. The meaning of the answers is in `sickbay.gpu_readings`. When earlier children hang in
the driver for good, no more are started: each would hang too and hold a process until the reboot.
"""

import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Final

from pydantic import ValidationError

from health import nvml_child
from health.children import ChildResult, leaked_children, run_child
from sickbay.gpu_readings import GpuAnswer, NvmlAnswer
from sickbay.model import Frozen

MAX_LEAKED: Final = 3
"""Children stuck in the driver after which we stop asking."""


class _Line(Frozen):
    count: int | None = None
    driver_version: str = ""
    failed: int | None = None
    gpu: GpuAnswer | None = None
    end: bool = False


def ask_nvml(deadline: timedelta, library: str = "") -> NvmlAnswer:
    """One full pass over all GPUs. Blocking, at most for the deadline and a second; raises nothing."""
    if leaked_children() >= MAX_LEAKED:
        return NvmlAnswer(silent=f"{leaked_children()} earlier children hang in the driver")
    # Isolated from the directory and variables of whoever started us; site-packages, where pynvml is, stay.
    command = [sys.executable, "-I", str(Path(nvml_child.__file__))]
    return read_answer(run_child(command, deadline, {nvml_child.LIBRARY: library}))


def read_answer(result: ChildResult) -> NvmlAnswer:
    """What a child said, as far as it came."""
    lines = tuple(_lines(result.stdout))
    failed = next((line.failed for line in lines if line.failed is not None), None)
    ended = failed is not None or any(line.end for line in lines)
    return NvmlAnswer(
        count=next((line.count for line in lines if line.count is not None), None),
        driver_version=next((line.driver_version for line in lines if line.driver_version), ""),
        failed=failed,
        gpus=tuple(line.gpu for line in lines if line.gpu is not None),
        silent="" if ended else result.words,
    )


def _lines(output: str) -> Iterator[_Line]:
    """The lines that can be read; a line cut by the kill, or written by the driver's library, is left out."""
    for text in output.splitlines():
        try:
            yield _Line.model_validate_json(text)
        except ValidationError:
            continue
