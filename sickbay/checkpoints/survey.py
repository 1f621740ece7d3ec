"""From a place's files to a judged listing: which format, which candidates, what to read, and what is odd as a whole.

Called by `activities.checkpoints`, which lists and reads; everything else is here. Candidates are judged newest first:
as many as are asked for, and on until one may be resumed from; older ones are only listed.
"""

from collections.abc import Callable, Iterable
from typing import Final

from sickbay.checkpoints.formats import format_of
from sickbay.checkpoints.megatron import TRACKER, Megatron, tracker_problem
from sickbay.checkpoints.model import Checkpoint, CheckpointFormat, Level
from sickbay.checkpoints.tree import Candidate, Contents, Format, Tree, Want, checkpoint

Read = Callable[[tuple[Want, ...]], Contents]
"""Reads what is wanted; what cannot be read is not in the answer."""

LISTED_MOST: Final = 500
"""Candidates told; of a job that keeps more, the newest."""
NOT_READ: Final = "it was only listed: newer ones can be used"


def survey(
    tree: Tree,
    wanted: CheckpointFormat,
    root: str,
    read: Read,
    *,
    newest: int,
    known: Iterable[Checkpoint] = (),
    attempt: int | None = None,
) -> tuple[tuple[Checkpoint, ...], tuple[str, ...]]:
    """Checkpoints newest first, and problems of the place as a whole."""
    form = format_of(tree, wanted)
    if form is None:
        odd = ("no known kind of checkpoint is here",) if tree.files else ()
        return (), odd
    earlier = {each.path: each for each in known}
    candidates = sorted(form.candidates(tree), key=lambda one: (one.step, one.path), reverse=True)[:LISTED_MOST]
    found: list[Checkpoint] = []
    for number, candidate in enumerate(candidates):
        if number >= newest and any(each.may_resume for each in found):
            found.append(checkpoint(tree, candidate, Level.LISTED, (NOT_READ,), root, attempt))
        else:
            found.append(_judged(form, tree, candidate, root, read, earlier, attempt))
    return tuple(found), _odd(form, tree, read)


def _judged(
    form: Format,
    tree: Tree,
    candidate: Candidate,
    root: str,
    read: Read,
    earlier: dict[str, Checkpoint],
    attempt: int | None,
) -> Checkpoint:
    now = checkpoint(tree, candidate, Level.UNKNOWN, (), root, attempt)
    before = earlier.get(now.path)
    if before is not None and before.level.may_resume and _same(before, now):
        return before.model_copy(update={"tainted": ""})
    contents = read(form.wanted(tree, candidate))
    level, problems = form.judge(tree, candidate, contents)
    return checkpoint(tree, candidate, level, problems, root, attempt)


def _same(before: Checkpoint, now: Checkpoint) -> bool:
    return (before.bytes, before.written_at, before.step) == (now.bytes, now.written_at, now.step)


def _odd(form: Format, tree: Tree, read: Read) -> tuple[str, ...]:
    if not isinstance(form, Megatron):
        return ()
    contents = read((Want(path=TRACKER),)) if TRACKER in tree.files else {}
    if problem := tracker_problem(tree, contents):
        return (problem,)
    words = contents[TRACKER].decode(errors="replace").strip()
    if words.isdecimal() and f"iter_{int(words):07d}" not in tree.folders():
        return (f"{TRACKER} says {words}, and there is no such folder",)
    return ()
