"""What a healthy node would show, and how a fault of a GPU is made here.

Shared by the rules of this package, each of which judges one subject. The node agent and the readers of recorded
outputs fill in what they know of the machine.
"""

from datetime import datetime, timedelta

from sickbay.catalogue import fault_of
from sickbay.faults import Component, ComponentKind, Fault
from sickbay.gpu_readings.answer import GpuAnswer, KnownGpu, NvmlAnswer
from sickbay.model import Frozen


class Expectation(Frozen):
    """What a healthy node would show."""

    boot_id: str
    seen: datetime
    """Time of the pass."""
    count: int | None = None
    """GPUs by the machine's type; None means as many as this boot has shown."""
    known: tuple[KnownGpu, ...] = ()
    since_boot: timedelta | None = None
    """How long the boot has been watched; None where nobody knows, as with a recorded output."""
    switched: bool | None = None
    """Whether NVSwitches join the GPUs; None where only their products tell."""


def gpu_fault(code: str, pci: str, expected: Expectation, evidence: str) -> Fault:
    """A fault of one GPU by its PCI address, or `unknown`."""
    return _fault(code, Component(kind=ComponentKind.GPU, id=pci or "unknown"), expected, evidence)


def link_fault(code: str, pci: str, expected: Expectation, evidence: str) -> Fault:
    """A fault of the NVLinks of one GPU, which the GPU's address names."""
    return _fault(code, Component(kind=ComponentKind.NVLINK, id=pci or "unknown"), expected, evidence)


def host_fault(code: str, expected: Expectation, evidence: str) -> Fault:
    """One fault of the machine, where all its GPUs show the same."""
    return _fault(code, Component(kind=ComponentKind.HOST, id="host"), expected, evidence)


def driver_fault(code: str, expected: Expectation, evidence: str) -> Fault:
    """A fault of the driver's software."""
    return _fault(code, Component(kind=ComponentKind.DRIVER, id="nvidia"), expected, evidence)


def address_of(gpu: GpuAnswer, answer: NvmlAnswer, expected: Expectation) -> str:
    """A GPU's PCI address. Of one that cannot tell it: the known one of its index that did not answer, else the only
    one that did not; `unknown` if that is not certain."""
    if gpu.address:
        return gpu.address
    answered = {other.address for other in answer.gpus}
    left = [known for known in expected.known if known.pci not in answered]
    same = [known for known in left if known.index == gpu.index]
    chosen = same if len(same) == 1 else left
    return chosen[0].pci if len(chosen) == 1 else "unknown"


def _fault(code: str, component: Component, expected: Expectation, evidence: str) -> Fault:
    return fault_of(code, component, seen=expected.seen, boot_id=expected.boot_id, evidence=(evidence,))
