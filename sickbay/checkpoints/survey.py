"""From a place's files to a judged listing: which format, which candidates, what to read, and what is odd as a whole.

Called by `activities.checkpoints`, which lists and reads; everything else is here. Candidates are judged newest first:
as many as are asked for, and on until one may be resumed from; older ones are only listed, if nothing is known of them.
What was to be read and could not be leaves a checkpoint unknown, unless its files already tell that it is not whole.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Final

from sickbay.checkpoints import pointers
from sickbay.checkpoints.formats import format_of
from sickbay.checkpoints.model import Checkpoint, CheckpointFormat, Level
from sickbay.checkpoints.tree import SMALL, Candidate, Contents, Format, Judgement, Tree, Want, checkpoint

Read = Callable[[tuple[Want, ...]], Contents]
"""Reads what is wanted; what cannot be read is not in the answer."""

LISTED_MOST: Final = 500
"""Candidates told; of a job that keeps more, the newest."""
NOT_READ: Final = "it was not looked into: newer ones can be used"


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
    """Checkpoints newest first, and problems of the place as a whole. `root` is the URL of the tree's root."""
    form = format_of(tree, wanted)
    if (form is None or next(form.candidates(tree), None) is None) and tree.name:
        moved = tree.inside_its_parent()
        if (alone := format_of(moved, wanted)) is not None and next(alone.candidates(moved), None) is not None:
            return _Survey(moved, alone, root.rstrip("/").rpartition("/")[0], _moved(read, tree.name), attempt).run(
                newest, known
            )
    if form is None:
        return (), ("no known kind of checkpoint is here",) if tree.files else ()
    found, odd = _Survey(tree, form, root, read, attempt).run(newest, known)
    if not found and tree.files and not odd:
        odd = (f"no checkpoint is here by the names that {form.format} gives",)
    return found, odd


class _Survey:
    """One look at one place."""

    def __init__(self, tree: Tree, form: Format, root: str, read: Read, attempt: int | None) -> None:
        self._tree, self._form, self._root, self._read, self._attempt = tree, form, root, read, attempt
        self._pointed = read((Want(path=form.pointer),)) if form.pointer in tree.files else {}

    def run(self, newest: int, known: Iterable[Checkpoint]) -> tuple[tuple[Checkpoint, ...], tuple[str, ...]]:
        earlier = {each.path: each for each in known}
        # What tells its step only by its content may be the newest.
        order = sorted(
            self._form.candidates(self._tree), key=lambda one: (one.step is None, one.step or 0, one.path), reverse=True
        )[:LISTED_MOST]
        found: list[Checkpoint] = []
        for number, candidate in enumerate(order):
            now = self._as(candidate, Judgement(Level.UNKNOWN, (NOT_READ,), step=candidate.step or 0))
            before = earlier.get(now.path)
            if before is not None and before.level.may_resume and _same(before, now):
                found.append(before.model_copy(update={"tainted": ""}))
            elif number >= newest and any(each.level.may_resume for each in found):
                found.append(now.model_copy(update={"level": Level.LISTED}))
            else:
                found.append(self._as(candidate, self._judged(candidate)))
        pointer = self._form.pointer
        odd = pointers.odd(pointer, self._tree, self._pointed) if pointer and found else ()
        return tuple(sorted(found, key=lambda each: (each.step, each.path), reverse=True)), odd

    def _judged(self, candidate: Candidate) -> Judgement:
        wants = self._form.wanted(self._tree, candidate)
        small = tuple(want for want in wants if not want.whole or (self._tree.size(want.path) or 0) <= SMALL)
        contents = {**self._pointed, **self._read(small)}
        judged = self._form.judge(self._tree, candidate, contents)
        unread = [want.path for want in wants if want.path not in contents]
        if unread:
            told = (
                f"{unread[0]} and {len(unread) - 1} more cannot be read"
                if unread[1:]
                else f"{unread[0]} cannot be read"
            )
            level = Level.UNKNOWN if judged.level.may_resume else judged.level
            return replace(judged, level=level, problems=(*judged.problems, told))
        return judged

    def _as(self, candidate: Candidate, judged: Judgement) -> Checkpoint:
        return checkpoint(self._tree, candidate, self._form.format, judged, self._root, self._attempt)


def _moved(read: Read, name: str) -> Read:
    """Reads by the paths of the parent folder."""
    prefix = f"{name}/"

    def moved(wants: tuple[Want, ...]) -> Contents:
        inner = tuple(replace(want, path=want.path.removeprefix(prefix)) for want in wants)
        return {prefix + path: data for path, data in read(inner).items()}

    return moved


def _same(before: Checkpoint, now: Checkpoint) -> bool:
    return (before.bytes, before.written_at) == (now.bytes, now.written_at)
