from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sickbay.faults import ComponentKind, Rung
from sickbay.ranks.cost import worth_removing
from sickbay.ranks.model import SlowCause, SlowRank
from sickbay.ranks.outcome import SlowOutcome, outcome, slow_rank_fault
from sickbay.suspicions import only_suspicions

HOUR = timedelta(hours=1)
NOTHING = timedelta(0)


def slow(slowdown: float, cause: SlowCause = SlowCause.COMPUTE) -> SlowRank:
    return SlowRank(
        rank=17,
        node="node-b",
        gpu_uuid="GPU-17",
        cause=cause,
        slowdown=slowdown,
        since=datetime(2026, 3, 1, tzinfo=UTC),
        evidence=("900 ms of its own",),
    )


@pytest.mark.parametrize(
    ("slowdown", "cause", "worth", "expected"),
    [
        (1.05, SlowCause.COMPUTE, True, SlowOutcome.NOTHING),
        (1.10, SlowCause.COMPUTE, True, SlowOutcome.OBSERVE),
        (1.20, SlowCause.COMPUTE, False, SlowOutcome.CHECK),
        (1.20, SlowCause.UNKNOWN, False, SlowOutcome.CHECK),
        (1.90, SlowCause.DATA, True, SlowOutcome.OBSERVE),
        (1.90, SlowCause.CHECKPOINT, True, SlowOutcome.OBSERVE),
        (1.20, SlowCause.COMPUTE, True, SlowOutcome.LEAVE_AT_CHECKPOINT),
        (float("nan"), SlowCause.COMPUTE, True, SlowOutcome.NOTHING),
    ],
)
def test_a_slow_rank_is_told_then_its_node_is_checked_and_left_for_that_only_if_it_pays(
    slowdown: float, cause: SlowCause, worth: bool, expected: SlowOutcome
) -> None:
    assert outcome(slow(slowdown, cause), worth=worth) is expected


def test_the_fault_of_a_slow_rank_blocks_new_work_and_is_a_suspicion_that_checks_decide() -> None:
    fault = slow_rank_fault(slow(1.3), "ml/llama")
    assert fault.rung is Rung.BLOCK_NEW_WORK
    assert (fault.component.kind, fault.component.id) == (ComponentKind.HOST, "node-b")
    assert fault.evidence[0] == "rank 17 of ml/llama (node node-b, GPU GPU-17) makes each step 30 % longer: compute"
    assert only_suspicions([fault])


def test_it_pays_to_leave_only_if_the_rest_of_the_job_gains_more_than_leaving_costs() -> None:
    costs = {"restart_cost": HOUR, "lost_work": HOUR / 2, "spare_wait": HOUR / 2}
    assert worth_removing(1.25, 11 * HOUR, **costs)
    assert not worth_removing(1.25, 10 * HOUR, **costs)


@pytest.mark.parametrize("slowdown", [1.0, 0.5, 0.0, -1.0, float("nan")])
def test_what_slows_nothing_is_never_worth_leaving(slowdown: float) -> None:
    assert not worth_removing(slowdown, 1000 * HOUR, NOTHING, NOTHING, NOTHING)


@given(st.floats(1.01, 10), st.floats(0, 1000), st.floats(0, 100), st.floats(0, 100))
def test_more_to_lose_never_makes_leaving_better(slowdown: float, rest: float, cost: float, more: float) -> None:
    if worth_removing(slowdown, rest * HOUR, (cost + more) * HOUR, NOTHING, NOTHING):
        assert worth_removing(slowdown, rest * HOUR, cost * HOUR, NOTHING, NOTHING)
