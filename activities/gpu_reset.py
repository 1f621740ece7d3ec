"""Resets GPUs through nvidia-smi, and puts its refusals into words.

Used by `activities.host`. Exit codes: nvidia-smi's manual, section RETURN VALUE (facts: remediation, 4).
"""

from datetime import timedelta
from typing import Final

from health.children import ChildResult, run_child

_MEANINGS: Final = {
    2: "it does not know this GPU or option",
    3: "this GPU or virtual machine does not support a reset",
    4: "no permission: the node agent must run as root",
    6: "it finds no such GPU",
    8: "a GPU lacks its power cables",
    9: "the NVIDIA driver is not loaded",
    10: "the kernel sees an interrupt problem with a GPU",
    12: "it finds no NVML library",
    13: "its NVML library is too old for a reset",
    14: "a GPU's infoROM is corrupt",
    15: "a GPU has fallen off the bus",
}
_IN_USE: Final = ("in use", "being used")


def reset(nvidia_smi: str, pcis: tuple[str, ...], deadline: timedelta) -> str:
    """Reset these GPUs in one command, all if none is named. Gives why it was refused; empty if they were reset.

    One command, because GPUs joined by NVLink refuse to be reset one by one on some machines. Blocking, at most for
    the deadline and a second.
    """
    # nvidia-smi knows addresses with their function alone, and a GPU is always function 0.
    chosen = ["-i", ",".join(f"{pci}.0" for pci in pcis)] if pcis else []
    return _refusal(run_child([nvidia_smi, "--gpu-reset", *chosen], deadline))


def _refusal(result: ChildResult) -> str:
    if result.exit_code == 0:
        return ""
    said = (result.stdout + result.stderr).lower()
    if result.timed_out:
        return "nvidia-smi hangs: the driver does not answer"
    if any(words in said for words in _IN_USE):
        return f"a process still uses the GPU ({result.words})"
    if result.exit_code in _MEANINGS:
        return f"nvidia-smi refused: {_MEANINGS[result.exit_code]} ({result.words})"
    return f"nvidia-smi failed ({result.words})"
