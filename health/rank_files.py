"""Reads on in a file that somebody else writes, renames, cuts off or fills with anything.

Used by `health.rank_collector`. Whoever runs a pod can put what he likes into its folder: a link, a pipe, a file
without an end. Only regular files are read, links are not followed, nothing waits, and what is kept is bounded. What
was written to a file between the last look and its renaming is not read any more: the lines carry their own sums.
"""

import os
import stat
from pathlib import Path
from typing import Final

LINE_MOST: Final = 4096
"""A longer line is no report."""


class NotRegularError(OSError):
    """Something other than a regular file is in a report's place."""


class TailedFile:
    """One file, and how far it was read."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: tuple[int, int] | None = None
        self._offset = 0
        self._rest = b""
        self._skipping = False
        """Within a line whose beginning was passed over, or that is too long."""
        self.changed_at = 0.0
        """Unix time of the last change, by the file system."""

    def lines(self, most: int) -> list[bytes]:
        """Whole new lines, out of the newest `most` bytes: what is older is passed over, since the newest tell most.

        Raises OSError if the file cannot be read or is none.
        """
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        descriptor = os.open(self.path, flags)
        try:
            found = os.fstat(descriptor)
            if not stat.S_ISREG(found.st_mode):
                raise NotRegularError("not a regular file")
            self.changed_at = found.st_mtime
            return self._lines(self._new_bytes(descriptor, found, most))
        finally:
            os.close(descriptor)

    def _new_bytes(self, descriptor: int, found: os.stat_result, most: int) -> bytes:
        file = (found.st_dev, found.st_ino)
        if file != self._file or found.st_size < self._offset:
            self._file, self._offset, self._rest, self._skipping = file, 0, b"", False
        if found.st_size - self._offset > most:
            self._offset, self._rest, self._skipping = found.st_size - most, b"", True
        text = os.pread(descriptor, most, self._offset)
        self._offset += len(text)
        return text

    def _lines(self, text: bytes) -> list[bytes]:
        *whole, rest = (self._rest + text).split(b"\n")
        if self._skipping and whole:
            del whole[0]
            self._skipping = False
        if self._skipping or len(rest) > LINE_MOST:
            rest, self._skipping = b"", True
        self._rest = rest
        return [line for line in whole if line and len(line) <= LINE_MOST]
