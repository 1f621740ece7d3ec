"""What earlier passes of this boot showed, as far as the next one needs it to judge.

Kept by the NVML check between its runs, as JSON, so that a restart of the agent loses nothing; a reboot starts it anew.
Small by design: sums over a GPU's links and a few samples, since it is written to disk with each pass.
"""

from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from sickbay.counter_tracks import Sample, Track, with_sample
from sickbay.gpu_readings.answer import ClockReason, GpuAnswer, KnownGpu, LinkAnswer, NvmlAnswer
from sickbay.gpu_readings.memory import uncorrected
from sickbay.model import Frozen

CLOCK_WINDOW: Final = timedelta(minutes=10)
COUNTER_PERIOD: Final = timedelta(hours=1)

HARDWARE_REASONS: Final = ClockReason.HARDWARE_SLOWDOWN | ClockReason.HARDWARE_THERMAL | ClockReason.POWER_BRAKE

_MAX_SAMPLES: Final = 60
"""Of one GPU in the window; more frequent looks push out the oldest."""


class ClockSample(NamedTuple):
    """Why one GPU's clocks were low at one moment, hardware's reasons alone."""

    at: float
    """Seconds since the epoch."""
    reasons: int


class GpuHistory(Frozen):
    """One boot's memory, each by a GPU's PCI address."""

    known: tuple[KnownGpu, ...] = ()
    clocks: Mapping[str, tuple[ClockSample, ...]] = {}
    links_up: Mapping[str, tuple[int, ...]] = {}
    """NVLinks that have been up."""
    counters: Mapping[str, Track] = {}
    """Growth of counters, by `0000:61:00/name`."""
    widths: Mapping[str, int] = {}
    """The most PCIe lanes that were in use."""


def known_gpus(answer: NvmlAnswer, before: tuple[KnownGpu, ...]) -> tuple[KnownGpu, ...]:
    """Everything this boot has shown, ordered by address. NVML counts on after a loss, so identity goes by UUID."""
    known = {gpu.uuid: gpu for gpu in before}
    for gpu in answer.gpus:
        if gpu.uuid and gpu.address and gpu.uuid not in known:
            known[gpu.uuid] = KnownGpu(index=gpu.index, uuid=gpu.uuid, pci=gpu.address)
    return tuple(sorted(known.values(), key=lambda gpu: gpu.pci))


def remember(history: GpuHistory, answer: NvmlAnswer, now: datetime) -> GpuHistory:
    """The history with one more pass. What a GPU did not tell this time leaves its memory as it was."""
    named = [gpu for gpu in answer.gpus if gpu.address]
    return GpuHistory(
        known=known_gpus(answer, history.known),
        clocks=dict(history.clocks) | {gpu.address: _clocks(history, gpu, now) for gpu in named},
        links_up=dict(history.links_up) | {gpu.address: _links_up(history, gpu) for gpu in named},
        counters=dict(history.counters) | dict(_counters(history, named, now)),
        widths=dict(history.widths) | {gpu.address: _width(history, gpu) for gpu in named if gpu.pcie_width},
    )


def _clocks(history: GpuHistory, gpu: GpuAnswer, now: datetime) -> tuple[ClockSample, ...]:
    begin = (now - CLOCK_WINDOW).timestamp()
    kept = tuple(sample for sample in history.clocks.get(gpu.address, ()) if begin <= sample.at < now.timestamp())
    if gpu.clock_reasons is None:
        return kept
    return (*kept, ClockSample(now.timestamp(), gpu.clock_reasons & HARDWARE_REASONS))[-_MAX_SAMPLES:]


def _links_up(history: GpuHistory, gpu: GpuAnswer) -> tuple[int, ...]:
    before = set(history.links_up.get(gpu.address, ()))
    return tuple(sorted(before | {link.index for link in gpu.links or () if link.active}))


def _counters(history: GpuHistory, gpus: list[GpuAnswer], now: datetime) -> Iterator[tuple[str, Track]]:
    for gpu in gpus:
        for name, value in counters_of(gpu).items():
            key = f"{gpu.address}/{name}"
            yield key, with_sample(history.counters.get(key), Sample(now.timestamp(), value), COUNTER_PERIOD)


def counters_of(gpu: GpuAnswer) -> dict[str, int]:
    """The counters whose growth is judged, as far as the GPU tells them; those of NVLinks summed over its links."""
    links = gpu.links or ()
    aggregate = gpu.ecc_aggregate.uncorrected
    sums = {
        "replays": _sum(links, "replays"),
        "recoveries": _sum(links, "recoveries"),
        "crc": _sum(links, "crc_flit"),
        "data crc": _sum(links, "crc_data"),
        "failed recoveries": _sum(links, "failed_recoveries"),
        "effective errors": _sum(links, "effective_errors"),
        "pcie replays": gpu.pcie_replays,
        # Where the volatile count is told, it tells the same sooner, and starts anew with a reset.
        "uncorrected errors": aggregate if uncorrected(gpu) is None else None,
    }
    return {name: value for name, value in sums.items() if value is not None}


def _sum(links: tuple[LinkAnswer, ...], name: str) -> int | None:
    told = [value for link in links if (value := getattr(link, name)) is not None]
    return sum(told) if told else None


def _width(history: GpuHistory, gpu: GpuAnswer) -> int:
    return max(history.widths.get(gpu.address, 0), gpu.pcie_width or 0)
