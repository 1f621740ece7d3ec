"""Reads `nvidia-smi -L`: a line a GPU, and below it a line for each of its MIG devices, which are no GPUs."""

import re
from typing import Final

from sickbay.catalogue import fault_of
from sickbay.checks import CheckOutcome, CheckResult, healthy, judged
from sickbay.faults import Component, ComponentKind
from sickbay.nvidia_smi import cells
from sickbay.nvidia_smi.naming import address_by_uuid, counted
from sickbay.recorded.model import RecordedContext

GPU_LINE: Final = re.compile(r"^\s*GPU (?P<index>\d+): (?P<name>.*?) \(UUID: (?P<uuid>[^)]*)\)\s*$")
_MIG_LINE: Final = re.compile(r"^\s+MIG \S.*Device\s+\d+: \(UUID: [^)]*\)\s*$")


def looks_like_listing(text: str) -> bool:
    """Whether a line names a GPU by index, product and UUID."""
    return any(GPU_LINE.match(line) for line in text.splitlines())


def judge_listing(text: str, context: RecordedContext) -> CheckOutcome:
    """What the list says: which GPUs the driver knows, and nothing of how they are. Raises nothing."""
    lines = [line for line in text.splitlines() if line.strip()]
    gpus = [found for line in lines if (found := GPU_LINE.match(line))]
    migs = sum(bool(_MIG_LINE.match(line)) for line in lines)
    silent = [gpu for gpu in gpus if any(cells.error_in(gpu[part]) is not None for part in ("name", "uuid"))]
    faults = []
    for gpu in silent:
        component = Component(kind=ComponentKind.GPU, id=address_by_uuid(gpu["uuid"], context))
        faults.append(fault_of("gpu-not-answering", component, evidence=(gpu[0].strip(),)))
    open_questions = []
    if len(gpus) + migs < len(lines):
        open_questions.append("a line is no part of such a list")
    if [int(gpu["index"]) for gpu in gpus] != list(range(len(gpus))):
        open_questions.append("the GPUs are not numbered through")
    if context.expected_gpus is not None and len(gpus) < context.expected_gpus:
        open_questions.append(f"{len(gpus)} of {context.expected_gpus} GPUs are listed")
    outcome = judged(faults, "; ".join(open_questions))
    if outcome.result is not CheckResult.HEALTHY:
        return outcome
    devices = f" with {migs} MIG devices" if migs else ""
    return healthy(f"{counted(len(gpus))} listed{devices}; the list shows nothing of how they are")
