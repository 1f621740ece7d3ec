"""The events that NVML gives to those who wait for them: Xids and changes of recovery actions.

Used by the simulated driver. They appear as lines of a file that the native library reads on (native/nvml_events.c),
and are gone with the boot, as real ones are for a program that did not wait.
"""

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from simulator.host.gpu import GpuIdentity, RecoveryAction
from simulator.host.kernel_lines import Line

_XID = re.compile(r"Xid \(PCI:(?P<pci>[0-9a-f:]+)\): (?P<code>\d+)")
_XID_EVENT, _ACTION_EVENT = 0x8, 0x8000


class EventFile:
    """The events of one machine's GPUs."""

    def __init__(self, path: Path, gpus: Sequence[GpuIdentity]) -> None:
        self.path = path
        self._index = {gpu.pci: gpu.index for gpu in gpus}

    def boot(self) -> None:
        """Nobody waits any more, and nothing has happened."""
        self.path.write_text("")

    def xids(self, lines: Iterable[Line]) -> None:
        """The Xids among these kernel lines."""
        found = [match for line in lines if (match := _XID.search(line.text)) and match["pci"] in self._index]
        self._append(f"{self._index[match['pci']]} {_XID_EVENT} {match['code']}" for match in found)

    def action_changed(self, gpu: GpuIdentity, action: RecoveryAction) -> None:
        """The driver's verdict on a GPU is another one."""
        self._append([f"{gpu.index} {_ACTION_EVENT} {action.nvml}"])

    def last_xids(self) -> dict[int, int]:
        """The last Xid of each GPU that had one in this boot, by index."""
        found = [line.split() for line in self.path.read_text().splitlines()]
        return {int(index): int(code) for index, kind, code in found if int(kind) == _XID_EVENT}

    def _append(self, lines: Iterable[str]) -> None:
        with self.path.open("a") as file:
            file.writelines(f"{line}\n" for line in lines)
