"""How GPUs are named: which one a UUID is, by what the recordings of one machine tell each other, and how many."""

from sickbay.recorded.model import RecordedContext


def address_by_uuid(uuid: str, context: RecordedContext) -> str:
    """The PCI address of the GPU of this UUID; `unknown` unless exactly one of the recordings' GPUs has it."""
    found = {gpu.pci for gpu in context.gpus if gpu.uuid == uuid}
    return found.pop() if uuid and len(found) == 1 else "unknown"


def counted(gpus: int) -> str:
    """A number of GPUs in words."""
    return f"{gpus} GPU" if gpus == 1 else f"{gpus} GPUs"
