from collections.abc import Sequence
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as some

from sickbay.counter_tracks import CounterMemory
from sickbay.faults import Fault
from sickbay.network.counters import judge_counters
from sickbay.network.limits import INFINIBAND_LIMITS, Limit, limits_from
from tests.sickbay.network.moments import moment

KEY = "mlx5_0/1/symbol_error"
HOURLY = limits_from("symbol_error>120/h!", ())


def follow(values: Sequence[int | None], limits: tuple[Limit, ...] = HOURLY, every: float = 1) -> tuple[Fault, ...]:
    """The faults at the last of some looks, so many minutes apart; None is a counter that is not there."""
    memory, faults = CounterMemory(), tuple[Fault, ...]()
    for index, value in enumerate(values):
        counters = {} if value is None else {KEY: value}
        faults, memory = judge_counters(counters, limits, memory, moment(index * every))
        memory = CounterMemory.model_validate_json(memory.model_dump_json())
    return faults


def test_the_first_sample_is_only_a_baseline() -> None:
    assert follow([10**12]) == ()


def test_growth_counts_over_the_whole_period_and_not_by_the_look() -> None:
    assert follow([0, 50, 100]) == ()
    (fault,) = follow([0, 50, 100, 150])
    assert fault.code == "nic-errors-hard"
    assert "grew by 150" in fault.evidence[0]


def test_slow_growth_stays_below_the_limit_for_ever() -> None:
    assert follow(list(range(200))) == ()


def test_a_reset_or_a_wrap_is_a_new_baseline() -> None:
    assert follow([2**32 - 5, 3]) == ()
    assert follow([1000, 0, 100]) == ()


def test_an_absent_counter_is_not_zero() -> None:
    assert follow([1000, None, 1000]) == ()


def test_a_rate_is_taken_over_the_time_that_passed() -> None:
    a_second = limits_from("symbol_error>10/s", ())
    assert follow([0, 600], a_second) == ()
    (fault,) = follow([0, 601], a_second)
    assert fault.code == "nic-errors"


def test_a_fleet_replaces_a_limit_and_switches_one_off() -> None:
    own = limits_from("symbol_error>5/min!, link_downed=off", INFINIBAND_LIMITS)
    assert [limit.words for limit in own if limit.counter == "symbol_error"] == ["symbol_error>5/min!"]
    assert not [limit for limit in own if limit.counter == "link_downed"]
    assert [limit for limit in own if limit.counter == "port_rcv_errors"]


@pytest.mark.parametrize("text", ["symbol_error", "symbol_error>x/h", "symbol_error>5/week", ">5/h"])
def test_a_limit_that_cannot_be_read_is_named(text: str) -> None:
    with pytest.raises(ValueError, match="is no limit of a counter"):
        limits_from(f"link_downed=off, {text}", ())


@given(some.lists(some.integers(min_value=0, max_value=2**64), max_size=12), some.floats(min_value=0.1, max_value=90))
def test_counters_that_never_grow_are_never_a_fault(values: list[int], every: float) -> None:
    assert follow(sorted(values, reverse=True), every=every) == ()


def test_the_words_of_a_limit_can_be_read_again() -> None:
    for limit in INFINIBAND_LIMITS:
        assert limits_from(limit.words, ()) == (limit,)
    assert Limit(counter="x", most=1, period=timedelta(days=1)).words == "x>1/day"
