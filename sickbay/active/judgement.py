"""What it means how a GPU did at its work: one finding per GPU, and the outcome of them all.

A GPU that gives wrong data, or hangs at a small piece of work that nobody disturbs, is at fault at once. Trouble before
any GPU is touched (a library that is missing, a device file that our container does not have) says nothing of the GPU:
it is unknown (facts: detection, 8.13). And when several GPUs all fail alike, it is what they share, the driver, and no
GPU is condemned for it.
"""

from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from typing import Final

from sickbay.active.answers import (
    COMPUTE_PROHIBITED,
    DEVICE_UNAVAILABLE,
    DRIVER_MISMATCH,
    FABRIC_NOT_READY,
    KERNEL_ERRORS,
    MEMORY_ERRORS,
    MPS_ERRORS,
    NVLINK_UNCORRECTABLE,
    OUT_OF_MEMORY,
    TRANSLATION_ERRORS,
    UNKNOWN_ERROR,
    CudaAnswer,
    CudaFailure,
    CudaStep,
)
from sickbay.active.idleness import IdleGpu, Idleness
from sickbay.active.speeds import too_slow
from sickbay.catalogue import fault_of
from sickbay.checks import CheckMoment, CheckOutcome, CheckResult, judged, not_applicable, starting
from sickbay.faults import EVIDENCE_LINES_KEPT, Component, ComponentKind, Fault, merge_faults
from sickbay.model import Frozen

HANGS: Final = "gpu-work-hangs"
FABRIC: Final = "cuda-fabric-not-ready"
MISMATCH: Final = "driver-mismatch"

_FABRIC: Final = Component(kind=ComponentKind.NVSWITCH, id="unknown")
_DRIVER: Final = Component(kind=ComponentKind.DRIVER, id="nvidia")

_SHARED: Final = {
    HANGS: "driver-hung",
    "gpu-context-failed": "cuda-unusable",
    "gpu-allocation-failed": "cuda-unusable",
    "gpu-launch-failed": "cuda-unusable",
    "gpu-wrong-result": "cuda-unusable",
}
"""What it is when all of several GPUs have the same fault: hardware does not fail so."""


class Finding(Frozen):
    """What the test of one GPU has shown; all empty if it did well."""

    gpu: IdleGpu
    code: str = ""
    """Of the fault that it shows."""
    evidence: str = ""
    left_out: str = ""
    """Why it was not tested after all, which is no failure."""
    unjudged: str = ""
    """What could not be judged, and why."""

    @property
    def well(self) -> bool:
        """It was tested, and did well."""
        return not (self.code or self.left_out or self.unjudged)


def judge_copies(gpu: IdleGpu, answer: CudaAnswer, still_idle: Callable[[], bool], share: float) -> Finding:
    """What the bandwidths of a GPU say of it; `share` of the product's peak is the least."""
    finding = judge_work(gpu, answer, still_idle)
    if not finding.well:
        return finding
    slow = next(filter(None, (too_slow(rate, gpu.product, share) for rate in answer.rates)), "")
    if not slow:
        return finding
    return _fault(gpu, "gpu-copy-slow", slow) if still_idle() else taken(gpu)


def judge_work(gpu: IdleGpu, answer: CudaAnswer, still_idle: Callable[[], bool]) -> Finding:
    """What an answer says of a GPU; `still_idle` is asked only if somebody else's work could explain it."""
    if answer.wrong is not None:
        wrong = answer.wrong
        words = f"after {answer.step}, byte {wrong.at} begins {wrong.found} for {wrong.expected}; {wrong.bytes} differ"
        return _fault(gpu, "gpu-wrong-result", words)
    if answer.failed is not None:
        return _judge_failure(gpu, answer, answer.failed, still_idle)
    if answer.timed_out and not answer.step.before_the_gpu:
        return _fault(gpu, HANGS, f"no end of step {answer.step}")
    if answer.silent:
        return _unjudged(gpu, f"at step {answer.step}: {answer.silent}")
    if answer.pci and not answer.pci.lower().startswith(gpu.pci):
        return _unjudged(gpu, f"CUDA gave the GPU at {answer.pci} instead")
    return Finding(gpu=gpu)


def _judge_failure(gpu: IdleGpu, answer: CudaAnswer, failed: CudaFailure, still_idle: Callable[[], bool]) -> Finding:
    code = failed.code
    if code in FABRIC_NOT_READY:
        return _fault(gpu, FABRIC, f"{failed.words} (system not ready)")
    if code == DRIVER_MISMATCH:
        return _fault(gpu, MISMATCH, f"{failed.words} (library and kernel module differ in version)")
    if code in MEMORY_ERRORS:
        return _fault(gpu, "gpu-memory-error", f"{failed.words} ({MEMORY_ERRORS[code]})")
    if code == NVLINK_UNCORRECTABLE:
        return _fault(gpu, "nvlink-uncorrectable", f"{failed.words} (uncorrectable NVLink error)")
    if code in KERNEL_ERRORS:
        return _fault(gpu, "gpu-launch-failed", f"{failed.words} ({KERNEL_ERRORS[code]})")
    if code in TRANSLATION_ERRORS:
        return _unjudged(gpu, f"{failed.words}: mount libnvidia-ptxjitcompiler.so.1 beside libcuda.so.1")
    if code in MPS_ERRORS:
        return _unjudged(gpu, f"{failed.words}: the MPS daemon refuses")
    if code in (OUT_OF_MEMORY, DEVICE_UNAVAILABLE) or (code == UNKNOWN_ERROR and answer.step is not CudaStep.INIT):
        return _judge_refusal(gpu, answer, failed, still_idle)
    return _unjudged(gpu, f"{failed.words} at step {answer.step}")


