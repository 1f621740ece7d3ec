"""NVLinks that are down, and NVLinks that err.

Called by `judgement`. That a link is down says nothing by itself: a PCIe card may have no bridge, and with MIG the
links are off. It counts where the link was up earlier in this boot, where others of the same GPU or of its peers on one
board are up (facts: detection, 8.16). Errors count by their growth, since the counters run from the last reset.
"""

from collections.abc import Iterator
from datetime import timedelta
from typing import Final

from sickbay.counter_tracks import growth
from sickbay.faults import Fault, Rung
from sickbay.gpu_readings.answer import GpuAnswer, NvmlAnswer
from sickbay.gpu_readings.expectation import Expectation, host_fault, link_fault
from sickbay.gpu_readings.history import GpuHistory, counters_of
from sickbay.gpu_readings.products import Topology, product_of

LINKS_STARTING: Final = timedelta(minutes=10)
"""After a boot, within which links may be in training."""

LINK_ERROR_LIMITS: Final = {
    "replays": 100,
    "recoveries": 100,
    "crc": 100,
    "data crc": 100,
    "effective errors": 100,
}
"""Errors of a GPU's links within an hour that are worth telling; DCGM warns at a hundred CRC errors."""
FAILED_RECOVERIES_ALLOWED: Final = 0
"""A link of NVLink 5 that could not be brought back was down, however it looks now."""

_FEWEST_SWITCHED: Final = 8
"""From as many GPUs of one board on, NVSwitches join them; smaller boards of the same products have none."""
_FIRST_SWITCHED_LINKS: Final = 12
"""NVLinks of the A100, the first product whose boards of eight all have switches."""


def link_faults(answer: NvmlAnswer, expected: Expectation, history: GpuHistory) -> tuple[Fault, ...]:
    """The faults of all NVLinks."""
    if all_down(answer, expected):
        waited = expected.since_boot is not None and expected.since_boot >= LINKS_STARTING
        return (_all_down_fault(answer, expected),) if waited else ()
    errors = tuple(fault for gpu in answer.gpus for fault in _errors(gpu, expected, history))
    return errors if _in_training(expected) else (*_links_down(answer, expected, history), *errors)


def training(answer: NvmlAnswer, expected: Expectation) -> bool:
    """Whether links are down soon after the boot, which is a fault if they stay so."""
    down = all_down(answer, expected) or bool(_links_down(answer, expected, GpuHistory()))
    return _in_training(expected) and down


def all_down(answer: NvmlAnswer, expected: Expectation) -> bool:
    """Whether no GPU of a switched board has a link: they are in training, or nobody trains them."""
    judged = _judged(answer)
    return len(judged) > 1 and switched(answer, expected) and not any(_up(gpu) for gpu in judged)


def switched(answer: NvmlAnswer, expected: Expectation) -> bool:
    """Whether NVSwitches join the GPUs, so that each of their links must be up."""
    products = [product_of(gpu.name) for gpu in answer.gpus if gpu.name]
    if not products or not all(product.joined for product in products):
        return False
    if any(product.topology is Topology.RACK for product in products):
        return True
    if expected.switched is not None:
        return expected.switched
    fewest = min(product.links or 0 for product in products)
    return len(products) >= _FEWEST_SWITCHED and fewest >= _FIRST_SWITCHED_LINKS


def _in_training(expected: Expectation) -> bool:
    return expected.since_boot is not None and expected.since_boot < LINKS_STARTING


def _all_down_fault(answer: NvmlAnswer, expected: Expectation) -> Fault:
    """Where neither bus nor instance type show NVSwitches, they may be another machine's: then a person decides."""
    words = f"none of {len(answer.gpus)} GPUs has an NVLink that is up"
    fault = host_fault("nvlink-all-down", expected, words)
    return fault if expected.switched else fault.model_copy(update={"rung": Rung.HUMAN})


def _links_down(answer: NvmlAnswer, expected: Expectation, history: GpuHistory) -> tuple[Fault, ...]:
    return tuple(fault for gpu in _judged(answer) for fault in _down(gpu, answer, expected, history))


def _judged(answer: NvmlAnswer) -> list[GpuAnswer]:
    """GPUs whose links can be judged; with MIG they are off."""
    return [gpu for gpu in answer.gpus if gpu.links and not gpu.mig_enabled]


def _down(gpu: GpuAnswer, answer: NvmlAnswer, expected: Expectation, history: GpuHistory) -> Iterator[Fault]:
    down = {link.index for link in gpu.links or () if link.active is False}
    lost = down & set(history.links_up.get(gpu.address, ()))
    peers = [other for other in _judged(answer) if other is not gpu]
    joined = product_of(gpu.name).joined
    must_be_up = (_up(gpu) and switched(answer, expected)) or (not _up(gpu) and joined and any(map(_up, peers)))
    broken = sorted(down if must_be_up else lost)
    if broken:
        names = ", ".join(str(index) for index in broken)
        before = ", which were up in this boot" if lost.issuperset(broken) else ""
        words = f"GPU {gpu.index}: NVLinks {names} of {len(gpu.links or ())} are down{before}"
        yield link_fault("nvlink-down", gpu.address, expected, words)


def _up(gpu: GpuAnswer) -> bool:
    return any(link.active for link in gpu.links or ())


def _errors(gpu: GpuAnswer, expected: Expectation, history: GpuHistory) -> Iterator[Fault]:
    told = counters_of(gpu)
    grown = {
        name: growth(track) for name in told if (track := history.counters.get(f"{gpu.address}/{name}")) is not None
    }
    many = [f"{count} {name}" for name, count in grown.items() if count > LINK_ERROR_LIMITS.get(name, count)]
    if many:
        words = f"GPU {gpu.index}: {', '.join(many)} on its NVLinks within an hour"
        yield link_fault("nvlink-errors", gpu.address, expected, words)
    if grown.get("failed recoveries", 0) > FAILED_RECOVERIES_ALLOWED:
        words = f"GPU {gpu.index}: {grown['failed recoveries']} times an NVLink could not be brought back"
        yield link_fault("nvlink-recovery-failed", gpu.address, expected, words)
