"""How the GPUs stand with the fabric manager, without which NVSwitches carry nothing.

Called by `judgement`. A GPU registers once after a boot; until then it is starting, for a bounded time. An all-zero
cluster UUID beside a success is what every Hopper board without a rack around it shows, and the health mask has values
that say "explicitly fine": neither is a fault by being what it is (facts: detection, 2 and 8.14 to 8.16).
"""

from collections.abc import Iterator
from datetime import timedelta
from enum import StrEnum
from typing import Final, NamedTuple

from sickbay.faults import Fault
from sickbay.gpu_readings.answer import FabricAnswer, GpuAnswer, NvmlAnswer
from sickbay.gpu_readings.expectation import Expectation, host_fault, link_fault
from sickbay.gpu_readings.products import Topology, product_of

FABRIC_STARTING: Final = timedelta(minutes=10)
"""After a boot, within which registrations may be under way."""

_NOT_SUPPORTED, _NOT_STARTED, _IN_PROGRESS, _COMPLETED = range(4)
_STATES: Final = {_NOT_SUPPORTED: "not supported", _NOT_STARTED: "not started", _IN_PROGRESS: "in progress"}
_UNHEALTHY, _LIMITED = 2, 3
_BLANK_FROM: Final = 0x7FFFFFF0
"""Values from here on are DCGM's and NVML's ways to say that a number is absent, of 31 and of 63 bits."""
_WRONG: Final = 1
_CONFIGURATIONS: Final = {
    2: "wrong system GUID",
    3: "wrong chassis serial number",
    4: "no partition",
    5: "too few NVLinks",
    6: "incompatible firmware",
    7: "invalid location",
    8: "invalid state of the GPU",
}


class Standing(StrEnum):
    """How one GPU stands with the fabric manager."""

    APART = "apart"
    """It has none, or tells nothing that is known here."""
    WAITING = "waiting"
    REGISTERED = "registered"
    REFUSED = "refused"


class Trouble(NamedTuple):
    """Something that the fabric complains of."""

    code: str
    words: str


_FLAGS: Final = (
    (0, Trouble("fabric-degraded", "degraded bandwidth")),
    (2, Trouble("fabric-degraded", "routes being recovered")),
    (4, Trouble("fabric-unhealthy", "an unhealthy route")),
    (6, Trouble("fabric-degraded", "recovery of an access timeout")),
)
"""Fields of the health mask by their shift, each two bits wide: 0 not supported, 1 so, 2 not so."""
_SUMMARIES: Final = {
    _UNHEALTHY: Trouble("fabric-unhealthy", "itself unhealthy"),
    _LIMITED: Trouble("fabric-degraded", "limited capacity"),
}


def troubles_of(fabric: FabricAnswer) -> tuple[Trouble, ...]:
    """What health mask and summary complain of; nothing for a blank, and for what they call fine or do not know."""
    summary = [_SUMMARIES[fabric.health_summary]] if fabric.health_summary in _SUMMARIES else []
    mask = fabric.health_mask
    if mask is None or not 0 <= mask < _BLANK_FROM:
        return tuple(summary)
    flags = [trouble for shift, trouble in _FLAGS if mask >> shift & 0b11 == _WRONG]
    configuration = mask >> 8 & 0xF
    if configuration < min(_CONFIGURATIONS):
        return (*summary, *flags)
    words = _CONFIGURATIONS.get(configuration, f"configuration error {configuration}")
    return (*summary, *flags, Trouble("fabric-misconfigured", words))


def standing(gpu: GpuAnswer, *, alone: bool) -> Standing:
    """How one GPU stands; one that is `alone` in its machine needs no fabric."""
    fabric = gpu.fabric
    if fabric is None or fabric.state is None:
        return Standing.APART
    in_rack = product_of(gpu.name).topology is Topology.RACK
    if fabric.state == _COMPLETED:
        nowhere = in_rack and _all_zero(fabric.cluster_uuid)
        return Standing.REFUSED if fabric.status or nowhere else Standing.REGISTERED
    if alone or fabric.state not in _STATES or (fabric.state == _NOT_SUPPORTED and not in_rack):
        return Standing.APART
    return Standing.WAITING


def fabric_faults(answer: NvmlAnswer, expected: Expectation) -> tuple[Fault, ...]:
    """The faults of the registrations; a wait is one when its time is over."""
    waiting = waiting_gpus(answer) if _overdue(expected) else ()
    everywhere = len(waiting) == len(answer.gpus) > 1
    found = [host_fault("fabric-not-started", expected, _all_wait(waiting))] if everywhere else []
    for gpu in answer.gpus:
        if gpu in waiting and not everywhere:
            words = f"GPU {gpu.index}: its registration with the fabric manager is {_state(gpu)}"
            found.append(link_fault("fabric-not-ready", gpu.address, expected, words))
        found.extend(_registered_faults(gpu, answer, expected))
    return tuple(found)


def waiting_gpus(answer: NvmlAnswer) -> tuple[GpuAnswer, ...]:
    """GPUs whose registration is not over."""
    alone = (answer.count or len(answer.gpus)) < 2
    return tuple(gpu for gpu in answer.gpus if standing(gpu, alone=alone) is Standing.WAITING)


def _overdue(expected: Expectation) -> bool:
    return expected.since_boot is not None and expected.since_boot >= FABRIC_STARTING


def _registered_faults(gpu: GpuAnswer, answer: NvmlAnswer, expected: Expectation) -> Iterator[Fault]:
    fabric = gpu.fabric
    if fabric is None or fabric.state != _COMPLETED:
        return
    if standing(gpu, alone=len(answer.gpus) < 2) is Standing.REFUSED:
        where = ", in no cluster" if _all_zero(fabric.cluster_uuid) else ""
        words = f"GPU {gpu.index}: the fabric manager ended its registration with status {fabric.status}{where}"
        yield link_fault("fabric-refused", gpu.address, expected, words)
    troubles = troubles_of(fabric)
    for code in dict.fromkeys(trouble.code for trouble in troubles):
        told = ", ".join(trouble.words for trouble in troubles if trouble.code == code)
        yield link_fault(code, gpu.address, expected, f"GPU {gpu.index}: the fabric tells {told}")


def _all_wait(waiting: tuple[GpuAnswer, ...]) -> str:
    return f"registrations of all {len(waiting)} GPUs with the fabric manager are {_state(waiting[0])}"


def unknown_fabric_values(gpu: GpuAnswer) -> tuple[str, ...]:
    """Numbers of a newer driver that say something of the fabric that nobody here knows, in words."""
    state, summary = (gpu.fabric.state, gpu.fabric.health_summary) if gpu.fabric else (None, None)
    return (
        *([f"fabric state {state}"] if state is not None and state > _COMPLETED else []),
        *([f"fabric health {summary}"] if summary is not None and _LIMITED < summary < _BLANK_FROM else []),
    )


def _state(gpu: GpuAnswer) -> str:
    state = gpu.fabric.state if gpu.fabric else None
    return _STATES.get(state if state is not None else -1, "in no known state")


def _all_zero(uuid: str) -> bool:
    return not uuid.strip("0-")
