"""The kernel log of a simulated host: records in the format of /dev/kmsg, in one plain file per boot.

How it stands to a real /dev/kmsg, for whoever reads both:

- One record is `prio,seq,usec,flags;message` and a line feed, as one `read()` of /dev/kmsg gives it. `seq` starts at 0
  each boot. `usec` counts on the monotonic clock of the machine that simulates, as the reader's own /proc/uptime does
  for it, so that a reader's conversion to wall-clock time comes out right.
- A line feed inside a message is written `\\x0a`, and other unprintable bytes likewise, as the kernel does. A record is
  appended by one write, so that a reader at the end of the file sees whole records.
- At the end of the file a reader gets nothing (the device blocks, or says EAGAIN). Each boot puts a new file in the
  old one's place; the agent starts anew with each boot and opens the new one. Nothing is overwritten: no EPIPE.
"""

import re
import time
from collections.abc import Iterable
from pathlib import Path

from simulator.host.kernel_lines import Line

_UNPRINTABLE = re.compile(rb"[\x00-\x1f\x7f-\xff\\]")


def record(line: Line, sequence: int, microseconds: int) -> bytes:
    """One record as the kernel shows it."""
    message = _UNPRINTABLE.sub(lambda match: b"\\x%02x" % match[0][0], line.text.encode())
    return b"%d,%d,%d,-;%s\n" % (line.priority, sequence, microseconds, message)


class KernelLog:
    """The log of one machine, through all its boots."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._sequence = 0

    def boot(self) -> None:
        """Begin the log of a new boot."""
        self._sequence = 0
        scratch = self.path.with_name(f".{self.path.name}.new")
        scratch.write_bytes(b"")
        scratch.replace(self.path)

    def write(self, lines: Iterable[Line]) -> None:
        """Append records, stamped now."""
        now = time.monotonic_ns() // 1000
        records = bytearray()
        for line in lines:
            records += record(line, self._sequence, now)
            self._sequence += 1
        with self.path.open("ab", buffering=0) as file:
            file.write(records)
