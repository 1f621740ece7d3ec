"""Judges an output whose values could be laid out by GPU: `-q`, its XML, csv, and the table.

Every fault is found by the rules of NVML's own readings (`sickbay.gpu_readings`). Here is what a recording needs
besides: how whole it is, which of its values are errors, and which readings it would take to call a GPU well. What was
cut, filtered or pasted in part has faults, but never health.
"""

import re
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Final

from sickbay.catalogue import fault_of
from sickbay.checks import CheckOutcome, CheckResult, healthy, judged
from sickbay.faults import Component, ComponentKind, Fault, merge_faults
from sickbay.gpu_readings import Expectation, GpuAnswer, NvmlAnswer, clock_faults, gpu_faults, unjudged
from sickbay.nvidia_smi import cells
from sickbay.nvidia_smi.blocks import Block, Document, Value
from sickbay.nvidia_smi.modes import unknown_words
from sickbay.nvidia_smi.naming import address_by_uuid, counted
from sickbay.nvidia_smi.readings import UNNAMED, answer_of
from sickbay.recorded.model import RecordedContext

_NO_TIME: Final = datetime.fromtimestamp(0, UTC)
"""A recording's own time has no zone; it is not told."""
_UNDER_WAY: Final = (1, 2)
"""Fabric states: not started, in progress."""
_UNNAMED: Final = re.compile(rf"GPU {UNNAMED}\b")
_REPAIRS: Final = (
    ("channel_repair_pending", "gpu-repair-pending", "a repair of a memory channel waits for a reset"),
    ("tpc_repair_pending", "gpu-repair-pending", "a repair of a processing cluster waits for a reset"),
    ("unrepairable_memory", "gpu-memory-unrepairable", "the GPU calls its memory unrepairable"),
)


def judge_document(document: Document, context: RecordedContext, *, table: bool = False) -> CheckOutcome:
    """What the GPUs of a document say; the table is not expected to tell of what it has no cell for."""
    answer = _named(answer_of(document), context)
    faults = _faults(document, answer, context)
    open_questions = [*document.gaps, *([f"it shows {document.shows}"] if document.shows and not table else [])]
    if not document.blocks:
        open_questions.append("no GPU is shown")
    for block, gpu in zip(document.blocks, answer.gpus, strict=True):
        open_questions.extend(_open(block, gpu))
    if not open_questions and not table:
        # Asked of whole documents alone: of others it is plain that they lack much.
        open_questions.extend(_missing(answer))
    outcome = judged(faults, "; ".join(dict.fromkeys(open_questions)))
    if outcome.result is not CheckResult.HEALTHY:
        return outcome
    return healthy(f"{counted(len(answer.gpus))} well" + (f"; it shows {document.shows}" if document.shows else ""))


def _named(answer: NvmlAnswer, context: RecordedContext) -> NvmlAnswer:
    """The answer with the addresses that other recordings tell; never by index, which a container counts anew."""
    gpus = []
    for gpu in answer.gpus:
        place = gpu.pci or address_by_uuid(gpu.uuid, context)
        gpus.append(gpu if gpu.pci or place == "unknown" else gpu.model_copy(update={"pci": f"{place}.0"}))
    return answer.model_copy(update={"gpus": tuple(gpus)})


def _faults(document: Document, answer: NvmlAnswer, context: RecordedContext) -> tuple[Fault, ...]:
    whole = document.attached is not None and not document.gaps
    expected = Expectation(boot_id="", seen=_NO_TIME, count=context.expected_gpus if whole else None)
    lost = {gpu.address for gpu in answer.gpus if cells.LOST in gpu.errors}
    found = (
        *gpu_faults(answer, expected),
        *(fault for fault in clock_faults(answer, expected) if fault.component.id not in lost),
        *_repairs(document.blocks, answer.gpus),
    )
    return merge_faults((), map(_as_recorded, found))


def _repairs(blocks: Iterable[Block], gpus: Iterable[GpuAnswer]) -> list[Fault]:
    return [
        fault_of(
            code,
            Component(kind=ComponentKind.GPU, id=gpu.address or "unknown"),
            evidence=(f"GPU {gpu.index}: {words}",),
        )
        for block, gpu in zip(blocks, gpus, strict=True)
        for name, code, words in _REPAIRS
        if cells.truth(block.text(f"ecc_errors/{name}", name))
    ]


def _as_recorded(fault: Fault) -> Fault:
    """A fault of a recording: of no known time and boot, and of a GPU that a fragment may not name."""
    evidence = tuple(_UNNAMED.sub("a GPU that is not named", line) for line in fault.evidence)
    component = fault.component
    if not component.id or component.id == str(UNNAMED):
        component = component.model_copy(update={"id": "unknown"})
    return fault.model_copy(
        update={"first_seen": None, "last_seen": None, "boot_id": None, "evidence": evidence, "component": component}
    )


def _open(block: Block, gpu: GpuAnswer) -> list[str]:
    """What one GPU tells that leaves open how it is."""
    name = "a GPU" if gpu.index == UNNAMED else f"GPU {gpu.index}"
    if gpu.errors:
        return []
    found = [
        f"{name}: {value.path.rsplit('/', 1)[-1].replace('_', ' ')} reads {value.text}" for value in _errors(block)
    ]
    found += [f"{name}: {words}" for words in unknown_words(block)]
    if gpu.fabric is not None and gpu.fabric.state in _UNDER_WAY:
        found.append(f"{name}: its registration with the fabric is not finished, which is a fault if it stays so")
    return found


def _missing(answer: NvmlAnswer) -> list[str]:
    """Readings without which no GPU can be called well."""
    well = [gpu for gpu in answer.gpus if not gpu.errors]
    untold = [f"GPU {gpu.index} does not tell what holds its clocks down" for gpu in well if gpu.clock_reasons is None]
    return [*unjudged(NvmlAnswer(gpus=tuple(well))), *untold]


def _errors(block: Block) -> list[Value]:
    return [value for value in block.errors if cells.error_in(value.text) != cells.NO_PERMISSION]
