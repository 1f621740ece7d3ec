"""What a look at files of the host found: the texts, the listings, and why the rest could not be read.

Made by `health.files` from what its child says, and by `sickbay.network.recorded` from a recorded listing; judged by
`sickbay.network` and `sickbay.host_layer`. Paths are those of the host (`/sys/...`), whatever root they were read
under. A file that is proven absent is told from one that may not be read: only the former proves that a part is not
there.
"""

from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Final

from sickbay.model import Frozen

ABSENT: Final = "ENOENT"
HANGS: Final = "hangs"
"""In place of an error name, for a file whose reading never ended."""

_NO_DATA: Final = (ABSENT, "ENODEV", "ENXIO", "ENODATA", "EINVAL", "EOPNOTSUPP", "ENOTDIR", "ESRCH")
"""Errors by which a driver says that it has no such value now; the rest is trouble with the reading itself."""

_CURES: Final[Mapping[str, str]] = {
    "EACCES": "it may not be read: run the agent as root, with the host's /sys and /proc mounted",
    "EPERM": "it may not be read: run the agent as root, with the host's /sys and /proc mounted",
    "EIO": "the device behind it fails to answer (I/O error)",
    HANGS: "reading it does not end: the driver behind it hangs",
    ABSENT: "it is not there",
}


class Wanted(Frozen):
    """What to look at; `*` stands for one part of a path, or a piece of it."""

    files: tuple[str, ...] = ()
    listings: tuple[str, ...] = ()
    links: tuple[str, ...] = ()
    """Symbolic links, of which the target is told."""
    spaces: tuple[str, ...] = ()
    """Folders of whose file system the free space is told."""
    process_names: tuple[str, ...] = ()
    """Names of processes that are told when they run, as the kernel cuts them (15 characters)."""
    processes: bool = False
    """Whether to look at all processes: those that hang are told one by one."""

    def __add__(self, other: "Wanted") -> "Wanted":
        """What both want, each thing once."""
        return Wanted(
            files=_union(self.files, other.files),
            listings=_union(self.listings, other.listings),
            links=_union(self.links, other.links),
            spaces=_union(self.spaces, other.spaces),
            process_names=_union(self.process_names, other.process_names),
            processes=self.processes or other.processes,
        )

    @property
    def patterns(self) -> tuple[str, ...]:
        """Everything that is looked at by a path."""
        return (*self.files, *self.listings, *self.links, *self.spaces)


class Process(Frozen):
    """A process that waits in the kernel and takes no signal (state D), or that was asked for by name."""

    pid: int
    name: str
    state: str
    started: int
    """Ticks after the boot; with the pid it names a process for the whole boot."""
    waits_in: str = ""
    """The kernel function it waits in; empty if that may not be seen."""
    stack: str = ""
    """Its kernel stack; empty if that may not be seen."""
    switches: int | None = None
    """How often it gave or lost its CPU; a process that goes on counts up. None if that may not be seen."""


class ProcessCount(Frozen):
    """How many processes there are."""

    total: int
    zombies: int


class Space(Frozen):
    """Bytes of one file system."""

    size: int
    free: int


class FileReadings(Frozen):
    """One look at the files of a host."""

    texts: Mapping[str, str] = {}
    """By path, without the white space at the end."""
    names: Mapping[str, tuple[str, ...]] = {}
    """Listings of folders, by path."""
    links: Mapping[str, str] = {}
    spaces: Mapping[str, Space] = {}
    failed: Mapping[str, str] = {}
    """Names of errors (`EACCES`), by path; under a pattern, what is merely absent is not told."""
    processes: tuple[Process, ...] = ()
    process_count: ProcessCount | None = None
    """None if the processes were not looked at, or not to the end."""
    walked: frozenset[str] = frozenset()
    """Patterns that were looked at to their end."""
    silent: str = ""
    """Why the look did not come to its end; empty if it did."""

    def absent(self, path: str) -> bool:
        """Whether this path is proven not to be there."""
        if self.failed.get(path) == ABSENT:
            return True
        folder, _, name = path.rpartition("/")
        if folder in self.names:
            return name not in self.names[folder]
        return bool(folder) and self.absent(folder)

    def why(self, path: str) -> str:
        """For a person: why this path gave nothing."""
        error = self.failed.get(path)
        if error is None:
            return f"{path} was not read" + (f": {self.silent}" if self.silent else "")
        return f"{path}: {_CURES.get(error, f'it cannot be read ({error})')}"

    def below(self, folder: str) -> tuple[str, ...]:
        """Names in a folder, by its listing or else by the files that were read below it; sorted."""
        if folder in self.names:
            return tuple(sorted(self.names[folder]))
        start = f"{folder}/"
        paths = (path for table in (self.texts, self.links) for path in table if path.startswith(start))
        return tuple(sorted({path[len(start) :].split("/", 1)[0] for path in paths}))

    def trouble(self, wanted: Wanted) -> str:
        """Why this look is not enough to call well what `wanted` names; empty if it is."""
        lost = [pattern for pattern in wanted.patterns if pattern not in self.walked]
        if lost:
            return f"{lost[0]} was not read: {self.silent or 'the look was cut'}"
        if wanted.processes and self.process_count is None:
            return f"the processes were not looked at: {self.silent or self.why('/proc')}"
        troubled = [
            path
            for path, error in self.failed.items()
            if error not in _NO_DATA and any(_under(path, pattern) for pattern in wanted.patterns)
        ]
        more = f" (and {len(troubled) - 1} more)" if len(troubled) > 1 else ""
        return self.why(troubled[0]) + more if troubled else ""


def _under(path: str, pattern: str) -> bool:
    """Whether a path, or a folder on the way to it, is meant by a pattern."""
    parts, wanted = path.split("/"), pattern.split("/")
    return len(parts) <= len(wanted) and all(map(fnmatchcase, parts, wanted))


def _union(one: Iterable[str], other: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*one, *other)))
