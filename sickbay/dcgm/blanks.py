"""DCGM's blanks: numbers that stand for a reading that is not there (dcgm_fields.h; facts: detection, 3a).

Called wherever a number of DCGM is read. One that passes for a count would be a fault of nobody, and one that passes
for zero would be health that nobody measured.
"""

import math
from typing import Final

_INT64: Final = 0x7FFF_FFFF_FFFF_FFF0
_INT32: Final = 0x7FFF_FFF0
_FP64: Final = 140737488355328.0
_KINDS: Final = 4
"""Blank, not found, not supported, not permissioned: consecutive numbers from each of the above."""


def is_blank(value: float) -> bool:
    """Whether a number is one of DCGM's blanks, of whatever type, or none at all."""
    if not math.isfinite(value):
        return True
    # As a float the four 64-bit blanks are one number, and nothing that DCGM counts comes near it.
    return value >= float(_INT64) or _INT32 <= value < _INT32 + _KINDS or _FP64 <= value < _FP64 + _KINDS
