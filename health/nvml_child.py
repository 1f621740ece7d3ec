"""The program that asks NVML, in a process of its own that may hang or be killed at any call.

Started by `health.nvml`, by its path. It uses nothing but the standard library and pynvml, because it is started every
few seconds on every node, and says each answer at once, one JSON object a line, so that what was learned before a hang
is not lost. It judges nothing: error numbers are passed on as they are. What is asked of each GPU is in
`health.nvml_questions`.
"""

import ctypes
import json
import os
import sys
from typing import Any, Final

import pynvml

from health.nvml_questions import questions

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
    version = driver_version()
    say({"count": count, "driver_version": version})
    for index in range(count):
        say({"gpu": ask_gpu(index, version)})
    say({"end": True})


def load_library(path: str) -> None:
    """Load NVML from a path of our own; pynvml loads by name where there is none."""
    if not path:
        return
    try:
        pynvml.nvmlLib = ctypes.CDLL(path)
    except OSError as error:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_LIBRARY_NOT_FOUND) from error


def driver_version() -> str:
    """The driver's version, e.g. `580.95.05`; empty if it does not tell."""
    try:
        return str(pynvml.nvmlSystemGetDriverVersion())
    except pynvml.NVMLError:
        return ""


def ask_gpu(index: int, version: str) -> dict[str, Any]:
    """All that we ask of one GPU; a question that failed is left out and its error number kept."""
    answer: dict[str, Any] = {"index": index, "errors": [], "unanswered": {}}
    try:
        handle = pynvml.nvmlDeviceGetHandleByIndex(index)
    except pynvml.NVMLError as error:
        return {**answer, "errors": [error.value]}
    for name, question in questions(version).items():
        try:
            answer.update(question(handle))
        except (pynvml.NVMLError, pynvml.NVMLLibraryMismatchError) as error:
            # The second is how pynvml says that the library has only an older form of a function.
            code = getattr(error, "value", pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)
            answer["errors"].append(code)
            answer["unanswered"][name] = code
            if code == pynvml.NVML_ERROR_GPU_IS_LOST:
                break
    return answer


if __name__ == "__main__":
    main()
