"""Which rung is next: gentlest first, never back, never without end, and never beyond what a class of fault allows."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sickbay.faults import Component, ComponentKind, Fault, FaultClass, Rung, Severity, strongest
from sickbay.incident import Intent
from sickbay.ladder import Step, lemon_floor, next_step, rungs_from, tolerated_until, under_policy
from sickbay.policy.model import ApprovalNeed, FaultPolicy, IncidentPolicy, LemonPolicy, RungPolicy

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
POLICY = IncidentPolicy()
DISRUPTING = [rung for rung in Rung if rung.disrupts]

rungs = st.sampled_from(list(Rung))
classes = st.sampled_from(list(FaultClass))


def intents(*tried: Rung) -> tuple[Intent, ...]:
    return tuple(
        Intent(rung=rung, attempt=tried[: index + 1].count(rung), recorded_at=NOW) for index, rung in enumerate(tried)
    )


def fault(code: str, rung: Rung, first_seen: datetime | float | None = None) -> Fault:
    return Fault(
        code=code,
        component=Component(kind=ComponentKind.GPU, id="0000:61:00"),
        fault_class=FaultClass.GPU,
        severity=Severity.FATAL,
        rung=rung,
        first_seen=first_seen,
    )


@st.composite
def policies(draw: st.DrawFn) -> IncidentPolicy:
    def rule() -> RungPolicy:
        return RungPolicy(
            enabled=draw(st.booleans()),
            attempts=draw(st.integers(1, 3)),
            approval=draw(st.sampled_from(list(ApprovalNeed))),
            deadline=timedelta(minutes=10),
        )

    return IncidentPolicy(stop_workload=rule(), reset_gpu=rule(), reboot=rule(), replace=rule())


@pytest.mark.parametrize(
    ("start", "fault_class", "ladder"),
    [
        (Rung.NONE, FaultClass.GPU, ()),
        (Rung.REBOOT, FaultClass.NONE, ()),
        (Rung.HUMAN, FaultClass.GPU, (Rung.HUMAN,)),
        (Rung.BLOCK_NEW_WORK, FaultClass.GPU, (Rung.BLOCK_NEW_WORK, Rung.HUMAN)),
        (Rung.RESET_GPU, FaultClass.GPU, (Rung.RESET_GPU, Rung.REBOOT, Rung.REPLACE, Rung.HUMAN)),
        (Rung.REPLACE, FaultClass.HOST, (Rung.REPLACE, Rung.HUMAN)),
        (Rung.STOP_WORKLOAD, FaultClass.NETWORK, (Rung.STOP_WORKLOAD, Rung.REBOOT, Rung.REPLACE, Rung.HUMAN)),
        (Rung.REBOOT, FaultClass.MONITOR_UNAVAILABLE, (Rung.BLOCK_NEW_WORK, Rung.HUMAN)),
    ],
)
def test_a_ladder_begins_at_its_start_and_ends_at_a_person(
    start: Rung, fault_class: FaultClass, ladder: tuple[Rung, ...]
) -> None:
    assert rungs_from(start, POLICY, fault_class) == ladder


@given(start=rungs, policy=policies())
def test_monitor_trouble_never_disrupts(start: Rung, policy: IncidentPolicy) -> None:
    assert not any(rung.disrupts for rung in rungs_from(start, policy, FaultClass.MONITOR_UNAVAILABLE))


@pytest.mark.parametrize("fault_class", [FaultClass.HOST, FaultClass.NETWORK, FaultClass.STORAGE])
def test_a_gpu_reset_is_passed_over_where_it_cannot_help(fault_class: FaultClass) -> None:
    assert Rung.RESET_GPU not in rungs_from(Rung.STOP_WORKLOAD, POLICY, fault_class)


@given(start=rungs, fault_class=classes, policy=policies())
def test_a_rung_that_the_policy_disables_is_never_climbed(
    start: Rung, fault_class: FaultClass, policy: IncidentPolicy
) -> None:
    assert all(policy.for_rung(rung).enabled for rung in rungs_from(start, policy, fault_class) if rung.disrupts)


@given(start=rungs, fault_class=classes, floor=rungs, policy=policies())
def test_every_climb_ends_and_never_goes_back(
    start: Rung, fault_class: FaultClass, floor: Rung, policy: IncidentPolicy
) -> None:
    tried: list[Rung] = []
    while (step := next_step(start, fault_class, intents(*tried), policy, floor=floor)).rung.disrupts:
        assert step.rung.strength >= strongest(tried).strength
        assert step.attempt == tried.count(step.rung) + 1 <= policy.for_rung(step.rung).attempts
        tried.append(step.rung)
        assert len(tried) <= sum(policy.for_rung(rung).attempts for rung in DISRUPTING)
    if start is Rung.NONE or fault_class is FaultClass.NONE:
        assert step == Step(rung=Rung.NONE)
    else:
        assert step.rung in (Rung.BLOCK_NEW_WORK, Rung.HUMAN)


@given(start=st.sampled_from(DISRUPTING), tried=st.lists(st.sampled_from(DISRUPTING), max_size=4))
def test_a_milder_fault_after_a_strong_rung_does_not_bring_a_milder_rung(start: Rung, tried: list[Rung]) -> None:
    step = next_step(start, FaultClass.GPU, intents(*tried), POLICY)
    assert not step.rung.disrupts or step.rung.strength >= strongest((start, *tried)).strength


def test_a_rung_is_tried_as_often_as_the_policy_says() -> None:
    policy = IncidentPolicy(reset_gpu=RungPolicy(attempts=2, deadline=timedelta(minutes=1)))
    assert next_step(Rung.RESET_GPU, FaultClass.GPU, intents(Rung.RESET_GPU), policy) == Step(
        rung=Rung.RESET_GPU, attempt=2
    )
    twice = intents(Rung.RESET_GPU, Rung.RESET_GPU)
    assert next_step(Rung.RESET_GPU, FaultClass.GPU, twice, policy) == Step(rung=Rung.REBOOT)


def test_the_past_of_a_machine_raises_the_start() -> None:
    assert next_step(Rung.RESET_GPU, FaultClass.GPU, (), POLICY, floor=Rung.REPLACE).rung is Rung.REPLACE


@pytest.mark.parametrize("start", [Rung.NONE, Rung.BLOCK_NEW_WORK])
def test_the_past_of_a_machine_disrupts_nothing_by_itself(start: Rung) -> None:
    assert next_step(start, FaultClass.GPU, (), POLICY, floor=Rung.REPLACE).rung is start


def test_what_a_person_chooses_is_next_whatever_was_tried() -> None:
    tried = intents(Rung.REBOOT, Rung.REPLACE)
    chosen = next_step(Rung.NONE, FaultClass.NONE, tried, POLICY, chosen=Rung.REBOOT)
    assert chosen == Step(rung=Rung.REBOOT, attempt=2)


@pytest.mark.parametrize(("days_ago", "floor"), [((1, 6), Rung.REPLACE), ((1, 8), Rung.NONE), ((), Rung.NONE)])
def test_a_lemon_is_one_that_was_repaired_often_enough_lately(days_ago: tuple[int, ...], floor: Rung) -> None:
    repaired = [NOW - timedelta(days=days) for days in days_ago]
    assert lemon_floor(repaired, LemonPolicy(window=timedelta(days=7), incidents=2), NOW) is floor


def test_the_pools_policy_outranks_the_catalogue() -> None:
    policy = IncidentPolicy(faults=(FaultPolicy(code="xid-79", rung=Rung.REPLACE),))
    judged = under_policy((fault("xid-79", Rung.REBOOT), fault("xid-119", Rung.RESET_GPU)), policy)
    assert [found.rung for found in judged] == [Rung.REPLACE, Rung.RESET_GPU]


def test_nothing_is_tolerated_where_nothing_asks_for_disruption() -> None:
    assert (
        tolerated_until((fault("xid-63", Rung.NONE), fault("nvml-silent", Rung.BLOCK_NEW_WORK)), POLICY, NOW, NOW)
        is None
    )


def test_the_least_tolerated_fault_decides() -> None:
    faults = (fault("node-not-ready", Rung.REBOOT, NOW), fault("xid-79", Rung.REBOOT, NOW - timedelta(minutes=1)))
    assert tolerated_until(faults, POLICY, NOW, NOW) == NOW - timedelta(minutes=1)
    assert tolerated_until(faults[:1], POLICY, NOW, NOW) == NOW + timedelta(minutes=5)


@pytest.mark.parametrize("first_seen", [None, 12.5])
def test_a_fault_without_a_wall_clock_is_tolerated_from_the_opening_on(first_seen: float | None) -> None:
    faults = (fault("node-not-ready", Rung.REBOOT, first_seen),)
    assert tolerated_until(faults, POLICY, NOW, NOW) == NOW + timedelta(minutes=5)


def test_a_fault_of_the_future_is_not_tolerated_for_longer_than_any_other() -> None:
    faults = (fault("node-not-ready", Rung.REBOOT, NOW + timedelta(days=365)),)
    assert tolerated_until(faults, POLICY, NOW, NOW) == NOW + timedelta(minutes=5)
