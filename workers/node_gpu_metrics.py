"""How each GPU stands, for Prometheus, from the last answer of NVML; part of `workers.node_metrics`.

One series a GPU and reading, labelled by PCI address and UUID; NVLinks are counted by state and not told one by one,
so that eight GPUs never have more than a few hundred series. What NVML did not tell has no sample: it is not zero.
"""

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from prometheus_client.core import GaugeMetricFamily, Metric

from sickbay.gpu_readings import RECOVERY_ACTIONS, GpuAnswer, NvmlAnswer

_LABELS: Final = ("pci", "uuid")
_LINK_STATES: Final = {True: "active", False: "inactive", None: "unknown"}


class _Reading(NamedTuple):
    name: str
    words: str
    of: Callable[[GpuAnswer], float | None]


_READINGS: Final = (
    _Reading("temperature_celsius", "Temperature of the GPU.", lambda gpu: gpu.temperature),
    _Reading("memory_temperature_celsius", "Temperature of its memory.", lambda gpu: gpu.memory_temperature),
    _Reading(
        "ecc_volatile_corrected",
        "Corrected memory errors since the driver was loaded or the GPU was reset.",
        lambda gpu: gpu.ecc_volatile.corrected,
    ),
    _Reading(
        "ecc_volatile_uncorrected",
        "Uncorrected memory errors since the driver was loaded or the GPU was reset.",
        lambda gpu: gpu.ecc_volatile.uncorrected,
    ),
    _Reading(
        "ecc_aggregate_uncorrected",
        "Uncorrected memory errors in the GPU's life.",
        lambda gpu: gpu.ecc_aggregate.uncorrected,
    ),
    _Reading(
        "remapped_rows_uncorrectable",
        "Memory rows remapped for uncorrected errors.",
        lambda gpu: gpu.remapped_uncorrectable,
    ),
    _Reading("remap_pending", "1 if a row remapping waits for a reset.", lambda gpu: gpu.remap_pending),
    _Reading("remap_failed", "1 if a row could not be remapped.", lambda gpu: gpu.remap_failed),
    _Reading("clock_reasons", "Bits of NVML's reasons for lower clocks.", lambda gpu: gpu.clock_reasons),
    _Reading("pcie_width", "PCIe lanes in use.", lambda gpu: gpu.pcie_width),
    _Reading("processes", "Processes that compute on it.", lambda gpu: gpu.process_count),
)


def gpu_metrics(answer: NvmlAnswer | None) -> Iterator[Metric]:
    """The metrics of each GPU that told who it is; none where NVML has not answered."""
    gpus = [gpu for gpu in (answer.gpus if answer is not None else ()) if gpu.uuid and gpu.address]
    for reading in _READINGS:
        family = GaugeMetricFamily(f"sickbay_gpu_{reading.name}", reading.words, labels=_LABELS)
        for gpu in gpus:
            value = reading.of(gpu)
            if value is not None:
                family.add_metric((gpu.address, gpu.uuid), value)
        yield family
    yield _recovery_actions(gpus)
    yield _links(gpus)


def _recovery_actions(gpus: list[GpuAnswer]) -> Metric:
    family = GaugeMetricFamily(
        "sickbay_gpu_recovery_action", "1 for what the driver asks for.", labels=(*_LABELS, "action")
    )
    for gpu in gpus:
        if gpu.recovery_action in RECOVERY_ACTIONS:
            family.add_metric((gpu.address, gpu.uuid, RECOVERY_ACTIONS[gpu.recovery_action][0]), 1)
    return family


def _links(gpus: list[GpuAnswer]) -> Metric:
    family = GaugeMetricFamily("sickbay_gpu_nvlinks", "NVLinks by state.", labels=(*_LABELS, "state"))
    for gpu in gpus:
        for active, state in _LINK_STATES.items():
            if gpu.links:
                number = sum(link.active is active for link in gpu.links)
                family.add_metric((gpu.address, gpu.uuid, state), number)
    return family
