"""Pointer files: Megatron's tracker and DeepSpeed's `latest`, at the root, each naming the newest that is finished.

Used by those two formats and by `survey`. A step beyond what the pointer names is not finished: an asynchronous save
may still be writing it. A pointer that is lost, empty or garbled says nothing of any step; then what the folders hold
must tell, and people are told what the library would do without it (facts: training, 3.1 and 3.4.8).
"""

from typing import Final

from sickbay.checkpoints.tree import Contents, Tree, step_in, text

TRACKER: Final = "latest_checkpointed_iteration.txt"
LATEST: Final = "latest"


def pointed(name: str, contents: Contents) -> int | None:
    """The newest finished step by the pointer; None where it says nothing of steps."""
    told = text(contents.get(name))
    if not told:
        return None
    if name == TRACKER:
        return int(told[:15]) if told.isdecimal() and told.isascii() else None
    return step_in(told)


def beyond(name: str, contents: Contents, step: int | None) -> list[str]:
    """The problem of a step that the pointer does not reach."""
    newest = pointed(name, contents)
    if newest is None or step is None or step <= newest:
        return []
    return [f"{name} says {text(contents.get(name))}: this one is not finished"]


def odd(name: str, tree: Tree, contents: Contents) -> tuple[str, ...]:
    """What is wrong with the pointer, and what comes of it."""
    megatron = name == TRACKER
    harm = "Megatron ends with exit code 0" if megatron else "DeepSpeed begins anew without a word"
    cure = "write the newest whole iteration into it" if megatron else "write the newest whole folder's name into it"
    if name not in tree.files:
        lost = "Megatron begins anew" if megatron else harm
        return (f"{name} is missing: {cure}, or {lost}",)
    told = text(contents.get(name))
    if told is None:
        return (f"{name} cannot be read",)
    if not told:
        return (f"{name} is empty: {cure}, or {harm}",)
    if not megatron:
        return () if told in tree.folders() else (f"{name} says {told[:60]!r}, and there is no such folder",)
    if told == "release":
        return () if "release" in tree.folders() else (f"{name} says 'release', and there is no such folder",)
    newest = pointed(name, contents)
    if newest is None:
        return (f"{name} says {told[:60]!r}, which is no iteration: {cure}, or {harm}",)
    return () if f"iter_{newest:07d}" in tree.folders() else (f"{name} says {newest}, and there is no such folder",)
