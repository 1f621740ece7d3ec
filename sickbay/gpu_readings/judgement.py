"""What NVML's answers mean: faults, unknowns, and whether a GPU that was reset is well again.

Called by the node agent with what its NVML child said. The numbers are NVML's own (nvml.h: return codes, recovery
actions of field 230); which rung each deserves follows facts on remediation, 4, and the driver's verdict outranks
every table. What cannot be asked on an old driver is unknown, never healthy and never an error.
"""

from datetime import datetime
from typing import Final

from sickbay.catalogue import fault_of
from sickbay.faults import Component, ComponentKind, Fault, FaultClass, Rung
from sickbay.gpu_readings.answer import LOST, RESET_REQUIRED, VERSION_MISMATCH, GpuAnswer, KnownGpu, NvmlAnswer
from sickbay.model import Frozen
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


class Expectation(Frozen):
    """What a healthy node would show."""

    boot_id: str
    seen: datetime
    """Time of the pass."""
    count: int | None = None
    """GPUs by the machine's type; None means as many as this boot has shown."""
    known: tuple[KnownGpu, ...] = ()


def known_gpus(answer: NvmlAnswer, before: tuple[KnownGpu, ...]) -> tuple[KnownGpu, ...]:
    """Everything this boot has shown, ordered by index. NVML counts on after a loss, so identity goes by UUID."""
    known = {gpu.uuid: gpu for gpu in before}
    for gpu in answer.gpus:
        if gpu.uuid and gpu.address and gpu.uuid not in known:
            known[gpu.uuid] = KnownGpu(index=gpu.index, uuid=gpu.uuid, pci=gpu.address)
    return tuple(sorted(known.values(), key=lambda gpu: gpu.pci))


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


def gpu_faults(answer: NvmlAnswer, expected: Expectation) -> tuple[Fault, ...]:
    """The faults that an answer shows by itself; silence and a starting driver are the agent's to judge."""
    found = [fault for gpu in answer.gpus for fault in _faults_of_one(gpu, answer, expected)]
    if answer.failed == LOST:
        found.append(_fault("gpu-lost", "unknown", expected, "NVML refuses: a GPU is lost"))
    elif answer.failed == RESET_REQUIRED:
        found.append(_fault("gpu-reset-required", "unknown", expected, "NVML refuses: a GPU needs a reset"))
    elif answer.failed == VERSION_MISMATCH:
        driver = Component(kind=ComponentKind.DRIVER, id="nvidia")
        evidence = ("NVML: library and kernel module differ in version",)
        found.append(
            fault_of("driver-mismatch", driver, seen=expected.seen, boot_id=expected.boot_id, evidence=evidence)
        )
    return (*found, *_missing(answer, expected))


def unknown_checks(answer: NvmlAnswer) -> tuple[str, ...]:
    """Checks that could not judge; each keeps the node from being called healthy."""
    if not answer.whole:
        return ("nvml",)
    return tuple(f"nvml {gpu.address or gpu.index}" for gpu in answer.gpus if not (gpu.uuid and gpu.address))


def passes_after_reset(answer: NvmlAnswer, pcis: tuple[str, ...], known: tuple[KnownGpu, ...]) -> bool:
    """Whether every GPU that was reset (all known ones, if none is named) is back and the driver asks nothing more."""
    wanted = set(pcis) or {gpu.pci for gpu in known}
    uuid_at = {gpu.pci: gpu.uuid for gpu in known}
    well = {
        gpu.address
        for gpu in answer.gpus
        if not gpu.remap_failed
        and not gpu.remap_pending
        and _action(gpu) in (None, 0)
        and not set(gpu.errors) & {LOST, RESET_REQUIRED, *NO_ANSWER}
        and uuid_at.get(gpu.address, gpu.uuid) == gpu.uuid
    }
    return answer.whole and wanted <= well


def _faults_of_one(gpu: GpuAnswer, answer: NvmlAnswer, expected: Expectation) -> list[Fault]:
    pci = gpu.address or _address_left_over(gpu, answer, expected)
    if LOST in gpu.errors:
        # A lost GPU answers nothing else that could be trusted.
        return [_fault("gpu-lost", pci, expected, f"NVML: GPU {gpu.index} is lost")]
    found = []
    if RESET_REQUIRED in gpu.errors:
        found.append(_fault("gpu-reset-required", pci, expected, f"NVML: GPU {gpu.index} needs a reset"))
    for code in sorted(set(gpu.errors) & NO_ANSWER.keys()):
        evidence = f"NVML: GPU {gpu.index} does not answer ({NO_ANSWER[code]})"
        found.append(_fault("gpu-not-answering", pci, expected, evidence))
    word, rung = RECOVERY_ACTIONS.get(_action(gpu) or 0, (UNKNOWN_ACTION, Rung.NONE))
    if rung is not Rung.NONE:
        fault = _fault("gpu-recovery-action", pci, expected, f"NVML: recovery action of GPU {gpu.index} is {word}")
        found.append(fault.model_copy(update={"rung": rung, "fault_class": FaultClass.GPU}))
    if gpu.remap_failed:
        found.append(_fault("row-remap-failed", pci, expected, f"NVML: row remapping of GPU {gpu.index} failed"))
    if gpu.remap_pending:
        found.append(
            _fault("row-remap-pending", pci, expected, f"NVML: row remapping of GPU {gpu.index} waits for a reset")
        )
    return found


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
    return [_fault("gpu-missing", pci, expected, evidence) for pci in gone or ["unknown"]]


def _address_left_over(gpu: GpuAnswer, answer: NvmlAnswer, expected: Expectation) -> str:
    """The address of a GPU that cannot tell it: the known one of its index that did not answer, else the only one."""
    answered = {other.address for other in answer.gpus}
    left = [known for known in expected.known if known.pci not in answered]
    same = [known for known in left if known.index == gpu.index]
    chosen = same if len(same) == 1 else left
    return chosen[0].pci if len(chosen) == 1 else "unknown"


def _fault(code: str, pci: str, expected: Expectation, evidence: str) -> Fault:
    component = Component(kind=ComponentKind.GPU, id=pci)
    return fault_of(code, component, seen=expected.seen, boot_id=expected.boot_id, evidence=(evidence,))


def _action(gpu: GpuAnswer) -> int | None:
    """The recovery action, or None where the driver does not tell a known one."""
    return gpu.recovery_action if gpu.recovery_action in RECOVERY_ACTIONS else None


def _action_word(gpu: GpuAnswer) -> str:
    action = _action(gpu)
    return UNKNOWN_ACTION if action is None else RECOVERY_ACTIONS[action][0]
