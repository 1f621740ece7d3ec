"""Stacks of processes that stand still, as py-spy and faulthandler print them, and which of them stands apart.

Used by `log_text` and `culprits`. In a hang most ranks wait in a collective; one that waits for something else is what
the others wait for (facts: training, 2.8).
"""

import re
from typing import Final

from sickbay.training.evidence import Stack

_THREAD: Final = re.compile(r'^Thread (?P<id>0x[0-9a-f]+|\d+)\b.*?(?:\((?P<state>\w+)\))?.*?(?:"(?P<name>[^"]*)")?\s*$')
_FRAME: Final = re.compile(
    r"^\s+(?:File \"(?P<file>[^\"]+)\", line \d+ in (?P<function>\w+)|(?P<spy>\S+) \((?P<place>[^)]+)\))\s*$"
)
_NODE: Final = re.compile(r"^###.*?\b(?P<node>(?:node|worker|host|gpu|ip-)[\w.-]*)")
_RANK: Final = re.compile(r"^###.*?\brank\s+(?P<rank>\d+)", re.IGNORECASE)
COLLECTIVES: Final = (
    "broadcast",
    "all_reduce",
    "all_gather",
    "reduce_scatter",
    "barrier",
    "recv",
    "send",
    "all_to_all",
    "synchronize",
    "wait_work",
    "allreduce",
    "batch_isend_irecv",
)
DATA: Final = ("dataloader", "queue.py", "_next_data", "_try_get_data", "datasets", "webdataset")
STORAGE: Final = ("save_checkpoint", "torch/serialization", "filesystem", "fsspec", "s3", "write", "fsync")
STACKS_KEPT: Final = 4096
FRAMES_KEPT: Final = 40


def stacks_in(text: str) -> tuple[Stack, ...]:
    """Every stack in some text. Threads that are listed without frames of their own share those that follow."""
    found: list[Stack] = []
    node, rank = "", None
    waiting: list[str] = []
    frames: list[str] = []

    def flush() -> None:
        if waiting and frames:
            found.extend(
                Stack(rank=rank, node=node, process=process, frames=tuple(frames[:FRAMES_KEPT])) for process in waiting
            )
        waiting.clear()
        frames.clear()

    for line in text.splitlines():
        if len(found) > STACKS_KEPT:
            break
        if line.startswith("###"):
            flush()
            match = _NODE.match(line)
            node = match["node"] if match else node
            match = _RANK.match(line)
            rank = int(match["rank"][:9]) if match else None
        elif (thread := _THREAD.match(line)) is not None:
            if frames:
                flush()
            waiting.append(thread["id"])
        elif waiting and (frame := _FRAME.match(line)) is not None:
            frames.append(f"{frame['function'] or frame['spy']} ({frame['file'] or frame['place']})")
        elif not line.strip():
            if frames:
                flush()
        elif waiting and frames:
            flush()
    flush()
    return tuple(found[:STACKS_KEPT])


def waits_in_collective(stack: Stack) -> bool:
    """Whether the stack stands in a collective, by its innermost frames."""
    return any(any(name in frame.lower() for name in COLLECTIVES) for frame in stack.frames[:2])


def outliers(stacks: tuple[Stack, ...]) -> tuple[Stack, ...]:
    """Stacks outside of any collective, where others wait in one; none where nobody does, or many stand apart."""
    waiting = [stack for stack in stacks if waits_in_collective(stack)]
    apart = tuple(stack for stack in stacks if not waits_in_collective(stack))
    return apart if waiting and len(apart) * 2 <= len(stacks) else ()


def about(stack: Stack) -> str:
    """What an outlier is about: `data`, `storage`, or empty."""
    text = " ".join(stack.frames).lower()
    if any(word in text for word in DATA):
        return "data"
    return "storage" if any(word in text for word in STORAGE) else ""
