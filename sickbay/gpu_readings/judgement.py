"""What NVML's answers mean: faults, and whether a GPU that was reset is well again.

Called by the NVML check, by the node agent's probe, and by the readers of recorded outputs. Which rung each fault
deserves is in the catalogue and follows facts on remediation, 4; the driver's verdict outranks every table. What cannot
be asked on an old driver is unknown, never healthy and never an error. Each subject has a module of its own.
"""

from typing import Final

from sickbay.counter_tracks import growth
from sickbay.faults import Fault, FaultClass, Rung
from sickbay.gpu_readings.answer import (
    CORRUPTED_INFOROM,
    LOST,
    RESET_REQUIRED,
    VERSION_MISMATCH,
    GpuAnswer,
    KnownGpu,
    NvmlAnswer,
)
from sickbay.gpu_readings.clocks import sustained_clock_faults
from sickbay.gpu_readings.expectation import Expectation, address_of, driver_fault, gpu_fault
from sickbay.gpu_readings.fabric import fabric_faults
from sickbay.gpu_readings.history import GpuHistory
from sickbay.gpu_readings.links import link_faults
from sickbay.gpu_readings.memory import memory_faults, uncorrected
from sickbay.gpu_readings.surroundings import surrounding_faults
from sickbay.nodes import GpuReading

NO_ANSWER: Final = {10: "timeout", 17: "blocked by the operating system", 999: "unknown error"}
"""Errors of a GPU after which nothing is known of it, which is bad, not good (facts: detection, 2)."""

RECOVERY_ACTIONS: Final = {
    0: ("none", Rung.NONE),
    1: ("gpu_reset", Rung.RESET_GPU),
    2: ("node_reboot", Rung.REBOOT),
    3: ("drain_p2p", Rung.STOP_WORKLOAD),
    4: ("drain_and_reset", Rung.RESET_GPU),
    5: ("recover_imex_domain", Rung.HUMAN),
    6: ("bus_reset", Rung.RESET_GPU),
    7: ("system_reboot", Rung.REBOOT),
}
"""NVML's recovery actions: the word, and the rung that carries it out."""

UNKNOWN_ACTION: Final = "unknown"
_NOT_SET: Final = 0xFF
"""What the driver has before it has thought of an action (facts: detection, 1e)."""

_NOTHING: Final = GpuHistory()


def readings(answer: NvmlAnswer) -> tuple[GpuReading, ...]:
    """The GPUs that could be named, as a probe reports them."""
    return tuple(
        GpuReading(
            uuid=gpu.uuid,
            pci=gpu.address,
            recovery_action=_action_word(gpu),
            remap_pending=gpu.remap_pending,
            remap_failed=gpu.remap_failed,
            process_count=gpu.process_count,
        )
        for gpu in answer.gpus
        if gpu.uuid and gpu.address
    )


def gpu_faults(answer: NvmlAnswer, expected: Expectation, history: GpuHistory = _NOTHING) -> tuple[Fault, ...]:
    """The faults that an answer shows, beside what this boot has shown before; silence and a driver that is not there
    are the check's to judge."""
    return (
        *(fault for gpu in answer.gpus for fault in _faults_of_one(gpu, answer, expected, history)),
        *_refusal(answer, expected),
        *_missing(answer, expected),
        *fabric_faults(answer, expected),
        *link_faults(answer, expected, history),
        *surrounding_faults(answer, expected, history),
        *sustained_clock_faults(answer, expected, history),
    )


def passes_after_reset(answer: NvmlAnswer, pcis: tuple[str, ...], known: tuple[KnownGpu, ...]) -> bool:
    """Whether every GPU that was reset (all known ones, if none is named) is back and the driver asks nothing more."""
    wanted = set(pcis) or {gpu.pci for gpu in known}
    uuid_at = {gpu.pci: gpu.uuid for gpu in known}
    well = {
        gpu.address
        for gpu in answer.gpus
        if not gpu.remap_failed
        and not gpu.remap_pending
        and not gpu.retired_pages.pending
        and not uncorrected(gpu)
        and _action(gpu) in (None, 0)
        and not unknown_action(gpu)
        and not set(gpu.errors) & {LOST, RESET_REQUIRED, *NO_ANSWER}
        and uuid_at.get(gpu.address, gpu.uuid) == gpu.uuid
    }
    return answer.whole and wanted <= well


