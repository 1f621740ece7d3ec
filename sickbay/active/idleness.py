"""Which GPUs nobody uses: the only ones that an active check may touch.

A GPU is idle if NVML lists no process on it and the kubelet has given it to no pod, not even to one that has not begun
to use it. Called by `health.active` again right before each GPU is touched. Whoever cannot be asked is taken to say
"in use": work comes before checks.
"""

import re
from collections.abc import Iterable
from typing import Final

from sickbay.gpu_readings import GpuAnswer, NvmlAnswer
from sickbay.model import Frozen

_REPLICA: Final = "::"
"""Between a GPU's UUID and the number of a time-sliced share of it (NVIDIA's device plugin)."""
_OLD_MIG: Final = "MIG-GPU-"
"""Before driver 470 a MIG device was named after its GPU: `MIG-<UUID of the GPU>/<instance>/<instance>`."""
_BY_MINOR: Final = re.compile(r"(?:gpu-|nvidia)(\d+)(?:$|-mig-|/)")
"""Names of DRA (`gpu-3`, `gpu-3-mig-1g10gb-19-0`) and of Google's device plugin (`nvidia3`, `nvidia3/gi1`)."""
_VENDORS: Final = ("nvidia.com",)
"""What resources and DRA drivers of GPUs have in their names, whatever the devices of them are called."""


class PodDevice(Frozen):
    """A device that the kubelet has given to a pod."""

    resource: str
    """Extended resource (`nvidia.com/gpu`), or the DRA driver (`gpu.nvidia.com`)."""
    id: str


class PodUse(Frozen):
    """What the kubelet says of devices in use (PodResources, v1 List)."""

    kubelet: bool = False
    """Whether there is a kubelet to ask; without one NVML alone decides."""
    devices: tuple[PodDevice, ...] = ()
    silent: str = ""
    """Why it gave no answer, in words; all GPUs then count as used."""


class IdleGpu(Frozen):
    """A GPU that may be tested."""

    index: int
    uuid: str
    pci: str
    """`0000:61:00`."""
    product: str
    visible: tuple[str, ...]
    """What work is put on: the GPU itself, or its MIG devices one after the other."""

    @property
    def words(self) -> str:
        """How people find it."""
        return f"GPU {self.index} ({self.pci})"


class Idleness(Frozen):
    """Which GPUs may be tested, and why the others may not."""

    idle: tuple[IdleGpu, ...] = ()
    left_out: tuple[str, ...] = ()
    """GPUs in use, and those without anything to put work on; each in words. This is no failure."""
    unjudged: tuple[str, ...] = ()
    """Why nobody knows whether a GPU is in use."""


def idleness(answer: NvmlAnswer, use: PodUse) -> Idleness:
    """Sort the GPUs that NVML lists, by what NVML and the kubelet say now."""
    if not answer.whole:
        why = answer.silent or f"it refuses with code {answer.failed}"
        return Idleness(unjudged=(f"NVML cannot tell which GPUs are idle: {why}",))
    if use.silent:
        return Idleness(unjudged=(f"the kubelet does not tell which GPUs pods have: {use.silent}",))
    strangers = _strangers(answer.gpus, use.devices)
    idle, left_out, unjudged = [], [], []
    for gpu in answer.gpus:
        words = f"GPU {gpu.index}"
        busy = _busy(gpu, use.devices, strangers)
        if not (gpu.uuid and gpu.address) or (gpu.process_count is None and not busy):
            unjudged.append(f"{words}: NVML does not tell who uses it")
        elif busy:
            left_out.append(f"{words} {busy}")
        elif gpu.mig_enabled and gpu.mig_uuids is None:
            unjudged.append(f"{words}: NVML does not tell its MIG devices")
        elif gpu.mig_enabled and not gpu.mig_uuids:
            left_out.append(f"{words} is in MIG mode without instances")
        else:
            idle.append(_idle(gpu))
    return Idleness(idle=tuple(idle), left_out=tuple(left_out), unjudged=tuple(unjudged))


def _idle(gpu: GpuAnswer) -> IdleGpu:
    visible = (gpu.mig_uuids or ()) if gpu.mig_enabled else (gpu.uuid,)
    return IdleGpu(index=gpu.index, uuid=gpu.uuid, pci=gpu.address, product=gpu.name, visible=visible)


def _busy(gpu: GpuAnswer, devices: Iterable[PodDevice], strangers: tuple[str, ...]) -> str:
    """Why a GPU counts as used, in words; empty if it does not."""
    if gpu.process_count:
        return f"has {gpu.process_count} processes"
    if any(_is_of(device, gpu) for device in devices):
        return "is given to a pod"
    if strangers:
        return f"may be the {strangers[0]} that is given to a pod"
    return ""


def _strangers(gpus: Iterable[GpuAnswer], devices: Iterable[PodDevice]) -> tuple[str, ...]:
    """Devices of GPUs by names that fit none that NVML lists: any GPU may be meant."""
    known = tuple(gpus)
    return tuple(
        device.id
        for device in devices
        if any(vendor in device.resource for vendor in _VENDORS) and not any(_is_of(device, gpu) for gpu in known)
    )


def _is_of(device: PodDevice, gpu: GpuAnswer) -> bool:
    name = device.id.split(_REPLICA)[0]
    if name == gpu.uuid or name in (gpu.mig_uuids or ()):
        return bool(name)
    if name.startswith(_OLD_MIG):
        return name.removeprefix("MIG-").split("/")[0] == gpu.uuid
    by_minor = _BY_MINOR.match(name)
    return by_minor is not None and gpu.minor is not None and int(by_minor[1]) == gpu.minor
