"""Asks the kernel how well its clock is kept, by adjtimex(2), which changes nothing when no mode is given.

Called by `health.host`. The call touches no device and cannot hang.
"""

import ctypes
import os

from sickbay.host_layer.clock import ClockReading


class _Timex(ctypes.Structure):
    """The beginning of `struct timex`, and room for the rest of it."""

    _fields_ = (
        ("modes", ctypes.c_uint),
        ("offset", ctypes.c_long),
        ("frequency", ctypes.c_long),
        ("max_error", ctypes.c_long),
        ("estimated_error", ctypes.c_long),
        ("status", ctypes.c_int),
        ("rest", ctypes.c_char * 256),
    )


def read_clock() -> ClockReading:
    """The kernel's flags and error bound. Raises nothing."""
    timex = _Timex()
    try:
        state = ctypes.CDLL(None, use_errno=True).adjtimex(ctypes.byref(timex))
    except (OSError, AttributeError) as error:
        return ClockReading(refused=str(error))
    if state < 0:
        return ClockReading(refused=os.strerror(ctypes.get_errno()))
    return ClockReading(status=timex.status, max_error=timex.max_error)