def unknown_action(gpu: GpuAnswer) -> str:
    """The recovery action of a newer driver, in words, which may ask for anything; empty if it is known or not told."""
    action = gpu.recovery_action
    known = action is None or action in RECOVERY_ACTIONS or action == _NOT_SET
    return "" if known else f"recovery action {action}"


def _faults_of_one(gpu: GpuAnswer, answer: NvmlAnswer, expected: Expectation, history: GpuHistory) -> list[Fault]:
    pci = address_of(gpu, answer, expected)
    if LOST in gpu.errors:
        # A lost GPU answers nothing else that could be trusted.
        return [gpu_fault("gpu-lost", pci, expected, f"NVML: GPU {gpu.index} is lost")]
    found = []
    if RESET_REQUIRED in gpu.errors:
        found.append(gpu_fault("gpu-reset-required", pci, expected, f"NVML: GPU {gpu.index} needs a reset"))
    for code in sorted(set(gpu.errors) & NO_ANSWER.keys()):
        evidence = f"NVML: GPU {gpu.index} does not answer ({NO_ANSWER[code]})"
        found.append(gpu_fault("gpu-not-answering", pci, expected, evidence))
    if CORRUPTED_INFOROM in gpu.errors:
        evidence = f"NVML: the memory in which GPU {gpu.index} keeps its own records is corrupt"
        found.append(gpu_fault("inforom-corrupted", pci, expected, evidence))
    found.extend(_verdict_of_the_driver(gpu, pci, expected))
    found.extend(memory_faults(gpu, pci, expected))
    track = history.counters.get(f"{pci}/uncorrected errors")
    if uncorrected(gpu) is None and track is not None and growth(track):
        evidence = f"GPU {gpu.index}: {growth(track)} more uncorrected memory errors in its life than an hour ago"
        found.append(gpu_fault("ecc-uncorrected", pci, expected, evidence))
    return found


def _verdict_of_the_driver(gpu: GpuAnswer, pci: str, expected: Expectation) -> list[Fault]:
    word, rung = RECOVERY_ACTIONS.get(_action(gpu) or 0, (UNKNOWN_ACTION, Rung.NONE))
    if rung is Rung.NONE:
        return []
    fault = gpu_fault("gpu-recovery-action", pci, expected, f"NVML: recovery action of GPU {gpu.index} is {word}")
    return [fault.model_copy(update={"rung": rung, "fault_class": FaultClass.GPU})]


def _refusal(answer: NvmlAnswer, expected: Expectation) -> list[Fault]:
    """What it says of the machine that NVML refuses altogether."""
    match answer.failed:
        case code if code == LOST:
            return [gpu_fault("gpu-lost", "unknown", expected, "NVML refuses: a GPU is lost")]
        case code if code == RESET_REQUIRED:
            return [gpu_fault("gpu-reset-required", "unknown", expected, "NVML refuses: a GPU needs a reset")]
        case code if code == VERSION_MISMATCH:
            evidence = "NVML: library and kernel module differ in version"
            return [driver_fault("driver-mismatch", expected, evidence)]
        case _:
            return []


def _missing(answer: NvmlAnswer, expected: Expectation) -> list[Fault]:
    """GPUs that the driver no longer counts, by name where this boot has shown them."""
    wanted = len(expected.known) if expected.count is None else expected.count
    if answer.count is None or answer.count >= wanted:
        return []
    evidence = f"NVML: {answer.count} of {wanted} GPUs"
    answered = {gpu.address for gpu in answer.gpus}
    gone = [gpu.pci for gpu in expected.known if gpu.pci not in answered]
    if not answer.whole or len(gone) > wanted - answer.count:
        # Some known GPU is only silent or lost: which ones are missing cannot be told.
        gone = []
    return [gpu_fault("gpu-missing", pci, expected, evidence) for pci in gone or ["unknown"]]


def _action(gpu: GpuAnswer) -> int | None:
    """The recovery action, or None where the driver does not tell a known one."""
    return gpu.recovery_action if gpu.recovery_action in RECOVERY_ACTIONS else None


def _action_word(gpu: GpuAnswer) -> str:
    action = _action(gpu)
    return UNKNOWN_ACTION if action is None else RECOVERY_ACTIONS[action][0]
