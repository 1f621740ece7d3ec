"""What an event of NVML means: the same faults that the kernel log tells, without the words of its lines.

Called by `health.nvml_events`. An Xid seen in both is one fault, by its identity. Where the words of the line decide
what an Xid is worth, an event says no more than the mildest of them, since a rung never falls again when the line
comes. The driver's verdict (Xid 154, or an event of its own) opens nothing: NVML is asked for it in each pass.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Final

from sickbay.catalogue import fault_of, lookup_xid
from sickbay.faults import Component, ComponentKind, Fault, FaultClass, Rung
from sickbay.gpu_readings.answer import short_address
from sickbay.model import Frozen

XID_EVENT: Final = 0x8
UNAVAILABLE_EVENT: Final = 0x4000
RECOVERY_ACTION_EVENT: Final = 0x8000

WEIGHT_IN_LINE: Final = frozenset((74, *range(144, 151)))
"""Xids of NVLink, of which only the registers and words of the kernel's line tell whether they are grave."""

_VERDICT: Final = 154
_UNCONTAINED: Final = 95

_MILDEST: Final[Mapping[int, Mapping[str, object]]] = {
    **{xid: {"fault_class": FaultClass.WATCH, "rung": Rung.NONE} for xid in WEIGHT_IN_LINE},
    _UNCONTAINED: {"rung": Rung.STOP_WORKLOAD},
}
"""What the mildest line of these Xids is worth (`sickbay.kernel_log.xid`)."""


class NvmlEvent(Frozen):
    """One event of one GPU."""

    type: int
    """One of NVML's bits."""
    data: int
    """The Xid, or the recovery action."""
    pci: str = ""
    """Address as NVML has it; empty if the GPU could not tell it."""


def fault_of_event(event: NvmlEvent, boot_id: str, seen: datetime) -> Fault | None:
    """The fault of an event; None if it opens none."""
    component = Component(kind=ComponentKind.GPU, id=short_address(event.pci) or "unknown")
    if event.type == UNAVAILABLE_EVENT:
        words = "NVML event: the GPU became unavailable"
        return fault_of("gpu-unavailable", component, seen=seen, boot_id=boot_id, evidence=(words,))
    if event.type != XID_EVENT or event.data == _VERDICT:
        return None
    evidence = (f"NVML event: Xid {event.data} ({lookup_xid(event.data).meaning})",)
    fault = fault_of(f"xid-{event.data}", component, seen=seen, boot_id=boot_id, evidence=evidence)
    return fault.model_copy(update=_MILDEST.get(event.data, {}))
