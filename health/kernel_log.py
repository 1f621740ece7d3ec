"""Reads the kernel log from the start of the boot, in a thread of its own.

It is the one source that survives a hanging driver (facts: detection, 0.1), so nothing else may hold it up. Read by the
agent through `take`; what the records mean is in `health.kernel_faults`. Two kinds of source, told apart by the file:

- the real `/dev/kmsg`: one record a `read`, EAGAIN at the end, EPIPE where the ring overwrote what we had not read;
- a plain file that grows, one record a line, put anew in its place at a boot: what the simulator gives.

The rate is bounded: a flood waits in the kernel's ring, and what is overwritten there shows as a gap in the numbers.
"""

import errno
import math
import os
import re
import select
import stat
import threading
import time
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

_HEADER: Final = re.compile(rb"(\d{1,10}),(\d{1,20}),(\d{1,20}),[^;\n]{0,64};")
_RECORD_BYTES: Final = 16384
"""More than the kernel's longest record (CONSOLE_EXT_LOG_MAX, 8192)."""
_CHUNK_BYTES: Final = 1 << 18
_IDLE_SECONDS: Final = 0.1
"""Between two looks at a source that had nothing new."""
_SILENT_SECONDS: Final = 30.0
"""After this long without a turn of the loop, the thread itself hangs in a read."""
_KERNEL_FACILITY: Final = 0
_AT_A_TIME: Final = 1000


@dataclass(frozen=True, slots=True)
class KernelRecord:
    """One record: its number in this boot, and its whole text as /dev/kmsg gives it."""

    sequence: int
    text: bytes

    @property
    def seconds(self) -> float:
        """Seconds since the boot; infinite for a record whose head was left out."""
        head = _HEADER.match(self.text)
        return float(head[3]) / 1e6 if head else math.inf


@dataclass(frozen=True, slots=True)
class Taken:
    """What came since the last `take`."""

    records: tuple[KernelRecord, ...]
    caught_up: bool
    """Nothing more was waiting at the source at that moment."""
    problem: str
    """Why the log cannot be read now, in words; empty if it can."""


class _Source(Protocol):
    def read(self) -> list[bytes] | None:
        """Some records, or None if nothing is waiting. Raises OSError if the source is broken."""
        ...

    def wait(self) -> None:
        """Wait a moment for more."""
        ...

    def close(self) -> None: ...


