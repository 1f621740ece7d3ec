"""Taint: what a node that computed wrong had a part in, and all that was trained on it since."""

from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from sickbay.checkpoints.model import Checkpoint, CheckpointFormat, Level, Lineage, TaintWindow
from sickbay.checkpoints.taint import tainted
from tests.sickbay.checkpoints.layouts import WRITTEN

HOUR = timedelta(hours=1)


def saved(step: int, attempt: int | None, hours: float | None) -> Checkpoint:
    at = None if hours is None else WRITTEN + hours * HOUR
    path = f"run/{attempt}/{step}"
    kind, level = CheckpointFormat.DCP, Level.VERIFIED
    return Checkpoint(step=step, path=path, format=kind, level=level, attempt=attempt, written_at=at)


def lived(attempt: int, hours: float, *nodes: str, ended: float | None = None, resumed: str = "") -> Lineage:
    """An attempt; `resumed` is the path that it began from, whose last part is the step."""
    return Lineage(
        attempt=attempt,
        began_at=WRITTEN + hours * HOUR,
        ended_at=None if ended is None else WRITTEN + ended * HOUR,
        resumed_path=resumed,
        resumed_step=int(resumed.rpartition("/")[2]) if resumed else None,
        nodes=nodes,
    )


def window(since: float, until: float, *, node: str = "bad", confirmed: bool = True) -> TaintWindow:
    return TaintWindow(
        node=node, since=WRITTEN + since * HOUR, until=WRITTEN + until * HOUR, confirmed=confirmed, reason="it lied"
    )


def bad_steps(found: list[Checkpoint], lineage: list[Lineage], *windows: TaintWindow) -> list[int]:
    return [each.step for each in tainted(found, lineage, windows) if each.tainted]


RUN = [lived(1, 0, "good", "bad", ended=4)]


def test_what_was_written_after_the_window_began_is_tainted_and_what_came_before_is_not() -> None:
    found = [saved(100, 1, 1), saved(200, 1, 3)]
    assert bad_steps(found, RUN, window(2, 4)) == [200]


def test_a_suspicion_taints_nothing() -> None:
    assert bad_steps([saved(200, 1, 3)], RUN, window(2, 4, confirmed=False)) == []


def test_an_attempt_without_the_node_is_clean_if_it_began_clean() -> None:
    lineage = [*RUN, lived(2, 4, "good", ended=6, resumed="run/1/100")]
    found = [saved(100, 1, 1), saved(200, 1, 3), saved(300, 2, 5)]
    assert bad_steps(found, lineage, window(2, 4)) == [200]


def test_taint_is_inherited_over_attempts_that_the_node_had_no_part_in() -> None:
    lineage = [
        *RUN,
        lived(2, 4, "good", ended=6, resumed="run/1/200"),
        lived(3, 6, "good", ended=8, resumed="run/2/300"),
    ]
    found = [saved(200, 1, 3), saved(300, 2, 5), saved(400, 3, 7)]
    assert bad_steps(found, lineage, window(2, 4)) == [200, 300, 400]
    assert "it was trained on run/2/300" in tainted(found, lineage, [window(2, 4)])[2].tainted


def test_taint_is_inherited_from_what_was_deleted_since() -> None:
    lineage = [
        *RUN,
        lived(2, 4, "good", ended=6, resumed="run/1/200"),
        lived(3, 6, "good", ended=8, resumed="run/2/300"),
    ]
    assert bad_steps([saved(400, 3, 7)], lineage, window(2, 4)) == [400]
    assert bad_steps([saved(400, 3, 7)], lineage, window(2, 4, node="elsewhere")) == []


def test_where_nobody_knows_when_or_by_whom_it_was_written_it_is_tainted() -> None:
    assert bad_steps([saved(100, 1, None)], RUN, window(2, 4)) == [100]
    assert bad_steps([saved(200, 1, 3)], [lived(1, 0, ended=4)], window(2, 4)) == [200]
    assert bad_steps([saved(200, None, 3)], [], window(2, 4)) == [200]


@given(st.lists(st.tuples(st.integers(1, 5), st.integers(1, 9)), max_size=8))
def test_more_windows_never_clear_anything(drawn: list[tuple[int, int]]) -> None:
    found = [saved(10 * step, attempt, attempt + step / 10) for attempt, step in sorted(set(drawn))]
    lineage = [lived(number, number, "good", "bad", ended=number + 1) for number in range(1, 6)]
    once = set(bad_steps(found, lineage, window(2, 3)))
    assert once <= set(bad_steps(found, lineage, window(2, 3), window(4, 5)))
