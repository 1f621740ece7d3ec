"""The program that asks NVML, in a process of its own that may hang or be killed at any call.

Started by `health.nvml`, by its path. It uses nothing but the standard library and pynvml, because it is started every
few seconds on every node, and says each answer at once, one JSON object a line, so that what was learned before a hang
is not lost. It judges nothing: error numbers are passed on as they are.
"""

import ctypes
import json
import os
import sys
from collections.abc import Callable
from typing import Any, Final

import pynvml

LIBRARY: Final = "SICKBAY_NVML_LIBRARY"
"""Environment name: path of the NVML library where it is not on the loader's own path."""


def say(answer: dict[str, Any]) -> None:
    """Say one answer, now."""
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


def main() -> None:
    """Ask everything once; the line `end` tells that nothing was left out."""
    try:
        load_library(os.environ.get(LIBRARY, ""))
        pynvml.nvmlInit()
        count = pynvml.nvmlDeviceGetCount()
    except pynvml.NVMLError as error:
        say({"failed": error.value})
        return
    say({"count": count})
    for index in range(count):
        say({"gpu": ask_gpu(index)})
    say({"end": True})


def load_library(path: str) -> None:
    """Load NVML from a path of our own; pynvml loads by name where there is none."""
    if not path:
        return
    try:
        pynvml.nvmlLib = ctypes.CDLL(path)
    except OSError as error:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_LIBRARY_NOT_FOUND) from error


def ask_gpu(index: int) -> dict[str, Any]:
    """All that we ask of one GPU; a question that failed is left out and its error number kept."""
    answer: dict[str, Any] = {"index": index, "errors": []}
    handle: Any = None

    def ask(question: Callable[[], dict[str, Any]]) -> None:
        try:
            answer.update(question())
        except pynvml.NVMLError as error:
            answer["errors"].append(error.value)

    try:
        handle = pynvml.nvmlDeviceGetHandleByIndex(index)
    except pynvml.NVMLError as error:
        return {**answer, "errors": [error.value]}
    ask(lambda: {"uuid": pynvml.nvmlDeviceGetUUID(handle)})
    ask(lambda: {"pci": pynvml.nvmlDeviceGetPciInfo(handle).busId})
    ask(lambda: recovery_action(handle))
    ask(lambda: row_remapping(handle))
    ask(lambda: {"process_count": len(pynvml.nvmlDeviceGetComputeRunningProcesses(handle))})
    return answer


def recovery_action(handle: Any) -> dict[str, Any]:
    """Field 230, the driver's own verdict; drivers that do not know it answer with an error for the field."""
    (field,) = pynvml.nvmlDeviceGetFieldValues(handle, [pynvml.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION])
    if field.nvmlReturn != pynvml.NVML_SUCCESS:
        raise pynvml.NVMLError(field.nvmlReturn)
    return {"recovery_action": field.value.uiVal}


def row_remapping(handle: Any) -> dict[str, Any]:
    """Whether a row of memory waits for a reset to be remapped, and whether one could not be."""
    _, _, pending, failed = pynvml.nvmlDeviceGetRemappedRows(handle)
    return {"remap_pending": bool(pending), "remap_failed": bool(failed)}


if __name__ == "__main__":
    main()
