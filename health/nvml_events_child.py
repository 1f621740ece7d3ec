"""The program that waits for NVML's events and says each at once, one JSON object a line.

Started by `health.nvml_events`, by its path. It lives long, holds every GPU open, and ends when its standard input is
closed, so that it never outlives whoever started it. Nothing but the standard library and pynvml.
"""

import os
import select
import sys
from typing import Any, Final

import pynvml

from health.nvml_child import LIBRARY, load_library, say

WANTED: Final = (
    pynvml.nvmlEventTypeXidCriticalError
    | pynvml.nvmlEventTypeGpuUnavailableError
    | pynvml.nvmlEventTypeGpuRecoveryAction
)
_WAIT_MILLISECONDS: Final = 500
"""How long one wait lasts: what an order to end may have to wait."""


def main() -> None:
    """Register with every GPU that can tell events, then tell them until standard input ends."""
    try:
        load_library(os.environ.get(LIBRARY, ""))
        pynvml.nvmlInit()
        events = pynvml.nvmlEventSetCreate()
        addresses = register_all(events)
        say({"ready": len(addresses)})
        while addresses and not asked_to_end():
            tell_next(events, addresses)
    except pynvml.NVMLError as error:
        say({"failed": error.value})


def register_all(events: Any) -> dict[int, str]:
    """The PCI addresses of the GPUs that will tell events, by their handles."""
    addresses: dict[int, str] = {}
    for index in range(pynvml.nvmlDeviceGetCount()):
        try:
            handle = pynvml.nvmlDeviceGetHandleByIndex(index)
            kinds = pynvml.nvmlDeviceGetSupportedEventTypes(handle) & WANTED
            pynvml.nvmlDeviceRegisterEvents(handle, kinds, events)
            addresses[address_of(handle)] = str(pynvml.nvmlDeviceGetPciInfo(handle).busId)
        except pynvml.NVMLError as error:
            say({"gpu": index, "deaf": error.value})
    return addresses


def tell_next(events: Any, addresses: dict[int, str]) -> None:
    """Wait a little for one event, and say it."""
    try:
        event = pynvml.nvmlEventSetWait_v2(events, _WAIT_MILLISECONDS)
    except pynvml.NVMLError_Timeout:
        return
    pci = addresses.get(address_of(event.device), "")
    say({"event": {"type": event.eventType, "data": event.eventData, "pci": pci}})


def address_of(handle: Any) -> int:
    """A handle as a number, by which handles can be compared."""
    return int.from_bytes(bytes(handle), sys.byteorder)


def asked_to_end() -> bool:
    """Whether standard input is closed."""
    readable, _, _ = select.select([sys.stdin], [], [], 0)
    return bool(readable) and not os.read(sys.stdin.fileno(), 64)


if __name__ == "__main__":
    main()
