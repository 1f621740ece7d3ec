"""The program that reads files of the host, in a process of its own that may hang or be killed at any of them.

Started by `health.files`, by its path, with one argument: what is wanted, as JSON. It uses nothing but the standard
library, because it is started every minute on every node. Each path is said before it is touched, and each answer at
once, one JSON object a line; so the last path without an answer is the one that hangs, and nothing before it is lost.
It judges nothing, and follows no pattern further than it was told.
"""

import errno
import fnmatch
import json
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any, Final

MAX_BYTES: Final = 1 << 18
"""Kept of one file; the mounts of a node with many pods are the largest."""


def main() -> None:
    """Look at everything once; the line `end` tells that nothing was left out."""
    wanted = json.loads(sys.argv[1])
    look = Look(wanted["root"].rstrip("/"), frozenset(wanted["skip"]))
    for key, ask in (("files", read), ("listings", listing), ("links", link), ("spaces", space)):
        for pattern in wanted[key]:
            look.over(pattern, ask)
    if wanted["processes"]:
        look.at_processes(frozenset(wanted["process_names"]))
    look.say({"end": True})
    look.flush()


class Look:
    """One look below a root."""

    def __init__(self, root: str, skip: frozenset[str]) -> None:
        self._root = root
        self._skip = skip
        self._folders: dict[str, list[str] | None] = {}
        self._unsaid: list[str] = []

    def say(self, answer: dict[str, Any]) -> None:
        """Keep one answer until the next `flush`."""
        self._unsaid.append(json.dumps(answer, ensure_ascii=False))

    def flush(self) -> None:
        """Say what was kept; done before anything that may hang."""
        sys.stdout.buffer.write("".join(f"{line}\n" for line in self._unsaid).encode(errors="replace"))
        sys.stdout.buffer.flush()
        self._unsaid.clear()

    def over(self, pattern: str, ask: Callable[[str], dict[str, Any]]) -> None:
        """Ask every path that a pattern means; what is absent below a `*` is left out."""
        for path in self._expand(pattern):
            answer = self._asked(path, ask)
            if answer is not None and not (answer.get("failed") == "ENOENT" and "*" in pattern):
                self.say({"at": path})
                self.say(answer)
        self.say({"walked": pattern})

    def at_processes(self, names: frozenset[str]) -> None:
        """Tell the processes in state D and those of some names, and count all."""
        total = zombies = 0
        for number in self._list("/proc") or ():
            if not number.isdecimal():
                continue
            told = process(f"{self._root}/proc/{number}")
            total += told is not None
            zombies += told is not None and told["state"] == "Z"
            if told is not None and (told["state"] == "D" or told["name"] in names):
                self.say({"process": told})
        if total:
            self.say({"counted": {"total": total, "zombies": zombies}})

    def _expand(self, pattern: str) -> Iterator[str]:
        paths = [""]
        for part in pattern.split("/")[1:]:
            if "*" not in part:
                paths = [f"{path}/{part}" for path in paths]
                continue
            paths = [f"{path}/{name}" for path in paths for name in fnmatch.filter(self._list(path) or [], part)]
        return iter(paths)

    def _list(self, path: str) -> list[str] | None:
        """Names in a folder, told once; None if it cannot be listed."""
        if path not in self._folders:
            answer = self._asked(path, listing)
            self._folders[path] = None if answer is None else answer.get("names")
            if answer is not None:
                self.say({"at": path})
                self.say(answer)
        return self._folders[path]

    def _asked(self, path: str, ask: Callable[[str], dict[str, Any]]) -> dict[str, Any] | None:
        if path in self._skip:
            return None
        self.say({"asking": path})
        self.flush()
        try:
            return ask(self._root + path)
        except OSError as error:
            return {"failed": errno.errorcode.get(error.errno or 0, "unknown error")}


def read(path: str) -> dict[str, Any]:
    """The text of a file."""
    with open(path, "rb", buffering=0) as file:
        pieces, room = [], MAX_BYTES
        while room > 0 and (piece := file.read(room)):
            pieces.append(piece)
            room -= len(piece)
    return {"text": b"".join(pieces).decode(errors="replace").rstrip()}


def listing(path: str) -> dict[str, Any]:
    """The names in a folder."""
    return {"names": sorted(os.listdir(path))}


def link(path: str) -> dict[str, Any]:
    """The target of a link."""
    return {"link": os.readlink(path)}


def space(path: str) -> dict[str, Any]:
    """Size and free bytes of the file system of a folder."""
    found = os.statvfs(path)
    return {"space": {"size": found.f_blocks * found.f_frsize, "free": found.f_bavail * found.f_frsize}}


def process(folder: str) -> dict[str, Any] | None:
    """One process; None if it has ended. Its command line is never read: that can hang with the process."""
    text = glance(f"{folder}/stat")
    head, bracket, tail = text.rpartition(")")
    fields = tail.split()
    if not bracket or len(fields) < 20:
        return None
    number, _, name = head.partition(" (")
    told = {"pid": int(number), "name": name, "state": fields[0], "started": int(fields[19])}
    if fields[0] == "D":
        told |= {
            "waits_in": glance(f"{folder}/wchan"),
            "stack": glance(f"{folder}/stack"),
            "switches": switches(folder),
        }
    return told


def switches(folder: str) -> int | None:
    """How often a process gave or lost its CPU; None if it does not tell."""
    counts = [line.split()[-1] for line in glance(f"{folder}/status").splitlines() if "ctxt_switches:" in line]
    return sum(map(int, counts)) if len(counts) == 2 and all(count.isdigit() for count in counts) else None


def glance(path: str) -> str:
    """The text of a small file of a process, empty if there is none or it may not be read."""
    try:
        with open(path, "rb", buffering=0) as file:
            return file.read(4096).decode(errors="replace").strip()
    except OSError:
        return ""


if __name__ == "__main__":
    main()
