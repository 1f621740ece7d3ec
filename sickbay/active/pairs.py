"""Which pairs of GPUs copy to each other in which turn, and whom it says something of when they do not.

Any two GPUs may hang at each other while each passes alone, as after an error of the whole fabric (facts: detection,
8.5); so every pair is tried. What is told is as narrow as the failures show: one pair, the one GPU that all failed
pairs share, or the fabric.
"""

from collections.abc import Callable, Iterable
from itertools import combinations
from typing import Final

from sickbay.active.answers import CudaAnswer
from sickbay.active.idleness import IdleGpu
from sickbay.active.judgement import Finding, judge_work
from sickbay.active.speeds import peaks_of, too_slow
from sickbay.catalogue import fault_of
from sickbay.checks import CheckMoment
from sickbay.faults import EVIDENCE_LINES_KEPT, Component, ComponentKind, Fault
from sickbay.model import Frozen

FAILED: Final = "gpu-peer-copy-failed"
SLOW: Final = "gpu-peer-copy-slow"

_OWN_CODES: Final = {
    "gpu-work-hangs": FAILED,
    "gpu-wrong-result": FAILED,
    "nvlink-uncorrectable": FAILED,
    "gpu-context-failed": FAILED,
    "gpu-launch-failed": FAILED,
}
"""What a pair's trouble is called whose GPUs pass alone; anything else stays what it is, and is not the pair's."""


class PairFinding(Frozen):
    """What the copies between two GPUs have shown; all empty if they did well."""

    one: IdleGpu
    other: IdleGpu
    code: str = ""
    evidence: str = ""
    unjudged: str = ""

    @property
    def words(self) -> str:
        """How people find it."""
        return f"{self.one.words} and {self.other.words}"


def turns(gpus: Iterable[IdleGpu]) -> tuple[tuple[tuple[IdleGpu, IdleGpu], ...], ...]:
    """Every pair once, in turns of pairs that share no GPU, so that those of a turn can be tried at once."""
    made: list[list[tuple[IdleGpu, IdleGpu]]] = []
    for pair in combinations(gpus, 2):
        indices = {gpu.index for gpu in pair}
        free = (turn for turn in made if not indices & {gpu.index for other in turn for gpu in other})
        turn = next(free, None)
        if turn is None:
            made.append([pair])
        else:
            turn.append(pair)
    return tuple(tuple(turn) for turn in made)


def judge_pair(
    one: IdleGpu, other: IdleGpu, answer: CudaAnswer, still_idle: Callable[[], bool], share: float
) -> PairFinding:
    """What an answer says of two GPUs, each of which passes alone. `share` of the peak rate is the least."""
    pair = PairFinding(one=one, other=other)
    finding: Finding = judge_work(one, answer.model_copy(update={"pci": ""}), still_idle)
    if finding.code:
        code = _OWN_CODES.get(finding.code, "")
        if code:
            return pair.model_copy(update={"code": code, "evidence": finding.evidence})
        return pair.model_copy(update={"unjudged": f"{pair.words}: {finding.evidence}"})
    if finding.unjudged:
        return pair.model_copy(update={"unjudged": f"{pair.words}: {finding.unjudged}"})
    if finding.left_out:
        return pair
    peaks = peaks_of(one.product)
    if answer.peer_access is False and peaks is not None and peaks.peer is not None:
        return pair.model_copy(update={"unjudged": f"{pair.words}: CUDA does not let them reach each other"})
    slow = next(filter(None, (too_slow(rate, one.product, share) for rate in answer.rates)), "")
    if slow and not still_idle():
        return pair
    return pair.model_copy(update={"code": SLOW if slow else "", "evidence": slow})


def pair_faults(findings: Iterable[PairFinding], moment: CheckMoment) -> tuple[Fault, ...]:
    """One fault for each kind of trouble, of the narrowest part that explains it."""
    found = tuple(findings)
    kinds = ([finding for finding in found if finding.code == code] for code in (FAILED, SLOW))
    return tuple(_fault(kind, moment) for kind in kinds if kind)


def _fault(findings: list[PairFinding], moment: CheckMoment) -> Fault:
    evidence = tuple(f"active check of {one.words}: {one.evidence}" for one in findings[:EVIDENCE_LINES_KEPT])
    return fault_of(findings[0].code, _part(findings), seen=moment.now, boot_id=moment.boot_id, evidence=evidence)


def _part(findings: list[PairFinding]) -> Component:
    if len(findings) == 1:
        pair = findings[0]
        return Component(kind=ComponentKind.NVLINK, id=f"{pair.one.pci}/{pair.other.pci}")
    shared = set.intersection(*({pair.one.pci, pair.other.pci} for pair in findings))
    if len(shared) == 1:
        return Component(kind=ComponentKind.GPU, id=shared.pop())
    return Component(kind=ComponentKind.NVLINK, id="unknown")
