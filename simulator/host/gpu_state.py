"""The state file that the simulated NVML library, `nvidia-smi` and reboot program read (native/gpu_state.h).

It is replaced as a whole at every change, so that a reader sees one moment and never half of one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from simulator.host.gpu import GpuIdentity, GpuTrouble
from simulator.host.gpu_models import GpuModel
from simulator.host.gpu_values import values

DRIVER_VERSION = "580.95.05"
CUDA_VERSION = 13000

FUNCTIONS_SINCE = {
    "nvmlDeviceGetCurrentClocksEventReasons": 535,
    "nvmlDeviceGetSramEccErrorStatus": 545,
    "nvmlDeviceGetGpuFabricInfoV": 550,
    "nvmlDeviceGetMarginTemperature": 560,
}
"""Functions by the first driver that has them."""
_LAST_FIELD_SINCE = {0: 199, 550: 229, 570: 302}
"""The highest number of a field that a driver knows; the recovery action is number 230."""


@dataclass(frozen=True)
class DriverState:
    """How the driver as a whole behaves."""

    control: str
    """host:port of the machine's controls."""
    events: Path
    """File in which NVML's events appear."""
    version: str = DRIVER_VERSION
    hangs: bool = False
    init_error: int = 0
    """NVML return code of initialisation, e.g. 9 (driver not loaded) or 18 (version mismatch)."""
    missing_functions: tuple[str, ...] = ()
    """NVML functions that this driver's library lacks, beside those that came with later versions."""

    @property
    def major(self) -> int:
        """The first number of the version."""
        return int(self.version.split(".")[0])

    @property
    def all_missing(self) -> tuple[str, ...]:
        """Every function that the library lacks."""
        return (*self.missing_functions, *(name for name, since in FUNCTIONS_SINCE.items() if self.major < since))

    @property
    def last_field(self) -> int:
        """The highest number of a field that it knows."""
        return max(last for since, last in _LAST_FIELD_SINCE.items() if self.major >= since)


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
        f"driver={driver.version}",
        f"cuda={CUDA_VERSION}",
        f"control={driver.control}",
        f"hangs={driver.hangs:d}",
        f"init_error={driver.init_error}",
        f"missing={','.join(driver.all_missing)}",
        f"last_field={driver.last_field}",
        f"events={driver.events}",
    ]
    for identity, trouble in gpus:
        if not trouble.absent:
            lines += _gpu_lines(identity, trouble, model, driver.major, users.get(identity.index, ()))
    return "\n".join(lines) + "\n"


def _gpu_lines(
    identity: GpuIdentity, trouble: GpuTrouble, model: GpuModel, driver: int, users: Sequence[GpuUser]
) -> list[str]:
    down = range(model.nvlinks) if model.bridged else trouble.nvlinks_down
    return [
        "[gpu]",
        f"minor={identity.index}",
        f"uuid={identity.uuid}",
        f"pci=0000{identity.pci.upper()}.0",
        f"name={model.name}",
        f"serial={identity.serial}",
        f"memory_bytes={model.memory_bytes}",
        f"links={model.nvlinks}",
        f"links_down={sum(1 << link for link in down)}",
        f"error={trouble.error}",
        f"hangs={trouble.hangs:d}",
        f"recovery_action={trouble.recovery_action.nvml}",
        f"remap_pending={trouble.remap_pending:d}",
        f"remap_failed={trouble.remap_failed:d}",
        f"uncorrected_errors={trouble.uncorrected_errors + trouble.sram_uncorrected_errors}",
        *(f"mig={profile}" for profile in trouble.mig),
        *(f"{key}={value}" for key, value in values(model, trouble, driver).items()),
        *trouble.cuda.lines(),
        *(f"user={user.pid} {user.name}" for user in users),
    ]


def replace(path: Path, text: str) -> None:
    """Put a new file in place of the old one in one step."""
    scratch = path.with_name(f".{path.name}.new")
    scratch.write_text(text)
    scratch.replace(path)
