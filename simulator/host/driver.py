"""The NVIDIA driver of a simulated host: which GPUs answer and how, who uses them, and what it tells the kernel log.

Used by the machine, which owns power, agent and time. The state file is what the simulated NVML and `nvidia-smi` read.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path

from simulator.host import kernel_lines
from simulator.host.control import ProgramEnd
from simulator.host.faults import FaultBoard, OpenFault
from simulator.host.gpu import GPU_IS_LOST, GpuIdentity, GpuTrouble, RecoveryAction, identities
from simulator.host.gpu_events import EventFile
from simulator.host.gpu_models import GpuModel
from simulator.host.gpu_state import DRIVER_VERSION, DriverState, GpuUser, render, replace
from simulator.host.kernel_log import KernelLog

FIRST_PID = 4000

NOT_SUPPORTED, NOT_FOUND, OTHER_ERROR = 3, 6, 255
"""Exit codes of nvidia-smi (facts: remediation, 4)."""


class Driver:
    """The GPUs of one machine, as the driver has them."""

    def __init__(self, instance_id: str, model: GpuModel, count: int, folder: Path) -> None:
        self.model = model
        self.gpus: tuple[GpuIdentity, ...] = identities(instance_id, count)
        self.faults = FaultBoard()
        self.kernel_log = KernelLog(folder / "kmsg")
        self.state_file = folder / "gpus"
        self.events = EventFile(folder / "gpu-events", self.gpus)
        self.control_address = ""
        self.monitors: set[str] = set()
        """Owners of processes that have every GPU open, which NVML does not count among a GPU's processes."""
        self._users: dict[str, tuple[int, ...]] = {}
        self._pids: dict[str, int] = {}
        self._last_pid = FIRST_PID
        self._told_actions: dict[int, RecoveryAction] = {}
        self._introduced: set[int] = set()
        self._resetting: set[int] = set()

    @property
    def hangs(self) -> bool:
        """Whether the driver answers nobody."""
        return any(trouble.driver_hangs for trouble in self.faults.host_troubles())

    @property
    def version(self) -> str:
        """The driver's version, the oldest that any trouble gives it."""
        told = [trouble.driver_version for trouble in self.faults.host_troubles() if trouble.driver_version]
        return min(told, key=lambda version: int(version.split(".")[0]), default=DRIVER_VERSION)

    def trouble(self, gpu: GpuIdentity) -> GpuTrouble:
        """How one GPU behaves."""
        return self.faults.gpu_trouble(gpu.index)

    def boot(self) -> None:
        """The driver is loaded anew: nobody uses a GPU, and faults that are still there show themselves."""
        self._users.clear()
        self.monitors.clear()
        self._told_actions.clear()
        self._introduced.clear()
        self._resetting.clear()
        self.events.boot()
        self.kernel_log.boot()
        self.kernel_log.write(kernel_lines.boot_lines(self.version))
        for fault in self.faults.open:
            self.report(fault)
        self.refresh()

    def report(self, open_fault: OpenFault) -> None:
        """Write what the kernel says of a fault, at its coming or its coming back."""
        fault = open_fault.fault
        entries = fault.kernel_log
        if open_fault.survived_boot and fault.kernel_log_at_boot is not None:
            entries = fault.kernel_log_at_boot
        gpu = None if fault.gpu is None else self.gpus[fault.gpu]
        lines = kernel_lines.lines_of(entries, gpu, self.model, self._blamed_pid(fault.gpu))
        if gpu and gpu.index not in self._introduced and any("Xid (" in line.text for line in lines):
            self._introduced.add(gpu.index)
            lines = kernel_lines.first_xid_preamble(gpu) + lines
        self._log(lines)

    def refresh(self) -> None:
        """Let NVML see how things stand, and the kernel log any change of a recovery action."""
        troubles = [(gpu, self.trouble(gpu)) for gpu in self.gpus]
        for gpu, trouble in troubles:
            before = self._told_actions.get(gpu.index, RecoveryAction.NONE)
            if trouble.recovery_action is not before and RecoveryAction.UNTOLD not in (before, trouble.recovery_action):
                self._log([kernel_lines.recovery_action_changed(gpu, before, trouble.recovery_action)])
                self.events.action_changed(gpu, trouble.recovery_action)
            self._told_actions[gpu.index] = trouble.recovery_action
        replace(self.state_file, render(self._state(), self.model, troubles, self._users_by_gpu()))

    def occupy(self, owner: str, gpus: int) -> tuple[int, ...]:
        """Put a process on free GPUs; nothing if there are too few."""
        if owner in self._users:
            return self._users[owner]
        taken = {index for indices in self._users.values() for index in indices} | self._resetting
        free = [gpu.index for gpu in self.gpus if gpu.index not in taken and self.trouble(gpu).schedulable]
        if len(free) < gpus:
            return ()
        self._last_pid += 1
        self._pids[owner] = self._last_pid
        self._users[owner] = tuple(free[:gpus])
        self.refresh()
        return self._users[owner]

    def vacate(self, owner: str) -> None:
        """A process has ended."""
        self.monitors.discard(owner)
        if self._users.pop(owner, None) is not None:
            del self._pids[owner]
            self.refresh()

    def refuse_reset(self, uuids: Sequence[str]) -> ProgramEnd | None:
        """Why these GPUs cannot be reset now, as nvidia-smi says it; None if they can."""
        wanted = self.named(uuids)
        if not wanted or len(wanted) < len(uuids):
            return ProgramEnd(NOT_FOUND, "No devices were found\n")
        refused = next((trouble.reset_refused for trouble in self.faults.host_troubles() if trouble.reset_refused), "")
        if refused:
            return ProgramEnd(NOT_SUPPORTED, f"{refused}\n")
        lost = [gpu for gpu in wanted if self.trouble(gpu).lost or self.trouble(gpu).absent]
        if lost:
            text = f"Unable to reset GPU {_bus(lost[0])}: GPU is lost.  Reboot the system to recover this GPU\n"
            return ProgramEnd(GPU_IS_LOST, text)
        used = self._users_by_gpu()
        busy = [gpu for gpu in wanted if self.monitors or gpu.index in used or gpu.index in self._resetting]
        if busy:
            names = "".join(f"  GPU {_bus(gpu)}: In use by another client\n" for gpu in busy)
            text = f"The following GPUs could not be reset:\n{names}\n{len(busy)} device(s) are in use by processes.\n"
            return ProgramEnd(OTHER_ERROR, text)
        return None

    def begin_reset(self, uuids: Sequence[str]) -> None:
        """Nobody gets these GPUs until `end_reset` or the next boot."""
        self._resetting |= {gpu.index for gpu in self.named(uuids)}

    def end_reset(self, uuids: Sequence[str]) -> tuple[ProgramEnd, list[OpenFault]]:
        """What the reset made of it: nvidia-smi's end, and the faults that it did not cure."""
        left: list[OpenFault] = []
        for gpu in self.named(uuids):
            self._resetting.discard(gpu.index)
            left += self.faults.reset_gpu(gpu.index)
        self.refresh()
        done = "".join(f"GPU {_bus(gpu)} was successfully reset.\n" for gpu in self.named(uuids))
        return ProgramEnd(0, f"{done}All done.\n"), left

    def named(self, uuids: Iterable[str]) -> list[GpuIdentity]:
        """The GPUs of these UUIDs; unknown ones are left out."""
        wanted = set(uuids)
        return [gpu for gpu in self.gpus if gpu.uuid in wanted]

    def _log(self, lines: list[kernel_lines.Line]) -> None:
        """Write to the kernel log, whose Xids are NVML's events too."""
        self.kernel_log.write(lines)
        self.events.xids(lines)

    def _state(self) -> DriverState:
        troubles = self.faults.host_troubles()
        return DriverState(
            control=self.control_address,
            events=self.events.path,
            version=self.version,
            hangs=self.hangs,
            init_error=max((trouble.nvml_init_error for trouble in troubles), default=0),
            missing_functions=tuple(name for trouble in troubles for name in trouble.missing_nvml_functions),
        )

    def _users_by_gpu(self) -> dict[int, list[GpuUser]]:
        users: dict[int, list[GpuUser]] = {}
        for owner, indices in self._users.items():
            for index in indices:
                users.setdefault(index, []).append(GpuUser(self._pids[owner], "python3"))
        return users

    def _blamed_pid(self, gpu: int | None) -> int:
        blamed = [owner for owner, indices in self._users.items() if gpu in indices]
        return self._pids[blamed[0]] if blamed else FIRST_PID


def _bus(gpu: GpuIdentity) -> str:
    return f"0000{gpu.pci.upper()}.0"
