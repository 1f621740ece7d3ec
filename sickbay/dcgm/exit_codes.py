"""How `dcgmi` ended: the low byte of DCGM's negative return code (dcgm_structs.h; facts: detection, 3c).

Called by the judgements of this layer. Only 0 and two codes of failed tests leave a body that says more than the code.
"""

from typing import Final

_WORDS: Final = {
    # -DCGM_ST_*, from 256 down.
    255: "wrong use, or a wrong parameter",
    254: "wrong use, or a parameter that DCGM does not know",
    253: "DCGM tells no reason",
    252: "out of memory",
    250: "not supported",
    249: "DCGM could not start",
    248: "an error of NVML",
    245: "no answer in time",
    244: "program and host engine are of different versions",
    239: "no permission",
    238: "a GPU is lost",
    237: "a GPU needs a reset",
    235: "no connection to the host engine",
    226: "a test failed, which isolates no GPU",
    217: "another diagnostic is running",
    205: "a test failed, which isolates a GPU",
    203: "the diagnostic was killed",
    200: "NVML is not loaded",
    199: "the driver did not answer in time",
}

FAILED_TESTS: Final = frozenset((226, 205))
"""Ends whose body tells what failed."""

FAULTS: Final = {238: "gpu-lost", 237: "gpu-reset-required"}
"""Ends that only a sick GPU explains, whatever the body says."""

ENGINE_ABSENT: Final = frozenset((235, 249))
"""Ends that a host engine explains that is not up yet."""

COMMAND_NOT_FOUND: Final = 127


def words_of_exit(code: int) -> str:
    """What an exit code means, for people; a negative one is a signal, as Python tells it."""
    if code < 0:
        return f"ended by signal {-code}"
    if code == COMMAND_NOT_FOUND:
        return f"exit code {code}: the program was not found"
    if code in _WORDS:
        return f"exit code {code}: {_WORDS[code]}"
    if 128 < code <= 128 + 64:
        return f"exit code {code}: ended by signal {code - 128}"
    return f"exit code {code}"
