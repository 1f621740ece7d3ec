"""Which nodes a job keeps off: all that broke by themselves, but never so many that the cause must be elsewhere."""

from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from sickbay.training import exclusions
from sickbay.training.attempts import Exclusion
from sickbay.training.verdicts import NodeBlame
from tests.sickbay.training.records import BEGIN, spec

HOUR = timedelta(hours=1)


def blame(node: str, *, soft: bool = False, hardware: bool = True) -> NodeBlame:
    return NodeBlame(node=node, reason="it broke", soft=soft, hardware=hardware)


def excluded(node: str, *, since: timedelta = -HOUR, until: timedelta = HOUR, soft: bool = False) -> Exclusion:
    return Exclusion(node=node, reason="it broke", since=BEGIN + since, until=BEGIN + until, soft=soft)


def test_two_nodes_that_break_at_once_are_both_kept_off_even_by_a_small_job() -> None:
    found = exclusions.of_blame(spec(), (), [blame("a"), blame("b")], 2, BEGIN)
    assert ([each.node for each in found.added], found.common_cause) == (["a", "b"], "")


def test_a_third_node_in_a_day_points_at_something_that_they_have_in_common() -> None:
    known = (excluded("a"), excluded("b", until=-timedelta(minutes=1)))
    found = exclusions.of_blame(spec(), known, [blame("c")], 2, BEGIN)
    assert found.added == ()
    assert found.common_cause.startswith("c not kept off: 2 node(s) were within a day")


def test_a_large_job_may_keep_off_one_in_twenty_a_day() -> None:
    found = exclusions.of_blame(spec(), (), [blame(f"n{number}") for number in range(9)], 100, BEGIN)
    assert [each.node for each in found.added] == ["n0", "n1", "n2", "n3", "n4"]


def test_a_node_that_is_kept_off_already_is_kept_off_longer_whatever_the_cap() -> None:
    known = (excluded("a"), excluded("b"))
    found = exclusions.of_blame(spec(), known, [blame("a")], 2, BEGIN)
    assert [each.node for each in found.added] == ["a"]


def test_leaving_a_node_for_a_while_counts_for_nothing() -> None:
    known = (excluded("a", soft=True), excluded("b", soft=True))
    assert not exclusions.of_blame(spec(), known, [blame("c"), blame("d")], 2, BEGIN).common_cause
    assert not exclusions.of_blame(
        spec(), (excluded("a"), excluded("b")), [blame("c", soft=True)], 2, BEGIN
    ).common_cause


def test_hardware_is_kept_off_longest_and_a_node_that_only_left_shortest() -> None:
    blamed = [blame("soft", soft=True), blame("blamed", hardware=False), blame("broken")]
    added = exclusions.of_blame(spec(), (), blamed, 100, BEGIN).added
    lengths = [each.until - each.since for each in added]
    assert lengths == sorted(lengths)
    assert len(set(lengths)) == 3


def test_an_exclusion_holds_from_its_beginning_until_before_its_end() -> None:
    one = excluded("a", since=timedelta(0), until=HOUR)
    assert exclusions.live((one,), BEGIN) == (one,)
    assert exclusions.live((one,), BEGIN + HOUR) == ()
    assert exclusions.live((one,), BEGIN - HOUR) == ()


def test_a_node_that_is_well_again_is_used_again() -> None:
    known = exclusions.ended((excluded("a"), excluded("b")), "a", BEGIN)
    assert [each.node for each in exclusions.live(known, BEGIN)] == ["b"]


def test_soft_exclusions_give_way_where_there_is_no_other_room() -> None:
    known = (excluded("a", soft=True), excluded("b"))
    assert exclusions.yielding(known, room=2, wanted=2) == known
    assert [each.node for each in exclusions.yielding(known, room=1, wanted=2)] == ["b"]


@given(st.lists(st.builds(blame, st.sampled_from("abcdefgh")), max_size=20), st.integers(1, 200))
def test_no_day_excludes_more_than_its_cap(blamed: list[NodeBlame], nodes: int) -> None:
    known: tuple[Exclusion, ...] = ()
    for each in blamed:
        known = exclusions.added_to(known, exclusions.of_blame(spec(), known, [each], nodes, BEGIN).added)
    assert len({each.node for each in known}) <= exclusions.most_in_a_day(spec(), nodes)
