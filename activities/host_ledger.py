"""What this host was already told to do, so that a retried activity does nothing twice.

Used by `activities.host`. The intent is written before the act and the end after it; the file outlives the agent, and a
reboot where the host's disk does.
"""

from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Final

from health.state import StateFile
from sickbay.model import Frozen

_ENTRIES_KEPT: Final = 50


class HostAct(StrEnum):
    """What was asked of the host."""

    RESET = "reset"
    REBOOT = "reboot"


class Entry(Frozen):
    """One act of one attempt of one incident."""

    act: HostAct
    incident_id: str
    attempt: int
    boot_id: str
    asked_at: datetime
    decided_at: datetime | None = None
    """When the incident decided on it: all incidents of a machine bear one id, and each counts attempts from 1."""
    clients_stopped: tuple[str, ...] = ()
    """Services that we stopped and must start again, until `done`."""
    done: bool = False

    @property
    def key(self) -> tuple[HostAct, str, int, datetime | None]:
        """What makes two calls the same act."""
        return (self.act, self.incident_id, self.attempt, self.decided_at)


class _Entries(Frozen):
    entries: tuple[Entry, ...] = ()


class HostLedger:
    """The acts of this host, newest last."""

    def __init__(self, state_dir: Path) -> None:
        self._file = StateFile(state_dir / "host-acts.json", _Entries)

    def find(self, asked: Entry) -> Entry | None:
        """The entry of the same act, if it was ever asked for."""
        return next((entry for entry in self._entries() if entry.key == asked.key), None)

    def unfinished_resets(self) -> tuple[Entry, ...]:
        """Resets in whose middle the agent died."""
        return tuple(entry for entry in self._entries() if entry.act is HostAct.RESET and not entry.done)

    def write(self, entry: Entry) -> None:
        """Add an entry, or put it in the place of the one of the same act. Raises OSError if the disk refuses."""
        others = tuple(known for known in self._entries() if known.key != entry.key)
        self._file.store(_Entries(entries=(*others, entry)[-_ENTRIES_KEPT:]))

    def strike(self, entry: Entry) -> None:
        """Forget an act that is known not to have happened."""
        self._file.store(_Entries(entries=tuple(known for known in self._entries() if known.key != entry.key)))

    def _entries(self) -> tuple[Entry, ...]:
        return (self._file.load() or _Entries()).entries
