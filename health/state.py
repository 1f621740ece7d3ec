"""What must outlive the agent's process, in small files that are either the old or the new text, never half of one.

Used by the agent (`AgentState`) and by the host activities for their ledger. A file that cannot be read counts as
absent: the kernel log is then read from the start of the boot again, so nothing is forgotten that would be healthy.
"""

import logging
import os
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final, Generic, TypeVar

from pydantic import ValidationError

from sickbay.check_record import CheckRecord
from sickbay.gpu_readings import KnownGpu
from sickbay.model import Frozen
from sickbay.open_faults import OpenFault, ResetMark

_log = logging.getLogger(__name__)

Model = TypeVar("Model", bound=Frozen)

_STORE_EVERY: Final = timedelta(seconds=30)
"""Between two writings of a state that differs in times and baselines alone."""


class AgentState(Frozen):
    """The agent's memory of one boot."""

    boot_id: str
    boot_seen_at: datetime
    """When the agent first ran in this boot."""
    sequence: int = -1
    """Number of the last kernel-log record that was read; -1 before the first."""
    open_faults: tuple[OpenFault, ...] = ()
    known_gpus: tuple[KnownGpu, ...] = ()
    unproven_resets: tuple[ResetMark, ...] = ()
    """Resets after which no pass has found the GPUs well yet."""
    checks: tuple[CheckRecord, ...] = ()
    """What the runs of each check have shown."""


class StateFile(Generic[Model]):
    """One model in one file."""

    def __init__(self, path: Path, model: type[Model]) -> None:
        self._path = path
        self._model = model

    def load(self) -> Model | None:
        """What was stored last; None if nothing was, or if it cannot be read."""
        try:
            return self._model.model_validate_json(self._path.read_bytes())
        except FileNotFoundError:
            return None
        except (OSError, ValidationError) as error:
            _log.warning("cannot read %s, starting without it: %s", self._path, str(error).splitlines()[0])
            return None

    def store(self, value: Model) -> None:
        """Put a new text in the old one's place, durably. Raises OSError if the disk does not take it."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        scratch = self._path.with_name(f".{self._path.name}.new")
        with scratch.open("wb") as file:
            file.write(value.model_dump_json().encode())
            file.flush()
            os.fsync(file.fileno())
        scratch.replace(self._path)
        folder = os.open(self._path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


class AgentMemory:
    """The agent's state, and its file."""

    def __init__(self, folder: Path, boot_id: str, now: Callable[[], datetime]) -> None:
        """What an earlier agent of this boot left in `folder` is the beginning."""
        self._folder = folder
        self._file = StateFile(folder / "agent.json", AgentState)
        self._now = now
        stored = self._file.load()
        if stored is None or stored.boot_id != boot_id:
            stored = AgentState(boot_id=boot_id, boot_seen_at=now())
        self.state = stored
        self._stored_at: datetime | None = None

    @property
    def is_old(self) -> bool:
        """Whether what is on the disk is older than need be, though nothing in it is wrong."""
        return self._stored_at is None or self._now() - self._stored_at >= _STORE_EVERY

    def keep(self, state: AgentState, *, durable: bool) -> None:
        """Remember a state; over the end of the process only if `durable`, which waits for the disk."""
        self.state = state
        if not durable:
            return
        try:
            self._file.store(state)
        except OSError as error:
            # Without its memory the agent only reads more after a restart; it must not stop watching for that.
            _log.warning("cannot keep the agent's state in %s: %s", self._folder, error.strerror)
        self._stored_at = self._now()
