"""The state file that the simulated NVML library, `nvidia-smi` and reboot program read (native/gpu_state.h).

It is replaced as a whole at every change, so that a reader sees one moment and never half of one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from simulator.host.gpu import GpuIdentity, GpuModel, GpuTrouble

DRIVER_VERSION = "580.95.05"
CUDA_VERSION = 13000
_NO_FABRIC, _FABRIC_IN_PROGRESS, _FABRIC_COMPLETED = 0, 2, 3


@dataclass(frozen=True)
class DriverState:
    """How the driver as a whole behaves."""

    control: str
    """host:port of the machine's controls."""
    hangs: bool = False
    init_error: int = 0
    """NVML return code of initialisation, e.g. 9 (driver not loaded) or 18 (version mismatch)."""
    missing_functions: tuple[str, ...] = ()
    """NVML functions that this driver's library lacks."""


@dataclass(frozen=True)
class GpuUser:
    """A process on a GPU."""

    pid: int
    name: str


def render(
    driver: DriverState,
    model: GpuModel,
    gpus: Sequence[tuple[GpuIdentity, GpuTrouble]],
    users: Mapping[int, Sequence[GpuUser]],
) -> str:
    """The file's text; `users` by GPU index. GPUs that the driver did not find are left out."""
    lines = [
        f"driver={DRIVER_VERSION}",
        f"cuda={CUDA_VERSION}",
        f"control={driver.control}",
        f"hangs={driver.hangs:d}",
        f"init_error={driver.init_error}",
        f"missing={','.join(driver.missing_functions)}",
    ]
    for identity, trouble in gpus:
        if not trouble.absent:
            lines += _gpu_lines(identity, trouble, model, users.get(identity.index, ()))
    return "\n".join(lines) + "\n"


def _gpu_lines(identity: GpuIdentity, trouble: GpuTrouble, model: GpuModel, users: Sequence[GpuUser]) -> list[str]:
    return [
        "[gpu]",
        f"minor={identity.index}",
        f"uuid={identity.uuid}",
        f"pci=0000{identity.pci.upper()}.0",
        f"name={model.name}",
        f"serial={identity.serial}",
        f"memory_bytes={model.memory_bytes}",
        f"links={model.nvlinks}",
        f"links_down={sum(1 << link for link in trouble.nvlinks_down)}",
        f"error={trouble.error}",
        f"hangs={trouble.hangs:d}",
        f"recovery_action={trouble.recovery_action.nvml}",
        f"remap_pending={trouble.remap_pending:d}",
        f"remap_failed={trouble.remap_failed:d}",
        f"uncorrected_errors={trouble.uncorrected_errors}",
        f"fabric_state={_fabric_state(model, trouble)}",
        *trouble.cuda.lines(),
        *(f"user={user.pid} {user.name}" for user in users),
    ]


def _fabric_state(model: GpuModel, trouble: GpuTrouble) -> int:
    if not model.nvlinks:
        return _NO_FABRIC
    return _FABRIC_IN_PROGRESS if trouble.fabric_pending else _FABRIC_COMPLETED


def replace(path: Path, text: str) -> None:
    """Put a new file in place of the old one in one step."""
    scratch = path.with_name(f".{path.name}.new")
    scratch.write_text(text)
    scratch.replace(path)
