"""What recordings of one machine tell each other: its GPUs' products, their number, and which UUID is which GPU.

Called by `sickbay check --from` before any recording is judged. Only what a recording shows is told; one that cannot be
read tells nothing.
"""

import re
from collections.abc import Iterable
from typing import Final

from sickbay.gpu_readings import GpuAnswer, KnownGpu
from sickbay.nvidia_smi.listing import GPU_LINE
from sickbay.nvidia_smi.readings import answer_of
from sickbay.nvidia_smi.recorded import read_document
from sickbay.recorded.model import Recorded, RecordedContext, RecordedKind

_MODEL: Final = re.compile(r'\bmodelName="(?P<name>[^"]+)"')
"""The product in dcgm-exporter's labels."""
_LABEL: Final = re.compile(r"nvidia\.com/gpu\.product\"?[:=] *\"?(?P<name>[\w.-]+)")
"""The product as feature discovery writes it, with dashes for blanks."""
_UNDER_WAY: Final = (1, 2)
"""Fabric states: not started, in progress."""


def context_of(recordings: Iterable[Recorded]) -> RecordedContext:
    """What these recordings tell together. Raises nothing."""
    parts = [_of_one(recorded) for recorded in recordings]
    counts = [part.expected_gpus for part in parts if part.expected_gpus is not None]
    return RecordedContext(
        products=tuple(dict.fromkeys(name for part in parts for name in part.products)),
        expected_gpus=max(counts, default=None),
        gpus=tuple(dict.fromkeys(gpu for part in parts for gpu in part.gpus)),
        fabric_in_progress=any(part.fabric_in_progress for part in parts),
    )


def _of_one(recorded: Recorded) -> RecordedContext:
    match recorded.kind:
        case RecordedKind.NVIDIA_SMI:
            return _of_nvidia_smi(recorded.text)
        case RecordedKind.EXPORTER:
            return RecordedContext(products=tuple(dict.fromkeys(_MODEL.findall(recorded.text))))
        case RecordedKind.NODE_CONDITIONS:
            names = (name.replace("-", " ") for name in _LABEL.findall(recorded.text))
            return RecordedContext(products=tuple(dict.fromkeys(names)))
    return RecordedContext()


def _of_nvidia_smi(text: str) -> RecordedContext:
    listed = [found for line in text.splitlines() if (found := GPU_LINE.match(line))]
    if listed:
        return RecordedContext(
            products=tuple(dict.fromkeys(found["name"] for found in listed)),
            expected_gpus=max(int(found["index"]) for found in listed) + 1,
        )
    document = read_document(text)
    if document is None:
        return RecordedContext()
    gpus = answer_of(document).gpus
    named = [gpu for gpu in gpus if gpu.uuid and gpu.address]
    return RecordedContext(
        products=tuple(dict.fromkeys(gpu.name for gpu in gpus if gpu.name)),
        expected_gpus=document.attached or sum(1 for gpu in gpus if gpu.pci) or None,
        gpus=tuple(KnownGpu(index=gpu.index, uuid=gpu.uuid, pci=gpu.address) for gpu in named),
        fabric_in_progress=any(_waits(gpu) for gpu in gpus),
    )


def _waits(gpu: GpuAnswer) -> bool:
    return gpu.fabric is not None and gpu.fabric.state in _UNDER_WAY
