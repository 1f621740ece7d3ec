"""Stacks of processes that stand still, as py-spy and faulthandler print them, and which of them stands apart.

Used by `folder`, `culprits` and `pod_evidence`. In a hang most ranks wait in a collective, or for their device, whose
queue ends in one; a rank that waits for something else is what the others wait for (facts: training, 2.8). Only main
threads count: those of loaders, loggers and watchdogs are idle on healthy ranks, too.
"""

import re
from collections import Counter
from typing import Final

from sickbay.training.evidence import LINE_LENGTH, Stack

_THREAD: Final = re.compile(
    r"^(?P<current>Current thread|Thread) (?P<id>0x[0-9a-f]+|\d+)\b[^\"\n]*(?:\"(?P<name>[^\"]*)\")?.*$"
)
_FRAME: Final = re.compile(
    r"^\s+(?:File \"(?P<file>[^\"]+)\", line (?:\d+|\?\?\?) in (?P<function>\S+)"
    r"|(?P<spy>\S.*?) \((?P<place>[^()]+)\))\s*$"
)
_NODE: Final = re.compile(r"^###.*?\b(?P<node>(?:node|worker|host|gpu|ip-)[\w.-]*)")
_RANK: Final = re.compile(r"^###.*?\brank\s+(?P<rank>\d+)", re.IGNORECASE)
COLLECTIVES: Final = (
    "broadcast",
    "all_reduce",
    "allreduce",
    "all_gather",
    "allgather",
    "reduce_scatter",
    "barrier",
    "recv",
    "send",
    "all_to_all",
    "synchronize",
    "wait_work",
    "batch_isend_irecv",
    "nccl",
)
DEVICE_WAITS: Final = (
    "item (",
    "_local_scalar_dense",
    "cudastreamsync",
    "cudaeventsync",
    "cudadevicesync",
    "is_nonzero",
)
_NO_COLLECTIVE: Final = ("multiprocessing/", "socket.py", "queue.py", "http/", "urllib3", "ssl.py")
DATA: Final = ("dataloader", "queue.py", "_next_data", "_try_get_data", "datasets", "webdataset")
STORAGE: Final = ("save_checkpoint", "torch/serialization", "filesystem", "fsspec", "s3", "write", "fsync")
STACKS_KEPT: Final = 4096
FRAMES_KEPT: Final = 40
_INNERMOST: Final = 2
_THREADS_OUTERMOST: Final = ("_bootstrap (", "_bootstrap_inner (", "thread_start", "clone (", "start_thread (")


def stacks_in(text: str, rank: int | None = None, node: str = "") -> tuple[Stack, ...]:
    """Every main thread's stack in some text, of this rank and node unless a `###` line names others.

    Threads that are listed without frames of their own share those that follow.
    """
    reading = _Reading(rank, node)
    for line in text.splitlines():
        if len(reading.found) >= STACKS_KEPT:
            break
        reading.take(line)
    reading.flush()
    return tuple(reading.found[:STACKS_KEPT])


class _Reading:
    """One reading, line by line."""

    def __init__(self, rank: int | None, node: str) -> None:
        self.found: list[Stack] = []
        self._rank, self._node = rank, node
        self._waiting: list[str] = []
        self._frames: list[str] = []

    def take(self, line: str) -> None:
        """One line."""
        if line.startswith("###"):
            self.flush()
            match = _NODE.match(line)
            self._node = match["node"] if match else self._node
            match = _RANK.match(line)
            self._rank = int(match["rank"][:9]) if match else None
        elif (thread := _THREAD.match(line)) is not None:
            if self._frames or (thread["name"] and thread["name"] != "MainThread"):
                self.flush()
            if thread["name"] in (None, "", "MainThread") and len(self._waiting) < STACKS_KEPT:
                self._waiting.append(thread["id"])
        elif self._waiting and len(line) < 4 * LINE_LENGTH and (frame := _FRAME.match(line)) is not None:
            words = f"{frame['function'] or frame['spy']} ({frame['file'] or frame['place']})"
            if len(self._frames) < FRAMES_KEPT or words.startswith(_THREADS_OUTERMOST):
                self._frames.append(words[:LINE_LENGTH])
        elif self._frames or line.startswith("Process "):
            self.flush()

    def flush(self) -> None:
        """The end of a stack."""
        if self._waiting and self._frames and not self._frames[-1].startswith(_THREADS_OUTERMOST):
            frames = tuple(self._frames[:FRAMES_KEPT])
            self.found.extend(
                Stack(rank=self._rank, node=self._node, process=process, frames=frames) for process in self._waiting
            )
        self._waiting.clear()
        self._frames.clear()


def waits_in_collective(stack: Stack) -> bool:
    """Whether the stack stands in a collective, or waits for its device, by its innermost frames."""
    place = next((number for number, frame in enumerate(stack.frames) if ".py" in frame), 0)
    inner = [frame.lower() for frame in stack.frames[: place + _INNERMOST]]
    if any(word in frame for frame in inner for word in _NO_COLLECTIVE):
        return False
    return any(word in frame for frame in inner for word in (*COLLECTIVES, *DEVICE_WAITS))


def outliers(stacks: tuple[Stack, ...]) -> tuple[Stack, ...]:
    """Stacks outside of any collective, where others wait in one; none where nobody does, or many stand apart.

    Where no name of a collective is known, most stand in one place, and whoever does not stands apart.
    """
    apart = tuple(stack for stack in stacks if not waits_in_collective(stack))
    if len(apart) < len(stacks):
        return apart if len(apart) * 2 <= len(stacks) else ()
    places = Counter(stack.frames[: _INNERMOST + 1] for stack in stacks)
    most = places.most_common(1)
    if not most or most[0][1] < 3 or most[0][1] * 4 < len(stacks) * 3:
        return ()
    return tuple(stack for stack in stacks if stack.frames[: _INNERMOST + 1] != most[0][0])


def about(stack: Stack) -> str:
    """What an outlier is about: `data`, `storage`, or empty."""
    text = " ".join(stack.frames).lower()
    if any(word in text for word in DATA):
        return "data"
    return "storage" if any(word in text for word in STORAGE) else ""
