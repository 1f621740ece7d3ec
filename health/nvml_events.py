"""NVML's events as a second source of Xids, beside the kernel log.

Owned by the node agent, which takes the faults with each of its passes, and stops the reader before a GPU reset, since
it holds the GPUs open. A thread keeps one child that waits (`health.nvml_events_child`) and starts it anew when it
ends, ever more slowly if it keeps ending. What the events mean is in `sickbay.gpu_readings.events`.

Missing it is no fault: the kernel log tells the same, and NVML is asked in passes of its own.
"""

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from pydantic import ValidationError

from health import nvml_child, nvml_events_child
from sickbay.faults import Fault, merge_faults
from sickbay.gpu_readings.events import NvmlEvent, fault_of_event
from sickbay.model import Frozen

FIRST_PAUSE: Final = timedelta(seconds=5)
LONGEST_PAUSE: Final = timedelta(minutes=10)
"""Between the end of one child and the start of the next; doubled each time, and short again after an event."""

_MAX_FAULTS: Final = 256
"""Different faults kept of one boot; more than any machine shows."""


class _Line(Frozen):
    event: NvmlEvent | None = None
    ready: int | None = None
    """GPUs that will tell events."""


def _now() -> datetime:
    return datetime.now(UTC)


class NvmlEvents:
    """The events of one boot. `start` and `stop` may be called again and again; all calls are safe from any thread."""

    def __init__(
        self,
        boot_id: str,
        library: str = "",
        pause: timedelta = FIRST_PAUSE,
        now: Callable[[], datetime] = _now,
    ) -> None:
        """`library` is the path of NVML where it is not on the loader's own; `pause` and `now` are given by tests."""
        self._boot_id = boot_id
        self._library = library
        self._pause = pause
        self._now = now
        self._lock = threading.Lock()
        self._faults: tuple[Fault, ...] = ()
        self._keeper: _Keeper | None = None
        self.ready = threading.Event()
        """Set while a child waits for events."""

    def start(self) -> None:
        """Begin to wait for events; does nothing if it has begun."""
        with self._lock:
            if self._keeper is None:
                self._keeper = _Keeper(self._library, self._pause, self._hear, self.ready)
                self._keeper.start()

    def stop(self, patience: timedelta = timedelta(seconds=5)) -> bool:
        """End the child, which then no longer holds the GPUs. Blocking, for at most `patience`; False if the child
        could not be ended by then, as when it hangs in the driver."""
        with self._lock:
            keeper, self._keeper = self._keeper, None
        return keeper is None or keeper.end(patience)

    def take(self) -> tuple[Fault, ...]:
        """The faults of this boot so far, with their counts as running totals (for `sickbay.faults.update_faults`)."""
        with self._lock:
            return self._faults

    def _hear(self, event: NvmlEvent) -> None:
        fault = fault_of_event(event, self._boot_id, self._now())
        if fault is None:
            return
        with self._lock:
            merged = merge_faults(self._faults, [fault])
            if len(merged) <= _MAX_FAULTS:
                self._faults = merged


class _Keeper:
    """Keeps one child alive until it is told to end."""

    def __init__(
        self, library: str, pause: timedelta, hear: Callable[[NvmlEvent], None], ready: threading.Event
    ) -> None:
        self._environment = {**os.environ, nvml_child.LIBRARY: library}
        self._first_pause = self._pause = pause
        self._hear = hear
        self._ready = ready
        self._over = threading.Event()
        self._lock = threading.Lock()
        self._child: subprocess.Popen[str] | None = None
        self._thread = threading.Thread(target=self._keep, name="nvml events", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def end(self, patience: timedelta) -> bool:
        """Kill the child, and wait for it to be gone."""
        self._over.set()
        self._ready.clear()
        with self._lock:
            child = self._child
        if child is None:
            return True
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        try:
            child.wait(patience.total_seconds())
        except subprocess.TimeoutExpired:
            return False
        return True

    def _keep(self) -> None:
        while not self._over.is_set():
            child = self._begin()
            if child is not None:
                self._listen(child)
            self._over.wait(self._pause.total_seconds())
            self._pause = min(self._pause * 2, LONGEST_PAUSE)

    def _begin(self) -> subprocess.Popen[str] | None:
        """A new child; None if it could not be started, or is not wanted any more."""
        command = [sys.executable, "-I", str(Path(nvml_events_child.__file__))]
        with self._lock:
            if self._over.is_set():
                return None
            try:
                self._child = subprocess.Popen(
                    command,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                    env=self._environment,
                    start_new_session=True,
                    text=True,
                    errors="replace",
                )
            except OSError:
                return None
            return self._child

    def _listen(self, child: subprocess.Popen[str]) -> None:
        """Hear a child out, until its end."""
        assert child.stdin is not None, "it is a pipe"
        assert child.stdout is not None, "it is a pipe"
        with child.stdin, child.stdout:
            for text in child.stdout:
                self._take(text)
        if not self._over.is_set():
            self._ready.clear()
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(1)

    def _take(self, text: str) -> None:
        try:
            line = _Line.model_validate_json(text)
        except ValidationError:
            return
        if line.ready and not self._over.is_set():
            self._ready.set()
        if line.event is not None:
            self._pause = self._first_pause
            self._hear(line.event)
