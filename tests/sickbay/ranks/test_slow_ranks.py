import random
from dataclasses import replace
from datetime import UTC, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sickbay.ranks.model import NodeRanks, RankPlace, RankWindow, SlowCause
from tests.sickbay.ranks.jobs import Job, Rank

SLOW = Rank(compute_ms=1170)
WINDOWS = 6


def job(size: int = 8, **others: Rank) -> Job:
    """Eight ranks alike, but for `rank_<n>`."""
    ranks = [Rank() for _ in range(size)]
    for name, rank in others.items():
        ranks[int(name.removeprefix("rank_"))] = rank
    return Job(ranks)


def test_a_rank_that_computes_slower_than_its_peers_for_long_is_named_with_its_node_and_cause() -> None:
    look = job(rank_3=SLOW).run(WINDOWS)
    (slow,) = look.slow
    assert (slow.rank, slow.node, slow.cause) == (3, "node-003", SlowCause.COMPUTE)
    assert slow.slowdown == pytest.approx(1240 / 970, abs=0.01)
    assert "its peers 920.0 ms" in slow.evidence[0]


@pytest.mark.parametrize("minutes", [1, 4])
def test_a_rank_that_is_slow_for_a_while_is_not_named_yet(minutes: int) -> None:
    assert job(rank_3=SLOW).run(minutes).slow == ()


def test_one_window_counts_once_however_often_it_is_looked_at() -> None:
    training = job(rank_3=SLOW)
    pages = training.pages()
    for _ in range(20):
        look = training.look(pages)
    assert look.slow == ()
    assert look.pace.suspicions[0].windows == (True,)


def test_five_slow_windows_of_six_are_enough_and_four_are_not() -> None:
    training = job(rank_3=SLOW)
    training.run(3)
    well, training.ranks = training.ranks, [Rank() for _ in range(8)]
    training.run(1)
    training.ranks = well
    assert training.run(1).slow == ()
    assert len(training.run(1).slow) == 1


def test_a_rank_that_has_recovered_is_no_suspect_any_more() -> None:
    training = job(rank_3=SLOW)
    training.run(WINDOWS)
    training.ranks = [Rank() for _ in range(8)]
    assert training.run(1).slow == ()
    assert training.run(WINDOWS).pace.suspicions == ()


NOBODY = {
    "two peers are too few": Job([Rank(), Rank(), SLOW]),
    "12 % of a part that is small": Job([*[Rank()] * 7, Rank(compute_ms=970)]),
    "more tokens explain it": Job([*[Rank(tokens=1000)] * 7, Rank(compute_ms=1170, tokens=1300)]),
    "another stage has other work": Job([Rank(stage=0)] * 4 + [Rank(stage=1, compute_ms=1300)] * 4),
    "another role has other work": Job([Rank()] * 4 + [Rank(role="critic", compute_ms=1300)]),
    "rank 0 logs and evaluates in every step": Job([Rank(other_ms=400), *[Rank()] * 7]),
    "rank 0 saves for all": Job([Rank(checkpoint_ms=400), *[Rank()] * 7]),
    "rank 0 reads for all": Job([Rank(data_ms=400), *[Rank()] * 7]),
    "the spread is wide": Job([Rank(compute_ms=900 + 60 * number) for number in range(8)]),
}


@pytest.mark.parametrize("training", NOBODY.values(), ids=NOBODY.keys())
def test_nobody_is_blamed_where(training: Job) -> None:
    assert training.run(2 * WINDOWS).slow == ()


CAUSES = {
    SlowCause.COMPUTE: Rank(compute_ms=1200),
    SlowCause.DATA: Rank(data_ms=400),
    SlowCause.CHECKPOINT: Rank(checkpoint_ms=400),
    SlowCause.UNKNOWN: Rank(compute_ms=1100, data_ms=220),
}


@pytest.mark.parametrize("cause", CAUSES)
def test_a_cause_is_named_only_if_one_part_explains_most(cause: SlowCause) -> None:
    (slow,) = job(rank_5=CAUSES[cause]).run(WINDOWS).slow
    assert slow.cause is cause


