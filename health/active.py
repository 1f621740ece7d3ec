"""The active check: puts idle GPUs to work, briefly in the agent's rounds, for minutes when a burn-in is asked for.

Listed in `health.layers`. A GPU can answer every query and refuse the first context (facts: detection, 0.6 and 8.10),
so it is given a context, memory, a pattern to keep and a program with a known answer, by a child that may hang. GPUs in
use are left out, which is no failure, and each is looked at once more right before it is touched. The rules are in
`sickbay.active`; what a burn-in does besides is in `health.active_burn_in`.
"""

import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from functools import partial
from typing import Final

from health.active_burn_in import BurnIn
from health.active_cuda import CHILD_DEADLINE, Cuda
from health.active_usage import Usage
from health.nvml import ask_nvml
from health.pod_resources import DEADLINE as KUBELET_DEADLINE
from health.pod_resources import ask_kubelet
from health.settings import NodeSettings
from sickbay.active.idleness import IdleGpu
from sickbay.active.judgement import Finding, judge_work, outcome, taken
from sickbay.checks import (
    ActiveDepth,
    CheckAbout,
    CheckCost,
    CheckLayer,
    CheckMoment,
    CheckOutcome,
    HostFacts,
    not_applicable,
    starting,
)
from sickbay.faults import ComponentKind

DEADLINE: Final = timedelta(minutes=4)
"""For a short trial of all GPUs, of which two may hang at a time."""

NEVER: Final = timedelta()
"""In place of the time between two runs, for a check that runs only when it is asked for."""
KEPT: Final = timedelta(days=36500)
"""How long the answer of such a check counts: until it is asked again."""

_AT_ONCE: Final = 2
"""Short trials at a time: each loads the driver's library, which costs the host more than the GPU."""


class ActiveCheck:
    """Trials of idle GPUs."""

    def __init__(self, settings: NodeSettings) -> None:
        self.about = _about(settings)
        self._settings = settings
        self._cuda = Cuda(settings.cuda_library)

    def applies(self, host: HostFacts) -> str:
        """Empty if there may be GPUs."""
        return "no NVIDIA GPU on the PCI bus" if host.pci_known and not host.pci_gpus else ""

    def run(self, moment: CheckMoment) -> CheckOutcome:
        """Try every idle GPU, as deep as the moment asks."""
        if moment.depth is ActiveDepth.NONE:
            return not_applicable("runs only when it is asked for, and on GPUs that nobody uses")
        usage = usage_of(self._settings)
        idle = usage.look()
        if usage.starting:
            return starting("the driver is not loaded yet")
        end = time.monotonic() + (DEADLINE - CHILD_DEADLINE - KUBELET_DEADLINE).total_seconds()
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            tried = tuple(pool.map(partial(self._try, usage=usage, end=end), idle.idle))
        bound = self.about.starting_for
        if moment.depth is not ActiveDepth.BURN_IN:
            return outcome((tried,), (), idle, moment, bound)
        well = [finding.gpu for finding in tried if finding.well]
        burnt = BurnIn(self._settings, self._cuda, usage).run(well, moment)
        return outcome((tried, *burnt.phases), burnt.faults, idle, moment, bound)

    def _try(self, gpu: IdleGpu, usage: Usage, end: float) -> Finding:
        """One GPU, or its MIG devices until one of them does not do well."""
        if not usage.still_idle(gpu):
            return taken(gpu)
        still_idle = partial(usage.still_idle, gpu, fresh_for=0)
        for visible in gpu.visible:
            if time.monotonic() > end:
                return Finding(gpu=gpu, unjudged=f"{gpu.words}: the time was over before it was tried")
            answer = self._cuda.ask("quick", [visible], bytes=self._settings.active_megabytes << 20)
            finding = judge_work(gpu, answer, still_idle)
            if not finding.well:
                return finding
        return Finding(gpu=gpu)


def usage_of(settings: NodeSettings) -> Usage:
    """Who uses the GPUs of this machine."""
    nvml_deadline = timedelta(seconds=settings.nvml_seconds)
    return Usage(partial(ask_nvml, nvml_deadline, settings.nvml_library), partial(ask_kubelet, settings.kubelet_socket))


def _about(settings: NodeSettings) -> CheckAbout:
    every = timedelta(seconds=settings.active_seconds) if settings.active_seconds else NEVER
    return CheckAbout(
        name="active",
        layer=CheckLayer.ACTIVE,
        judges=(ComponentKind.GPU,),
        cost=CheckCost.EXCLUSIVE,
        looks_at="Idle GPUs at work: context, memory, a pattern written and read back, a program with a known answer;"
        " in a burn-in also bandwidths, copies between every two GPUs, and load with all results verified.",
        source="sichek#51 and #121: all queries well, no context; ogkm#1355: any two GPUs hang, each alone passes;"
        " floors of bandwidth after autopilot and Azure",
        thresholds=(
            f"{settings.active_megabytes} MiB of each GPU (SICKBAY_ACTIVE_MEGABYTES)",
            f"no end of a small piece of work within {CHILD_DEADLINE.total_seconds():g} s is a fault of the GPU",
            f"copies below {settings.copy_floor:.0%} of the product's peak are too slow (SICKBAY_COPY_FLOOR)",
            f"a burn-in computes in {settings.burn_in_memory:.0%} of the free memory (SICKBAY_BURN_IN_MEMORY), as long"
            " as is asked for (at most SICKBAY_BURN_IN_MOST); MIG devices are only tried briefly",
            "GPUs with processes, or given to pods, are left out (SICKBAY_KUBELET_SOCKET)",
            f"every {settings.active_seconds:g} s, 0 is never by itself (SICKBAY_ACTIVE_SECONDS)",
        ),
        every=every,
        deadline=DEADLINE,
        fresh_for=3 * every or KEPT,
        passes=1,
    )
