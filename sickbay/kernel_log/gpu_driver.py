"""What the NVIDIA driver says of a GPU without an Xid: lost, not initialised, waiting for a reset, or without NVLinks.

Some of the gravest states have no number at all (facts: detection, 0.2).
"""

import re
from dataclasses import replace

from sickbay.faults import Component, ComponentKind
from sickbay.kernel_log.lines import Line
from sickbay.kernel_log.sighting import NVIDIA_DRIVER, PCI, UNKNOWN, Memory, Sighting, gpu

KEYS = ("NVRM: ", "nv_get_p2p_free_callback")

_PREAMBLE = re.compile(rf"NVRM: GPU at PCI:(?P<pci>{PCI}): GPU-[0-9a-f-]{{36}}")
_SERIAL = re.compile(rf"NVRM: (?:GPU Board Serial Number: |GPU (?P<pci>{PCI}): GPU serial number is )")
_PROBED = re.compile(rf"NVRM: The NVIDIA GPU (?P<pci>{PCI})")
_LOST_AT_PROBE = re.compile(r"fallen off the bus and is not responding to commands")
_LOST = re.compile(rf"NVRM: (?:The )?(?:NVIDIA )?GPU (?:at )?(?:PCI:)?(?P<pci>{PCI})\b.*fallen off the bus")
_PROBE_FAILED = re.compile(r"NVRM: The NVIDIA probe routine failed for \d+ device")
_INIT_FAILED = re.compile(
    rf"NVRM: (?:GPU (?:at )?(?:PCI:)?(?P<pci>{PCI})\b.*)?"
    r"(?:RmInitAdapter failed|rm_init_adapter failed|osInitNvMapping: \*\*\* Cannot attach gpu)"
)
_RESET_REQUIRED = re.compile(
    rf"NVRM: (?:.*?(?:GPU (?:at )?(?:PCI:)?|\(PCI:)(?P<pci>{PCI})\b)?.*?"
    r"(?:NV_ERR_RESET_REQUIRED|paramsStatus=0x00000062\b|GPU likely needs to be reset)"
)
_LOCKED = re.compile(rf"NVRM: (?:.*?(?P<pci>{PCI})\b)?.*GPU is probably locked")
_NVLINK_TRAINING = re.compile(r"NVRM: .*NVLink: failed to train link")
_NVLINK_RX_DETECT = re.compile(r"NVRM: knvlink\w*PostRxDet\w*: .*failed", re.IGNORECASE)
_API_MISMATCH = re.compile(r"NVRM: API mismatch")
_PEERMEM = re.compile(r"nvidia-peermem nv_get_p2p_free_callback:\d+ ERROR detected invalid context")

_NVLINKS = Component(kind=ComponentKind.NVLINK, id=UNKNOWN)

_OF_A_GPU = (
    (_INIT_FAILED, "gpu-init-failed"),
    (_RESET_REQUIRED, "gpu-reset-required"),
    (_LOST, "gpu-lost"),
    (_LOCKED, "gpu-locked"),
)
_OF_OTHER_PARTS = (
    (_PROBE_FAILED, "gpu-missing", gpu(None)),
    (_NVLINK_TRAINING, "nvlink-training-failed", _NVLINKS),
    (_NVLINK_RX_DETECT, "nvlink-rx-detect-failed", _NVLINKS),
    (_API_MISMATCH, "driver-mismatch", NVIDIA_DRIVER),
    (_PEERMEM, "peermem-invalid-context", NVIDIA_DRIVER),
)


def recognise(line: Line, memory: Memory) -> Sighting | None:
    """The fault of a driver's line without a number; None of the many harmless ones."""
    if _note_identity(line, memory):
        return None
    return _lost_at_probe(line, memory) or _of_a_gpu(line, memory) or _of_another_part(line)


def _note_identity(line: Line, memory: Memory) -> bool:
    """Remembers the lines that tell a GPU's UUID and serial number, printed once before its first fault."""
    preamble, serial = _PREAMBLE.search(line.text), _SERIAL.search(line.text)
    if preamble:
        memory.named_gpu = gpu(preamble["pci"])
        memory.note_identity(memory.named_gpu, line.raw)
    elif serial:
        named = gpu(serial["pci"]) if serial["pci"] else memory.named_gpu
        if named:
            memory.note_identity(named, line.raw)
    return bool(preamble or serial)


def _lost_at_probe(line: Line, memory: Memory) -> Sighting | None:
    """A GPU that is gone when the driver loads: one record of three lines, or three records."""
    probed = _PROBED.search(line.text)
    if probed:
        memory.probed = line
    if not _LOST_AT_PROBE.search(line.text):
        return None
    first, memory.probed = memory.probed or line, None
    named = _PROBED.search(first.text)
    if first is not line:
        line = replace(line, raw=f"{first.raw} {line.raw.strip()}", moment=first.moment)
    return Sighting("gpu-lost", gpu(named["pci"] if named else None), line)


def _of_a_gpu(line: Line, memory: Memory) -> Sighting | None:
    for pattern, code in _OF_A_GPU:
        found = pattern.search(line.text)
        if found:
            sighting = Sighting(code, gpu(found["pci"]), line)
            memory.note_trouble(sighting)
            return sighting
    return None


def _of_another_part(line: Line) -> Sighting | None:
    for pattern, code, component in _OF_OTHER_PARTS:
        if pattern.search(line.text):
            return Sighting(code, component, line)
    return None
