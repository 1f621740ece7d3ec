"""Which checkpoints may hold what a sick node computed wrong, and so must not be resumed from (facts: training, 6).

Called by `choice`. Only confirmed corruption taints; a suspicion excludes the node and keeps what is there. Taint is
inherited: what was trained on top of a tainted checkpoint is tainted too, whoever wrote it.
"""

from collections.abc import Collection, Iterable, Mapping

from sickbay.checkpoints.model import Checkpoint, Lineage, TaintWindow


def tainted(
    checkpoints: Iterable[Checkpoint], lineage: Iterable[Lineage], windows: Iterable[TaintWindow]
) -> tuple[Checkpoint, ...]:
    """The checkpoints, each with why its content may be wrong."""
    by_attempt = {each.attempt: each for each in lineage}
    windows = tuple(window for window in windows if window.confirmed)
    bad = tainted_paths(checkpoints := tuple(checkpoints), by_attempt, windows)
    return tuple(
        each.model_copy(update={"tainted": bad[each.path]}) if each.path in bad else each for each in checkpoints
    )


def tainted_paths(
    checkpoints: tuple[Checkpoint, ...], lineage: Mapping[int, Lineage], windows: tuple[TaintWindow, ...]
) -> dict[str, str]:
    """Why, by path. Looked at oldest first, since taint is inherited upwards."""
    bad: dict[str, str] = {}
    there = {each.path for each in checkpoints}
    for checkpoint in sorted(checkpoints, key=lambda each: (each.attempt or 0, each.step)):
        own = lineage.get(checkpoint.attempt) if checkpoint.attempt is not None else _at(checkpoint, lineage)
        if own is not None and _began_tainted(own, bad, there, lineage, windows):
            bad[checkpoint.path] = f"it was trained on {own.resumed_path}, which is tainted"
        elif window := next((each for each in windows if _touched(checkpoint, own, each)), None):
            bad[checkpoint.path] = f"{window.node} took part in it and may have computed wrong: {window.reason}"
    return bad


def _began_tainted(
    own: Lineage, bad: Mapping[str, str], there: Collection[str], lineage: Mapping[int, Lineage],
    windows: tuple[TaintWindow, ...],
) -> bool:  # fmt: skip
    """Whether what an attempt began from was tainted. That may be deleted since; then every attempt that may have
    written it tells, by who took part in it when."""
    if not own.resumed_path or own.resumed_path in there:
        return own.resumed_path in bad
    earlier = [each for each in lineage.values() if each.attempt < own.attempt]
    writers = [each for each in earlier if (each.resumed_step or 0) < (own.resumed_step or 0)]
    return any(
        any(_took_part(writer, window) for window in windows) or _began_tainted(writer, bad, there, lineage, windows)
        for writer in writers
    )


def _took_part(writer: Lineage, window: TaintWindow) -> bool:
    """Whether the window's node worked in an attempt within the window; where nobody knows who did, it may have."""
    there = not writer.nodes or window.node in writer.nodes
    return there and writer.began_at < window.until and (writer.ended_at is None or writer.ended_at > window.since)


def _touched(checkpoint: Checkpoint, own: Lineage | None, window: TaintWindow) -> bool:
    """Whether the window's node worked on what this checkpoint holds beyond what its attempt began from.

    Where nobody knows when it was written or who took part, it may have.
    """
    if own is not None and own.nodes and window.node not in own.nodes:
        return False
    if checkpoint.written_at is None:
        return True
    began = own.began_at if own is not None else None
    return checkpoint.written_at > window.since and (began is None or began < window.until)


def _at(checkpoint: Checkpoint, lineage: Mapping[int, Lineage]) -> Lineage | None:
    """The attempt that was writing when the checkpoint was written, where nothing else tells."""
    if checkpoint.written_at is None:
        return None
    for own in lineage.values():
        if own.began_at <= checkpoint.written_at and (own.ended_at is None or checkpoint.written_at <= own.ended_at):
            return own
    return None
