"""The files of a simulated host that its health agent reads: a small /sys and /proc below a folder of its own.

Written by the machine at each boot, and again when a fault changes what they show; the agent is told of the folder by
`SICKBAY_HOST_ROOT`. Shapes and names are those of Linux and of the drivers; what no check reads is not there.
"""

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sickbay.instance_types import limits_of
from simulator.host.gpu import GpuIdentity
from simulator.host.gpu_models import GpuModel
from simulator.host.gpu_state import DRIVER_VERSION

_NVSWITCHES: Final = {
    "p4d.24xlarge": 6,
    "p5.48xlarge": 4,
    "p5e.48xlarge": 4,
    "p5en.48xlarge": 4,
    "p6-b200.48xlarge": 2,
}
_EFA_COUNTERS: Final = (
    "rx_drops",
    "retrans_pkts",
    "retrans_bytes",
    "retrans_timeout_events",
    "unresponsive_remote_events",
    "impaired_remote_conn_events",
)
_MOUNTS: Final = (
    "21 1 259:1 / / rw,noatime shared:1 - xfs /dev/nvme0n1p1 rw,attr2,inode64",
    "22 21 0:20 / /proc rw,nosuid - proc proc rw",
)
_FABRIC_MANAGER_PID: Final = 1500


@dataclass(frozen=True)
class Shown:
    """What the files show beyond a well host."""

    gpus_absent: frozenset[int] = frozenset()
    """Indices of GPUs that are not on the PCI bus."""
    efa_absent: frozenset[int] = frozenset()
    efa_down: frozenset[int] = frozenset()
    fabric_manager_dead: bool = False


class HostTree:
    """The files of one machine."""

    def __init__(self, root: Path, instance_type: str, gpus: tuple[GpuIdentity, ...], model: GpuModel) -> None:
        self.root = root
        self._instance_type = instance_type
        self._gpus = gpus
        self._model = model
        limits = limits_of(instance_type)
        self._efa = (limits.max_efa if limits else None) or 0
        self._shown: Shown | None = None

    def boot(self, shown: Shown) -> None:
        """Everything anew, as after a boot."""
        shutil.rmtree(self.root, ignore_errors=True)
        self._write({**self._machine(), **self._processes()})
        library = self.root / "usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1"
        library.parent.mkdir(parents=True)
        library.symlink_to(f"libnvidia-ml.so.{DRIVER_VERSION}")
        self._shown = None
        self.show(shown)

    def show(self, shown: Shown) -> None:
        """Let the files show this; nothing happens if they do."""
        if shown == self._shown:
            return
        self._shown = shown
        for gpu in self._gpus:
            self._function(
                f"{gpu.pci}.0", "30200", self._model.pci_device_id, "nvidia", absent=gpu.index in shown.gpus_absent
            )
        for index in range(_NVSWITCHES.get(self._instance_type, 0)):
            self._function(f"0000:{0xC0 + index:02x}:00.0", "68000", "10de:22a3", "nvidia-nvswitch", absent=False)
        for index in range(self._efa):
            self._efa_device(index, shown)
        self._fabric_manager(runs=self._instance_type in _NVSWITCHES and not shown.fabric_manager_dead)

    def _machine(self) -> Mapping[str, str]:
        return {
            "sys/class/dmi/id/product_name": self._instance_type,
            "sys/class/dmi/id/sys_vendor": "Amazon EC2",
            "sys/module/nvidia/version": DRIVER_VERSION,
            "sys/module/nvidia_uvm/initstate": "live",
            "sys/module/efa/initstate": "live",
            "sys/module/ib_uverbs/initstate": "live",
            "sys/class/nvme/nvme0/state": "live",
            # The root port, by which the bus is there even where nothing else is.
            "sys/bus/pci/devices/0000:00:00.0/uevent": "PCI_CLASS=60000\nPCI_ID=8086:1237\nPCI_SLOT_NAME=0000:00:00.0",
        }

    def _processes(self) -> Mapping[str, str]:
        return {
            "proc/1/stat": _stat(1, "systemd"),
            "proc/1/mountinfo": "\n".join(_MOUNTS),
            "proc/2/stat": _stat(2, "kthreadd"),
            "proc/meminfo": "MemTotal:       2097152000 kB\nHardwareCorrupted:     0 kB",
        }

    def _fabric_manager(self, *, runs: bool) -> None:
        if runs:
            self._write({f"proc/{_FABRIC_MANAGER_PID}/stat": _stat(_FABRIC_MANAGER_PID, "nv-fabricmanage")})
        else:
            shutil.rmtree(self.root / "proc" / str(_FABRIC_MANAGER_PID), ignore_errors=True)

    def _function(self, address: str, class_code: str, identity: str, driver: str, *, absent: bool) -> None:
        folder = self.root / "sys/bus/pci/devices" / address
        if absent:
            shutil.rmtree(folder, ignore_errors=True)
            return
        words = (
            f"DRIVER={driver}",
            f"PCI_CLASS={class_code}",
            f"PCI_ID={identity.upper()}",
            f"PCI_SLOT_NAME={address}",
        )
        vendor, device = identity.split(":")
        start = f"sys/bus/pci/devices/{address}"
        self._write(
            {f"{start}/uevent": "\n".join(words), f"{start}/vendor": f"0x{vendor}", f"{start}/device": f"0x{device}"}
        )

    def _efa_device(self, index: int, shown: Shown) -> None:
        name, address = f"efa_{index}", f"0000:{0x10 + index:02x}:19.0"
        entry = self.root / "sys/class/infiniband" / name
        verbs = self.root / f"sys/class/infiniband_verbs/uverbs{index}"
        absent = index in shown.efa_absent
        self._function(address, "20000", "1d0f:efa2", "efa", absent=absent)
        if absent:
            entry.unlink(missing_ok=True)
            shutil.rmtree(verbs, ignore_errors=True)
            return
        down = index in shown.efa_down
        start = f"sys/bus/pci/devices/{address}/infiniband/{name}"
        port = {
            "state": "1: DOWN" if down else "4: ACTIVE",
            "phys_state": "3: Disabled" if down else "5: LinkUp",
            "rate": "100 Gb/sec (4X EDR)",
            "link_layer": "Unspecified",
        }
        self._write({f"{start}/ports/1/{file}": text for file, text in port.items()})
        self._write({f"{start}/ports/1/hw_counters/{counter}": "0" for counter in _EFA_COUNTERS})
        self._write({f"sys/class/infiniband_verbs/uverbs{index}/ibdev": name})
        for link, target in ((self.root / start / "device", f"../../../{address}"), (entry, f"../../../{start}")):
            link.parent.mkdir(parents=True, exist_ok=True)
            if not link.is_symlink():
                link.symlink_to(target)

    def _write(self, files: Mapping[str, str]) -> None:
        for path, text in files.items():
            file = self.root / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(f"{text}\n")


def _stat(pid: int, name: str) -> str:
    """The one line that the kernel has of a sleeping process: state, parent, then numbers up to its start."""
    return f"{pid} ({name}) S 0 {' '.join(['0'] * 17)} {pid} 0 0"
