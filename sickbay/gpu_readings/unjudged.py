"""What an answer of NVML leaves open: readings without which no GPU can be called well, and what is under way.

Called by the NVML check and the node agent. A question that an old driver or a product does not know stays open without
harm where the others prove enough; one that every GPU of its kind answers does not.
"""

from typing import Final

from sickbay.gpu_readings.answer import GpuAnswer, NvmlAnswer
from sickbay.gpu_readings.expectation import Expectation
from sickbay.gpu_readings.fabric import FABRIC_STARTING, unknown_fabric_values, waiting_gpus
from sickbay.gpu_readings.judgement import unknown_action
from sickbay.gpu_readings.links import LINKS_STARTING, training
from sickbay.gpu_readings.memory import memory_is_told
from sickbay.gpu_readings.surroundings import told_apart

_LONGEST_START: Final = max(FABRIC_STARTING, LINKS_STARTING)


def unknown_checks(answer: NvmlAnswer) -> tuple[str, ...]:
    """Checks that could not judge; each keeps the node from being called healthy."""
    if not answer.whole:
        return ("nvml",)
    return tuple(f"nvml {gpu.address or gpu.index}" for gpu in answer.gpus if not (gpu.uuid and gpu.address))


def unjudged(answer: NvmlAnswer) -> tuple[str, ...]:
    """Why GPUs of a whole answer can neither be called well nor ill, each in words; empty if all can be judged."""
    return tuple(words for gpu in answer.gpus if (words := _open_of_one(gpu)))


def under_way(answer: NvmlAnswer, expected: Expectation) -> tuple[str, ...]:
    """What is not ready and may be, soon after a boot, in words; the same is a fault once that time is over."""
    if expected.since_boot is not None and expected.since_boot >= _LONGEST_START:
        return ()
    waiting = waiting_gpus(answer)
    fabric = [f"{len(waiting)} GPUs wait for the fabric manager"] if waiting else []
    links = ["NVLinks are not up yet"] if training(answer, expected) else []
    return (*fabric, *links)


def told_besides(answer: NvmlAnswer) -> str:
    """What is worth telling of well GPUs: modes, and questions that the driver does not know. One line, or nothing."""
    modes = _counted([mode for gpu in answer.gpus for mode in told_apart(gpu)], len(answer.gpus))
    questions = sorted({question for gpu in answer.gpus for question in gpu.unanswered})
    untold = [f"not told: {', '.join(questions)}"] if questions else []
    return "; ".join((*modes, *untold))


def _open_of_one(gpu: GpuAnswer) -> str:
    if not (gpu.uuid and gpu.address):
        return f"GPU {gpu.index} does not tell who it is"
    if "name" in gpu.unanswered:
        return f"GPU {gpu.address} does not tell what it is"
    if not memory_is_told(gpu):
        return f"GPU {gpu.address} does not tell how its memory is"
    unknown = (*filter(None, (unknown_action(gpu),)), *unknown_fabric_values(gpu))
    return f"GPU {gpu.address} tells what this version does not know: {', '.join(unknown)}" if unknown else ""


def _counted(modes: list[str], gpus: int) -> list[str]:
    counts = {mode: modes.count(mode) for mode in modes}
    return [mode if count == gpus else f"{mode} on {count} of {gpus} GPUs" for mode, count in counts.items()]
