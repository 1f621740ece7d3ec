"""NVML as one check among the others: every GPU asked everything, and judged beside what this boot has shown.

Listed in `health.layers`; the agent also takes the GPUs' names and the proofs of resets from `last_answer`. What an
answer means is in `sickbay.gpu_readings`; here are only order, memory, and the driver that is not there.
"""

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Final

from pydantic import ValidationError

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
    healthy,
    judged,
    starting,
    unknown,
)
from sickbay.faults import Component, ComponentKind, Fault
from sickbay.gpu_readings import (
    Doubt,
    Expectation,
    GpuHistory,
    NvmlAnswer,
    certain,
    gpu_faults,
    remember,
    told_besides,
    under_way,
    unjudged,
)
from sickbay.gpu_readings.answer import LIBRARY_NOT_FOUND
from sickbay.instance_types import limits_of
from sickbay.model import Frozen

AskNvml = Callable[[timedelta, str], NvmlAnswer]

THRESHOLDS: Final = (
    "GPUs: as many as the machine's type has (SICKBAY_EXPECTED_GPUS), else as this boot has shown",
    "ECC: any uncorrected error since the driver was loaded, or a GPU's own limit of SRAM errors",
    "memory rows: a remapping pending or failed, or 512 for uncorrected errors",
    "memory pages before Ampere: 63 retired, or one pending",
    "clocks: held down by the hardware in 0.6 of the looks of 10 minutes",
    "temperature: the GPU's own limits of slowing down, at as many looks in a row as SICKBAY_NVML_MISSES says; so too a"
    " GPU or a driver that is missing, and NVLinks that are down",
    "NVLinks: down that were up in this boot, or while others of the GPU or of its board are up; 100 errors an hour are"
    " told",
    "fabric: not registered 10 minutes after the boot and for 5 minutes, refused, or complained of by its health mask",
    "PCIe: fewer lanes than most of the peers, or than earlier in this boot",
)


class _Memory(Frozen):
    history: GpuHistory = GpuHistory()
    doubts: Mapping[str, Doubt] = {}
    """What the last pass showed and did not prove."""


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
            looks_at="Every GPU through NVML: presence, the driver's verdict, ECC, spare memory, clocks, temperatures,"
            " NVLinks, registration with the fabric manager, MIG and other modes, PCIe lanes, processes.",
            source="NVIDIA's documents of NVML; gpud, gcm, DCGM and AWS' and Azure's checks for the limits",
            thresholds=THRESHOLDS,
            every=every,
            deadline=timedelta(seconds=settings.nvml_seconds),
            fresh_for=max(timedelta(minutes=5), 3 * every),
            misses=settings.nvml_misses,
            starting_for=timedelta(seconds=settings.starting_seconds),
            withdraws=True,
        )

    def applies(self, host: HostFacts) -> str:
        """Everywhere but on nodes that are to have no GPU, or have none on their bus and are promised none."""
        if self._settings.expected_gpus == 0:
            return "no GPU is expected"
        none = host.pci_known and not host.pci_gpus and not self._settings.expected_gpus
        return "no NVIDIA GPU on the PCI bus" if none else ""

    def run(self, moment: CheckMoment) -> CheckOutcome:
        """Ask once."""
        answer = self._ask(self.about.deadline, self._settings.nvml_library)
        self.last_answer = answer
        if answer.starting:
            return self._without_driver(answer, moment)
        before = _memory(moment.memory)
        history = remember(before.history, answer, moment.now)
        expected = self._expectation(moment, history)
        only = not moment.memory and moment.now - moment.boot_seen_at >= self.about.starting_for
        found = gpu_faults(answer, expected, history)
        told = certain(found, before.doubts, moment.now, self.about.misses, only=only)
        memory = _Memory(history=history, doubts=told.doubts)
        return _outcome(answer, expected, told.faults, told.unsure, memory.model_dump_json(exclude_defaults=True))

    def _expectation(self, moment: CheckMoment, history: GpuHistory) -> Expectation:
        return Expectation(
            boot_id=moment.boot_id,
            seen=moment.now,
            count=moment.expected_gpus,
            known=history.known,
            since_boot=moment.now - moment.boot_seen_at,
            switched=_switched(moment.host),
        )

    def _without_driver(self, answer: NvmlAnswer, moment: CheckMoment) -> CheckOutcome:
        """The driver's installer needs minutes; on a machine whose GPUs nobody knows, nothing may be there to drive."""
        words = "no NVML library" if answer.failed == LIBRARY_NOT_FOUND else "the NVIDIA driver is not loaded"
        before = _memory(moment.memory)
        if moment.now - moment.boot_seen_at < self.about.starting_for:
            return starting(words, before.model_dump_json(exclude_defaults=True))
        if not moment.host.pci_gpus and not moment.expected_gpus and not before.history.known:
            return unknown(f"{words}, and whether this machine has a GPU cannot be told", moment.memory)
        monitor = Component(kind=ComponentKind.MONITOR, id="nvml")
        fault = fault_of(
            "driver-not-loaded", monitor, seen=moment.now, boot_id=moment.boot_id, evidence=(f"NVML: {words}",)
        )
        told = certain((fault,), before.doubts, moment.now, self.about.misses, only=not moment.memory)
        after = before.model_copy(update={"doubts": told.doubts}).model_dump_json(exclude_defaults=True)
        return judged(told.faults, "; ".join(told.unsure), after)


def _outcome(
    answer: NvmlAnswer, expected: Expectation, faults: tuple[Fault, ...], doubt: tuple[str, ...], memory: str
) -> CheckOutcome:
    refusal = answer.silent or (f"NVML refuses with error {answer.failed}" if answer.failed is not None else "")
    open_questions = (refusal,) if refusal else (*unjudged(answer), *doubt)
    if faults or open_questions:
        return judged(faults, "; ".join(open_questions), memory)
    if waiting := under_way(answer, expected):
        return starting("; ".join(waiting), memory)
    return healthy(told_besides(answer), memory)


def _switched(host: HostFacts) -> bool | None:
    """Whether NVSwitches join the GPUs; None where neither the instance type nor the bus tells."""
    limits = limits_of(host.instance_type)
    if host.pci_nvswitches or (limits and limits.nvswitches):
        return True
    return False if limits else None


def _memory(text: str) -> _Memory:
    """What an earlier run kept; nothing of it if another version kept something else."""
    try:
        return _Memory.model_validate_json(text or "{}")
    except ValidationError:
        return _Memory()
