"""What `all_reduce_perf` of NVIDIA's nccl-tests says, and what it means.

Called by `health.loopback` with the program's output. A run counts as well only if both lines are there that the
program ends with: how many values were wrong, and the mean bus bandwidth. The program may fail for reasons that are not
the fabric's (a library that is missing); only failures that NCCL or CUDA themselves report are faults.
"""

import re
from typing import Final

from sickbay.model import Frozen

# Each up to the end of its line: a number that was cut is not a smaller one.
_WRONG: Final = re.compile(r"^#\s*Out of bounds values\s*:\s*(\d+)\s+(OK|FAILED)[ \t\r]*\n", re.MULTILINE)
_BANDWIDTH: Final = re.compile(r"^#\s*Avg bus bandwidth\s*:\s*(\d+(?:\.\d+)?)[ \t\r]*\n", re.MULTILINE)
_FAILURE: Final = re.compile(r"^.*Test (?:NCCL|CUDA) failure.*$", re.MULTILINE)


class NcclReading(Frozen):
    """The end of one run; None where it was not told exactly once."""

    wrong_values: int | None = None
    bus_bandwidth: float | None = None
    """GB/s, the mean over all sizes, in place and not."""
    failure: str = ""
    """The line in which NCCL or CUDA reports a failure."""


class NcclFinding(Frozen):
    """What a run shows; all empty if it is well."""

    code: str = ""
    evidence: str = ""
    unjudged: str = ""


def read_nccl(output: str) -> NcclReading:
    """Read an output. Raises nothing, whatever it is."""
    wrong, bandwidth = _WRONG.findall(output), _BANDWIDTH.findall(output)
    failure = _FAILURE.search(output)
    return NcclReading(
        wrong_values=int(wrong[0][0]) if len(wrong) == 1 else None,
        bus_bandwidth=float(bandwidth[0]) if len(bandwidth) == 1 else None,
        failure=failure[0].strip() if failure else "",
    )


def judge_nccl(output: str, *, timed_out: bool, exit_code: int | None, floor: float | None) -> NcclFinding:
    """What a run means; `floor` is the least bus bandwidth in GB/s, None where none is known."""
    reading = read_nccl(output)
    if reading.wrong_values:
        return NcclFinding(code="nccl-wrong-result", evidence=f"{reading.wrong_values} values are wrong")
    if reading.failure:
        return NcclFinding(code="nccl-failed", evidence=reading.failure)
    if timed_out:
        return NcclFinding(code="nccl-hangs", evidence="the test has no end")
    if exit_code != 0 or reading.wrong_values is None or reading.bus_bandwidth is None:
        last = next((line.strip() for line in reversed(output.splitlines()) if line.strip()), "nothing")
        return NcclFinding(unjudged=f"the test ended with code {exit_code} without a result; it said last: {last}")
    if floor is not None and reading.bus_bandwidth < floor:
        return NcclFinding(
            code="nccl-slow", evidence=f"bus bandwidth {reading.bus_bandwidth:g} GB/s, of which {floor:g} is the least"
        )
    return NcclFinding()