def test_a_rank_that_waits_longest_is_not_the_one_that_holds_up() -> None:
    training = job(rank_3=SLOW)
    for _ in range(WINDOWS):
        pages = [
            page.model_copy(
                update={
                    "windows": tuple(
                        each.model_copy(update={"collective_ms": 600.0}) if each.place.rank == 3 else each
                        for each in page.windows
                    )
                }
            )
            for page in training.pages()
        ]
        look = training.look(pages)
        training.minute += 1
    assert look.slow == ()


def test_two_nodes_behind_one_switch_are_not_two_bad_nodes() -> None:
    training = job(size=16, rank_3=SLOW, rank_9=SLOW)
    training.leaves = {"node-003": "leaf-1", "node-009": "leaf-1"}
    look = training.run(WINDOWS)
    assert look.slow == ()
    assert "node-003, node-009 behind switch leaf-1" in look.all_slow


def test_two_nodes_behind_different_switches_are_two_slow_nodes() -> None:
    training = job(size=16, rank_3=SLOW, rank_9=SLOW)
    training.leaves = {"node-003": "leaf-1", "node-009": "leaf-2"}
    assert [slow.rank for slow in training.run(WINDOWS).slow] == [3, 9]


def test_a_third_of_the_nodes_at_once_have_a_cause_in_common() -> None:
    look = Job([*[Rank()] * 6, *[SLOW] * 3]).run(WINDOWS)
    assert look.slow == ()
    assert "3 of 9 nodes are slow at once" in look.all_slow


def test_a_job_that_is_slower_as_a_whole_than_it_was_is_told_and_nobody_is_blamed() -> None:
    training = job()
    assert training.run(30).all_slow == ""
    training.ranks = [Rank(compute_ms=1300)] * 8
    look = training.run(1)
    assert look.slow == ()
    assert "41 % more than this job's own 0.97 s" in look.all_slow


def test_the_first_steps_of_an_attempt_are_not_judged() -> None:
    training = job(rank_3=replace(SLOW, compute_ms=5000))
    training.minute = 0
    for _ in range(10):
        pages = training.pages(last_at=training.now(), steps=[4] * 8)
        look = training.look([_window_of(page, steps=4) for page in pages])
        training.minute += 1
    assert look.pace.suspicions == ()
    assert look.pace.step is None


def _window_of(page: NodeRanks, steps: int) -> NodeRanks:
    return page.model_copy(update={"windows": tuple(each.model_copy(update={"steps": steps}) for each in page.windows)})


def test_ranks_without_a_page_are_named_as_silent_and_not_as_healthy() -> None:
    training = job()
    training.silent = frozenset({"node-002", "node-006"})
    look = training.look()
    assert (look.reporting, look.silent) == (6, (2, 6))


def test_a_rank_is_known_from_the_page_of_the_node_that_it_runs_on_alone() -> None:
    training = job()
    pages = training.pages()
    stale = pages[0].model_copy(update={"node": "node-old", "windows": pages[0].windows})
    foreign = pages[1].model_copy(
        update={"windows": tuple(each.model_copy(update={"node": "node-000"}) for each in pages[1].windows)}
    )
    look = training.look([stale, foreign, *pages[2:]])
    assert look.silent == (0, 1)


def test_clocks_that_differ_by_hours_change_nothing_but_are_taken_out_of_what_is_told() -> None:
    training = job(rank_3=SLOW)
    training.clocks = {"node-001": timedelta(hours=5), "node-003": timedelta(hours=-7), "node-004": timedelta(days=900)}
    look = training.run(WINDOWS)
    assert [slow.rank for slow in look.slow] == [3]
    assert look.step_at == look.observed_at
    assert look.hang is None


# Properties

computes = st.floats(890, 910)


@st.composite
def jobs(draw: st.DrawFn) -> tuple[Job, int]:
    """A job with one rank that is at least 20 % slower in computing, and that rank."""
    size = draw(st.integers(5, 24))
    ranks = [Rank(compute_ms=draw(computes), data_ms=draw(st.floats(0, 5))) for _ in range(size)]
    slow = draw(st.integers(0, size - 1))
    ranks[slow] = replace(ranks[slow], compute_ms=910 * draw(st.floats(1.2, 3)))
    clocks = draw(
        st.dictionaries(
            st.sampled_from([f"node-{number:03d}" for number in range(size)]),
            st.timedeltas(timedelta(days=-3), timedelta(days=3)),
        )
    )
    return Job(ranks, clocks=clocks), slow