class KernelLogReader:
    """The reading thread and the records that it has read."""

    def __init__(self, path: Path, rate: int, *, trust_user_records: bool = False) -> None:
        """`rate` is in records a second, and also the most that wait to be taken."""
        self._path = path
        self._rate = rate
        self._trust_user_records = trust_user_records
        self._waiting: deque[KernelRecord] = deque()
        self._lock = threading.Condition()
        self._caught_up = False
        self._problem = "not read yet"
        self._turned_at = time.monotonic()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="kernel-log", daemon=True)
        self.malformed = 0
        """Records without a readable head; skipped, since one bad record must not end the reading."""

    def start(self) -> None:
        """Begin reading."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread; one that hangs in the kernel is left behind."""
        self._stop.set()
        with self._lock:
            self._lock.notify_all()
        self._thread.join(timeout=2.0)

    def take(self) -> Taken:
        """Everything read since the last call. Never waits."""
        with self._lock:
            records = tuple(self._waiting)
            self._waiting.clear()
            self._lock.notify_all()
            problem = self._problem
            if not problem and time.monotonic() - self._turned_at > _SILENT_SECONDS:
                problem = "reading it hangs"
            return Taken(records, self._caught_up and not problem, problem)

    def take_all(self, seconds: float) -> Taken:
        """Everything up to a moment after this call, waiting for it at most so long."""
        with self._lock:
            self._caught_up = False
        end = time.monotonic() + seconds
        taken: list[KernelRecord] = []
        while True:
            latest = self.take()
            taken += latest.records
            if latest.caught_up or time.monotonic() >= end or self._stop.wait(_IDLE_SECONDS / 4):
                return Taken(tuple(taken), latest.caught_up, latest.problem)

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self._read_source()
            except OSError as error:
                self._tell(f"cannot read {self._path}: {error.strerror}", caught_up=False)
                self._stop.wait(1.0)

    def _read_source(self) -> None:
        source = _open(self._path)
        try:
            while not self._stop.is_set():
                texts = source.read()
                if texts is None:
                    self._tell("", caught_up=True)
                    source.wait()
                else:
                    self._keep([record for text in texts if (record := self._parse(text))])
        finally:
            source.close()

    def _tell(self, problem: str, *, caught_up: bool) -> None:
        with self._lock:
            self._turned_at = time.monotonic()
            self._problem, self._caught_up = problem, caught_up

    def _keep(self, records: list[KernelRecord]) -> None:
        self._tell("", caught_up=False)
        with self._lock:
            while len(self._waiting) + len(records) > self._rate and self._waiting and not self._stop.is_set():
                self._turned_at = time.monotonic()
                self._lock.wait(1.0)
            self._waiting.extend(records)
        # Never more than the rate, however quickly the records are taken.
        self._stop.wait(len(records) / self._rate)

    def _parse(self, text: bytes) -> KernelRecord | None:
        head = _HEADER.match(text)
        if head is None:
            self.malformed += 1
            return None
        if int(head[1]) >> 3 != _KERNEL_FACILITY and not self._trust_user_records:
            # A number that is left out would look like a gap.
            return KernelRecord(int(head[2]), b"")
        return KernelRecord(int(head[2]), text)


def _open(path: Path) -> _Source:
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if stat.S_ISCHR(os.fstat(descriptor).st_mode):
        return _Device(descriptor)
    return _GrowingFile(path, descriptor)


class _Device:
    """/dev/kmsg itself."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._poll = select.poll()
        self._poll.register(descriptor, select.POLLIN)

    def read(self) -> list[bytes] | None:
        records: list[bytes] = []
        for _ in range(_AT_A_TIME):
            try:
                # The lines after the first are a dictionary about the device, not part of the message.
                records.append(os.read(self._descriptor, _RECORD_BYTES).split(b"\n", 1)[0])
            except BlockingIOError:
                break
            except OSError as error:
                # EPIPE: the ring went past us, and the next read goes on at its oldest record. EINVAL: a record longer
                # than any that a kernel writes; it is skipped.
                if error.errno not in (errno.EPIPE, errno.EINVAL):
                    raise
        return records or None

    def wait(self) -> None:
        self._poll.poll(_IDLE_SECONDS * 1000)

    def close(self) -> None:
        os.close(self._descriptor)


class _GrowingFile:
    """A file of records, one a line."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self._path = path
        self._descriptor = descriptor
        self._cut = b""

    def read(self) -> list[bytes] | None:
        data = os.read(self._descriptor, _CHUNK_BYTES)
        if not data:
            self._follow_replacement()
            return None
        *lines, self._cut = (self._cut + data).split(b"\n")
        # A record without end would grow for ever.
        self._cut = self._cut[:_RECORD_BYTES]
        return [line for line in lines if line and not line.startswith(b" ")]

    def wait(self) -> None:
        time.sleep(_IDLE_SECONDS)

    def close(self) -> None:
        os.close(self._descriptor)

    def _follow_replacement(self) -> None:
        """Go on with the file that now bears the name, if it is another one or was cut."""
        mine, named = os.fstat(self._descriptor), self._path.stat()
        if mine.st_ino != named.st_ino:
            os.close(self._descriptor)
            self._descriptor = os.open(self._path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            self._cut = b""
        elif stat.S_ISREG(mine.st_mode) and mine.st_size < os.lseek(self._descriptor, 0, os.SEEK_CUR):
            os.lseek(self._descriptor, 0, os.SEEK_SET)
            self._cut = b""
