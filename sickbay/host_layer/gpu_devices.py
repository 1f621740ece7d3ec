"""GPUs on the PCI bus against those that the machine must have: the one look at them that needs no driver.

Called by `health.host`. A GPU that the firmware or the kernel no longer finds is missing here, whatever NVML says. It
must be missing at two looks in a row: whoever resets a GPU by hand takes it from the bus and scans for it anew.
"""

from sickbay.checks import CheckMoment, CheckOutcome, judged, unknown
from sickbay.faults import Component, ComponentKind
from sickbay.file_readings import FileReadings
from sickbay.host_layer.said import remembered, seen
from sickbay.instance_types import limits_of
from sickbay.model import Frozen
from sickbay.pci import PCI_DEVICES, PCI_WANTED, pci_functions

GPU_DEVICES_WANTED = PCI_WANTED


class GpuDevicesMemory(Frozen):
    """What the check remembers in one boot."""

    seen: frozenset[str] = frozenset()
    """Addresses of all GPUs that were on the bus."""
    short: bool = False
    """Whether a GPU was missing at the last look."""


def judge_gpu_devices(readings: FileReadings, moment: CheckMoment) -> CheckOutcome:
    """The GPUs that are not on the bus: by name where this boot has shown them, else by their number."""
    functions = pci_functions(readings)
    if functions is None:
        return unknown(f"the PCI bus cannot be read: {readings.why(PCI_DEVICES)}", moment.memory)
    gpus = {function.slot: function.driver for function in functions if function.is_gpu}
    memory = remembered(GpuDevicesMemory, moment)
    gone = sorted(memory.seen - gpus.keys())
    short = max((wanted_gpus(moment) or 0) - len(gpus), len(gone))
    kept = GpuDevicesMemory(seen=memory.seen | gpus.keys(), short=short > 0).model_dump_json()
    if not short:
        foreign = sorted(f"{slot} ({driver or 'none'})" for slot, driver in gpus.items() if driver != "nvidia")
        told = f"; not with the driver nvidia: {', '.join(foreign)}" if foreign else ""
        return judged((), memory=kept).model_copy(update={"why": f"{len(gpus)} GPUs on the PCI bus{told}"})
    evidence = f"{len(gpus)} GPUs on the PCI bus, and {len(gpus) + short} must be there"
    if moment.memory and not memory.short:
        return unknown(f"{evidence}; a second look decides", kept)
    named = gone if len(gone) == short else ["unknown"]
    parts = (Component(kind=ComponentKind.GPU, id=slot) for slot in named)
    return judged((seen("gpu-missing", part, moment, evidence) for part in parts), memory=kept)


def wanted_gpus(moment: CheckMoment) -> int | None:
    """GPUs that this machine must have: as the operator says, else by its instance type; None if nobody knows."""
    if moment.expected_gpus is not None:
        return moment.expected_gpus
    limits = limits_of(moment.host.instance_type)
    return limits.gpus if limits else None