@given(jobs())
def test_one_slow_rank_among_four_peers_or_more_is_always_found_and_nobody_else(made: tuple[Job, int]) -> None:
    training, slow = made
    assert [found.rank for found in training.run(WINDOWS).slow] == [slow]


@given(jobs(), st.randoms(use_true_random=False))
def test_the_order_of_pages_changes_nothing(made: tuple[Job, int], chance: random.Random) -> None:
    training, _ = made
    training.run(WINDOWS)
    straight, pages = training.look(), list(training.pages())
    chance.shuffle(pages)
    assert training.look(pages).slow == straight.slow


@given(jobs(), st.randoms(use_true_random=False))
def test_numbering_the_ranks_otherwise_changes_only_the_number(made: tuple[Job, int], chance: random.Random) -> None:
    training, _ = made
    order = list(range(len(training.ranks)))
    chance.shuffle(order)
    again = Job([training.ranks[number] for number in order])
    straight, otherwise = training.run(WINDOWS).slow[0], again.run(WINDOWS).slow[0]
    assert order[otherwise.rank] == straight.rank
    assert (otherwise.slowdown, otherwise.cause) == (straight.slowdown, straight.cause)


@given(jobs(), st.floats(0.1, 10))
def test_what_slows_all_alike_blames_nobody(made: tuple[Job, int], factor: float) -> None:
    training, slow = made
    ranks = [rank for number, rank in enumerate(training.ranks) if number != slow]
    training.ranks = ranks
    training.run(WINDOWS)
    training.ranks = [
        replace(rank, compute_ms=rank.compute_ms * factor, data_ms=rank.data_ms * factor) for rank in ranks
    ]
    assert training.run(WINDOWS).slow == ()


@given(st.integers(4, 24), st.lists(st.timedeltas(timedelta(days=-400), timedelta(days=400)), min_size=24, max_size=24))
def test_skewed_clocks_blame_nobody(size: int, skews: list[timedelta]) -> None:
    clocks = {f"node-{number:03d}": skew for number, skew in enumerate(skews)}
    look = Job([Rank() for _ in range(size)], clocks=clocks).run(WINDOWS)
    assert (look.slow, look.hang, look.all_slow) == ((), None, "")


times = st.datetimes(timezones=st.just(UTC))
lengths = st.floats(0, 1e12)
numbers = st.integers(0, 2**53)
windows = st.builds(
    RankWindow,
    job=st.just("ml/llama"),
    attempt=st.just(1),
    place=st.builds(RankPlace, rank=st.integers(0, 6), gpu_uuid=st.just("")),
    node=st.sampled_from(["node-000", "node-001"]),
    number=numbers,
    first_step=numbers,
    last_step=numbers,
    first_at=times,
    last_at=times,
    steps=numbers,
    step_ms=lengths,
    compute_ms=lengths,
    collective_ms=lengths,
    data_ms=lengths,
    checkpoint_ms=lengths,
    longest_gap_ms=lengths,
    checkpoint_ms_total=lengths,
    restore_ms_total=lengths,
    tokens=st.floats(0, 1e30),
)
any_page = st.builds(
    NodeRanks,
    node=st.sampled_from(["node-000", "node-001"]),
    boot_id=st.just("boot-1"),
    at=times,
    window=st.just(timedelta(minutes=1)),
    windows=st.lists(windows, max_size=7).map(tuple),
    unreadable=st.just(()),
)


@given(st.lists(st.lists(any_page, max_size=3), min_size=1, max_size=4))
def test_whatever_pages_say_they_are_judged(looks: list[list[NodeRanks]]) -> None:
    training = job()
    for pages in looks:
        look = training.look(pages)
        assert look.reporting + len(look.silent) == 8
        training.minute += 1