def _judge_refusal(gpu: IdleGpu, answer: CudaAnswer, failed: CudaFailure, still_idle: Callable[[], bool]) -> Finding:
    """A GPU that does not take work: it is in use, closed to work, or broken."""
    if answer.compute_mode == COMPUTE_PROHIBITED:
        return Finding(gpu=gpu, left_out=f"{gpu.words} is closed to work (compute mode prohibited)")
    if not still_idle():
        return taken(gpu)
    if failed.code != OUT_OF_MEMORY:
        return _fault(gpu, "gpu-context-failed", f"{failed.words} on an idle GPU")
    free, total = answer.free_bytes, answer.total_bytes
    if free is not None and total is not None and free * 2 >= total:
        return _fault(gpu, "gpu-allocation-failed", f"{failed.words} with {free >> 20} MiB free of {total >> 20}")
    left = "" if free is None else f", {free >> 20} MiB are left"
    held = _fault(gpu, "gpu-memory-held", f"{failed.words}{left} though no process uses it")
    return held.model_copy(update={"unjudged": f"{gpu.words}: no memory is left to test it with"})


def outcome(
    phases: Sequence[Sequence[Finding]],
    faults_besides: Iterable[Fault],
    idleness: Idleness,
    moment: CheckMoment,
    bound: timedelta,
) -> CheckOutcome:
    """A whole run as one outcome: the findings of its phases, of which the first tries every idle GPU, and faults of
    other parts. `bound` is how long after a boot the fabric may take."""
    found = [finding for phase in phases for finding in phase]
    young = moment.now - moment.boot_seen_at < bound
    if young and any(finding.code == FABRIC for finding in found):
        return starting("CUDA waits for the fabric manager")
    tested = sum(not finding.left_out for finding in phases[0])
    left_out = "; ".join(dict.fromkeys((*idleness.left_out, *(one.left_out for one in found if one.left_out))))
    unjudged = "; ".join(dict.fromkeys((*idleness.unjudged, *(one.unjudged for one in found if one.unjudged))))
    if not tested and not unjudged:
        return not_applicable(f"no GPU is idle: {left_out}" if left_out else "there is no GPU")
    faults = (*(fault for phase in phases for fault in faults_of(phase, moment)), *faults_besides)
    result = judged(merge_faults((), faults), unjudged)
    if result.result is CheckResult.HEALTHY:
        words = f"{tested} tested" + (f"; left out: {left_out}" if left_out else "")
        return result.model_copy(update={"why": words})
    return result


def faults_of(findings: Iterable[Finding], moment: CheckMoment) -> tuple[Fault, ...]:
    """The faults that one phase shows, one per GPU, or one for all of them where they share it."""
    tested = [finding for finding in findings if not finding.left_out]
    ill = [finding for finding in tested if finding.code]
    codes = {finding.code for finding in ill}
    for code, component in ((FABRIC, _FABRIC), (MISMATCH, _DRIVER)):
        if code in codes:
            return (_made(code, component, [one for one in ill if one.code == code], moment),)
    if len(tested) > 1 and len(ill) == len(tested) and len(codes) == 1 and codes <= _SHARED.keys():
        return (_made(_SHARED[codes.pop()], _DRIVER, ill, moment),)
    return tuple(
        _made(finding.code, Component(kind=ComponentKind.GPU, id=finding.gpu.pci), [finding], moment) for finding in ill
    )


def _made(code: str, component: Component, findings: list[Finding], moment: CheckMoment) -> Fault:
    evidence = tuple(
        f"active check of {finding.gpu.words}: {finding.evidence}" for finding in findings[:EVIDENCE_LINES_KEPT]
    )
    return fault_of(code, component, seen=moment.now, boot_id=moment.boot_id, evidence=evidence)


def _fault(gpu: IdleGpu, code: str, evidence: str) -> Finding:
    return Finding(gpu=gpu, code=code, evidence=evidence)


def taken(gpu: IdleGpu) -> Finding:
    """The finding for a GPU that somebody began to use."""
    return Finding(gpu=gpu, left_out=f"{gpu.words} was taken into use meanwhile")


def _unjudged(gpu: IdleGpu, why: str) -> Finding:
    return Finding(gpu=gpu, unjudged=f"{gpu.words}: {why}")
