"""NVML as one check among the others, from what `health.nvml` is told.

Listed in `health.layers`; the agent also takes the GPUs' names and the proofs of resets from its answers. What an
answer means is in `sickbay.gpu_readings`.
"""

from collections.abc import Callable
from datetime import timedelta

from health.nvml import ask_nvml
from health.settings import NodeSettings
from sickbay.catalogue import fault_of
from sickbay.checks import (
    CheckAbout,
    CheckCost,
    CheckLayer,
    CheckMoment,
    CheckOutcome,
    HostFacts,
    judged,
    starting,
    unknown,
)
from sickbay.faults import Component, ComponentKind
from sickbay.gpu_readings import Expectation, KnownGpu, NvmlAnswer, gpu_faults, known_gpus, unknown_checks
from sickbay.model import Frozen

AskNvml = Callable[[timedelta, str], NvmlAnswer]


class _Memory(Frozen):
    known: tuple[KnownGpu, ...] = ()
    short: int = 0


class NvmlCheck:
    """The check `nvml`."""

    def __init__(self, settings: NodeSettings, ask: AskNvml = ask_nvml) -> None:
        self._settings = settings
        self._ask = ask
        self.last_answer: NvmlAnswer | None = None
        every = timedelta(seconds=settings.probe_seconds)
        self.about = CheckAbout(
            name="nvml",
            layer=CheckLayer.NVML,
            judges=(ComponentKind.GPU, ComponentKind.NVLINK),
            cost=CheckCost.CHEAP,
            looks_at="Every GPU through NVML.",
            source="NVIDIA, NVML",
            every=every,
            deadline=timedelta(seconds=settings.nvml_seconds),
            fresh_for=max(timedelta(minutes=5), 3 * every),
            misses=settings.nvml_misses,
            starting_for=timedelta(seconds=settings.starting_seconds),
            withdraws=True,
        )

    def applies(self, host: HostFacts) -> str:
        """Everywhere but on nodes that are to have no GPU."""
        del host
        return "no GPU is expected" if self._settings.expected_gpus == 0 else ""

    def run(self, moment: CheckMoment) -> CheckOutcome:
        """Ask once."""
        answer = self._ask(self.about.deadline, self._settings.nvml_library)
        self.last_answer = answer
        memory = _Memory.model_validate_json(moment.memory or "{}")
        known = known_gpus(answer, memory.known)
        expected = Expectation(boot_id=moment.boot_id, seen=moment.now, count=moment.expected_gpus, known=known)
        if answer.starting:
            if moment.now - moment.boot_seen_at < self.about.starting_for:
                return starting("NVML finds no driver", moment.memory)
            monitor = Component(kind=ComponentKind.MONITOR, id="nvml")
            missing = fault_of(
                "driver-not-loaded",
                monitor,
                seen=moment.now,
                boot_id=moment.boot_id,
                evidence=("NVML finds no driver",),
            )
            return judged([missing], memory=moment.memory)
        found = gpu_faults(answer, expected)
        short = memory.short + 1 if any(fault.code == "gpu-missing" for fault in found) else 0
        certain = short >= self.about.misses
        kept = [fault for fault in found if certain or fault.code != "gpu-missing"]
        text = _Memory(known=known, short=short).model_dump_json()
        if not answer.whole and not kept:
            return unknown(answer.silent or f"NVML refuses with error {answer.failed}", text)
        open_ = [*unknown_checks(answer), *(["a GPU is missing"] if short and not certain else [])]
        return judged(kept, "; ".join(open_), text)
