"""What a burn-in does with GPUs that passed the short trial: bandwidths, copies between GPUs, and load.

Called by `health.active`, for verification and admission. One GPU after the other where rates are measured, since GPUs
share the bus; all at once under load, since it is together that they draw the most power.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Final

from health.active_cuda import CHILD_DEADLINE, Cuda
from health.active_usage import Usage
from health.settings import NodeSettings
from sickbay.active.idleness import IdleGpu
from sickbay.active.judgement import Finding, judge_copies, judge_work, taken
from sickbay.active.pairs import PairFinding, judge_pair, pair_faults, turns
from sickbay.checks import CheckMoment
from sickbay.faults import Fault

PAIRS_AT_ONCE: Final = 4
LOAD_SLACK: Final = timedelta(seconds=60)
"""Beyond the load itself: filling most of the memory, and the last pass, which is finished."""


@dataclass(frozen=True)
class Burnt:
    """What a burn-in has shown."""

    phases: tuple[tuple[Finding, ...], ...]
    faults: tuple[Fault, ...]
    """Of pairs of GPUs."""


class BurnIn:
    """The phases of one burn-in."""

    def __init__(self, settings: NodeSettings, cuda: Cuda, usage: Usage) -> None:
        self._settings = settings
        self._cuda = cuda
        self._usage = usage
        self._bytes = settings.active_megabytes << 20

    def run(self, gpus: Sequence[IdleGpu], moment: CheckMoment) -> Burnt:
        """All phases, each with those GPUs that did well in the ones before. MIG devices take no part."""
        whole = [gpu for gpu in gpus if gpu.visible == (gpu.uuid,)]
        self._usage.forget()
        copied = tuple(self._copies(gpu) for gpu in whole)
        well = _well(copied)
        pairs = tuple(finding for turn in turns(well) for finding in self._turn(turn))
        suspect = {gpu.index for pair in pairs if pair.code for gpu in (pair.one, pair.other)}
        loaded = self._load([gpu for gpu in well if gpu.index not in suspect], self._load_time(moment))
        unjudged = tuple(Finding(gpu=pair.one, unjudged=pair.unjudged) for pair in pairs if pair.unjudged)
        return Burnt(phases=(copied, unjudged, loaded), faults=pair_faults(pairs, moment))

    def _copies(self, gpu: IdleGpu) -> Finding:
        if not self._usage.still_idle(gpu):
            return taken(gpu)
        answer = self._cuda.ask("copies", gpu.visible, bytes=self._bytes)
        return judge_copies(gpu, answer, self._idle_now(gpu), self._settings.copy_floor)

    def _turn(self, turn: Sequence[tuple[IdleGpu, IdleGpu]]) -> list[PairFinding]:
        self._usage.forget()
        with ThreadPoolExecutor(PAIRS_AT_ONCE) as pool:
            return list(pool.map(lambda pair: self._pair(*pair), turn))

    def _pair(self, one: IdleGpu, other: IdleGpu) -> PairFinding:
        if not (self._usage.still_idle(one) and self._usage.still_idle(other)):
            return PairFinding(one=one, other=other)
        answer = self._cuda.ask("peer", [one.uuid, other.uuid], bytes=self._bytes)
        return judge_pair(one, other, answer, self._idle_now(one, other), self._settings.copy_floor)

    def _load_time(self, moment: CheckMoment) -> timedelta:
        most = self._settings.burn_in_most
        return moment.burn_in if most is None else min(moment.burn_in, timedelta(seconds=most))

    def _load(self, gpus: Sequence[IdleGpu], seconds: timedelta) -> tuple[Finding, ...]:
        if not gpus:
            return ()
        self._usage.forget()
        with ThreadPoolExecutor(len(gpus)) as pool:
            return tuple(pool.map(partial(self._load_one, seconds=seconds), gpus))

    def _load_one(self, gpu: IdleGpu, seconds: timedelta) -> Finding:
        if not self._usage.still_idle(gpu):
            return taken(gpu)
        answer = self._cuda.ask(
            "load",
            gpu.visible,
            seconds + CHILD_DEADLINE + LOAD_SLACK,
            seconds=seconds.total_seconds(),
            share=self._settings.burn_in_memory,
        )
        return judge_work(gpu, answer, self._idle_now(gpu))

    def _idle_now(self, *gpus: IdleGpu) -> Callable[[], bool]:
        return lambda: all(self._usage.still_idle(gpu, fresh_for=0) for gpu in gpus)


def _well(findings: Sequence[Finding]) -> list[IdleGpu]:
    return [finding.gpu for finding in findings if finding.well]
