"""Runs one program that may hang, and gives up on it in time whatever it does.

Every layer and host activity that touches the GPU driver goes through here. A child in an uninterruptible sleep (state
D, a wedged driver) dies of no signal, and one that left its pipe to a grandchild never ends it; so nothing here waits
for a pipe to close, nor without limit for a child to be reaped. A child that cannot be reaped is counted as leaked.

Blocking, for use in a thread (`asyncio.to_thread`).
"""

import contextlib
import contextvars
import os
import selectors
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

MAX_OUTPUT_BYTES: Final = 1 << 20
"""Output kept per stream; a program that says more is cut, not trusted with our memory."""

_CHUNK: Final = 65536

_REAP_SECONDS: Final = 1.0
"""How long a killed child may take to die before it counts as leaked: a healthy kernel needs milliseconds."""

_owner: contextvars.ContextVar[str] = contextvars.ContextVar("owner", default="")


@dataclass(frozen=True)
class LeakedChild:
    """A child that was killed and did not die."""

    process: subprocess.Popen[bytes]
    owner: str
    """Name of the check that it was started for; empty if it was for none."""
    program: str
    since: float
    """Monotonic seconds."""


@dataclass(frozen=True)
class ChildResult:
    """How a child ended. `exit_code` is None if it did not end in time or could not be started."""

    exit_code: int | None
    stdout: str
    stderr: str
    timed_out: bool = False
    not_started: str = ""
    """Why it could not be started, in words."""

    @property
    def words(self) -> str:
        """One line for people on how it ended: its last words where it said some."""
        if self.not_started:
            return self.not_started
        if self.timed_out:
            return "no answer in time"
        said = (self.stderr.strip() or self.stdout.strip()).splitlines()
        return f"exit code {self.exit_code}" + (f": {said[-1].strip()}" if said else "")


_lock = threading.Lock()
_leaked: list[LeakedChild] = []
_running: set[subprocess.Popen[bytes]] = set()


@contextlib.contextmanager
def started_for(owner: str) -> Iterator[None]:
    """Children that are started within belong to this check, also those of threads that copy the context."""
    token = _owner.set(owner)
    try:
        yield
    finally:
        _owner.reset(token)


def leaked() -> tuple[LeakedChild, ...]:
    """The children that were killed and still are not gone; each holds a process of the host until a reboot."""
    with _lock:
        _leaked[:] = [child for child in _leaked if child.process.poll() is None]
        return tuple(_leaked)


def leaked_children() -> int:
    """How many children were killed and still are not gone."""
    return len(leaked())


def leaked_by_owner() -> Counter[str]:
    """How many of them each check has; those of no check are under the empty name."""
    return Counter(child.owner for child in leaked())


def end_children() -> None:
    """Kill every child that still runs, so that the threads that wait for one return. For the end of the process."""
    with _lock:
        for child in _running:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)


def run_child(command: Sequence[str], deadline: timedelta, environment: Mapping[str, str] | None = None) -> ChildResult:
    """Run a command in a process group of its own and end the whole group at the deadline, or when it has ended.

    `environment` is added to our own. Never raises for anything that the program does.
    """
    try:
        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, **(environment or {})},
            start_new_session=True,
        )
    except OSError as error:
        return ChildResult(None, "", "", not_started=f"cannot start {command[0]}: {error.strerror}")
    output = _Output(child)
    with _lock:
        _running.add(child)
    try:
        ended = output.read_until_exit(time.monotonic() + deadline.total_seconds())
    finally:
        with _lock:
            _running.discard(child)
        _end_group(child)
        output.close()
    exit_code = child.returncode if ended else None
    stdout, stderr = output.texts()
    return ChildResult(exit_code, stdout, stderr, timed_out=not ended)


class _Output:
    """What a child says, read without ever blocking on it."""

    def __init__(self, child: subprocess.Popen[bytes]) -> None:
        self._child = child
        self._pidfd = os.pidfd_open(child.pid)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._pidfd, selectors.EVENT_READ)
        self._said: dict[int, bytearray] = {}
        for stream in (child.stdout, child.stderr):
            assert stream is not None, "both streams are pipes"
            os.set_blocking(stream.fileno(), False)
            self._said[stream.fileno()] = bytearray()
            self._selector.register(stream.fileno(), selectors.EVENT_READ)

    def read_until_exit(self, end: float) -> bool:
        """Collect output until the child itself has ended (not its pipes), or the time is over."""
        while (left := end - time.monotonic()) > 0:
            ready = [key.fd for key, _ in self._selector.select(left)]
            for descriptor in ready:
                if descriptor != self._pidfd and self._read(descriptor) == 0:
                    self._selector.unregister(descriptor)
            if self._pidfd in ready:
                self._read_rest()
                return True
        return False

    def _read_rest(self) -> None:
        """Read what an ended child left in its pipes; bounded, since a grandchild may go on writing."""
        for descriptor in self._said:
            for _ in range(MAX_OUTPUT_BYTES // _CHUNK):
                if not self._read(descriptor):
                    break

    def _read(self, descriptor: int) -> int | None:
        """Read once: the number of bytes, 0 at the end, None if nothing is there now."""
        try:
            data = os.read(descriptor, _CHUNK)
        except BlockingIOError:
            return None
        room = MAX_OUTPUT_BYTES - len(self._said[descriptor])
        self._said[descriptor] += data[:room]
        return len(data)

    def texts(self) -> tuple[str, str]:
        """What came on standard output and on standard error."""
        stdout, stderr = (said.decode(errors="replace") for said in self._said.values())
        return stdout, stderr

    def close(self) -> None:
        self._selector.close()
        os.close(self._pidfd)
        for stream in (self._child.stdout, self._child.stderr):
            if stream is not None:
                stream.close()


def _end_group(child: subprocess.Popen[bytes]) -> None:
    """Kill whatever is left of the child's group, and reap the child if it lets itself be reaped soon."""
    # Before the reaping: until then the child's number, which is the group's, cannot be given to another process.
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    try:
        child.wait(_REAP_SECONDS)
    except subprocess.TimeoutExpired:
        program = " ".join(map(str, child.args)) if isinstance(child.args, Sequence) else str(child.args)
        entry = LeakedChild(process=child, owner=_owner.get(), program=program[:200], since=time.monotonic())
        with _lock:
            _leaked.append(entry)
