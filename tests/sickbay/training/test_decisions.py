"""What follows a failed attempt: budgets side by side, limits per hour, and when a restart cannot help."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sickbay.training.budgets import HOUR, forgiven
from sickbay.training.decisions import FIRST_PAUSE, LONGEST_PAUSE, Decision, Next, after_failure
from sickbay.training.history import AttemptRecord
from sickbay.training.job import RestartBudgets
from sickbay.training.verdicts import BudgetKind, FailureAction, NodeBlame
from tests.sickbay.training.records import BEGIN, failed, history, spec, verdict

LATE = BEGIN + timedelta(days=30)


def decide(*records: AttemptRecord, **budgets: int) -> Decision:
    return after_failure(spec(budgets=RestartBudgets(**budgets)), history(*records), LATE)


def test_a_failure_of_the_platform_is_restarted_without_the_node() -> None:
    blame = NodeBlame(node="node-a", reason="Xid 79", hardware=True)
    decision = decide(failed(1, verdict(BudgetKind.PLATFORM, blamed=(blame,))))
    assert decision.kind is Next.RESTART
    assert [each.node for each in decision.exclude] == ["node-a"]


def test_a_verdict_to_stop_stops() -> None:
    decision = decide(failed(1, verdict(BudgetKind.CONFIRMATION, action=FailureAction.STOP)))
    assert decision.kind is Next.STOP
    assert "cannot help" in decision.why


def test_a_bug_is_confirmed_once_and_then_stops() -> None:
    bug = verdict(BudgetKind.CONFIRMATION, "ValueError")
    assert decide(failed(1, bug)).kind is Next.RESTART
    assert decide(failed(1, bug), failed(2, bug)).kind is Next.STOP


def test_the_same_failure_at_the_same_step_on_other_nodes_stops_at_once_whatever_is_left() -> None:
    unknown = verdict(BudgetKind.UNEXPLAINED, "illegal access", step=70)
    records = failed(1, unknown, culprit_node="a"), failed(2, unknown, culprit_node="b")
    assert decide(*records).kind is Next.STOP
    same_node = failed(1, unknown, culprit_node="a"), failed(2, unknown, culprit_node="a")
    assert decide(*same_node).kind is Next.RESTART


def test_failures_of_unknown_cause_without_progress_ask_a_person_in_the_end() -> None:
    records = [failed(number, verdict(fingerprint=f"f{number}")) for number in range(1, 5)]
    assert decide(*records[:3]).kind is Next.RESTART
    assert decide(*records).kind is Next.ASK_PERSON


def test_alternating_failures_cannot_reset_each_other() -> None:
    records: list[AttemptRecord] = []
    for number in range(1, 20):
        records.append(failed(number, verdict(fingerprint="xy"[number % 2])))
        if decide(*records).kind is not Next.RESTART:
            break
    assert len(records) == RestartBudgets().unexplained + 1


def test_a_bug_that_alternates_with_unknown_failures_is_still_stopped() -> None:
    bug, unknown = verdict(BudgetKind.CONFIRMATION, "bug"), verdict(fingerprint="odd")
    assert decide(failed(1, bug), failed(2, unknown), failed(3, bug)).kind is Next.STOP


def test_hardware_noise_between_two_of_one_bug_does_not_hide_the_bug() -> None:
    bug, noise = verdict(BudgetKind.CONFIRMATION, "bug"), verdict(BudgetKind.PLATFORM, "xid")
    assert decide(failed(1, bug), failed(2, noise), failed(3, noise), failed(4, bug)).kind is Next.STOP


def test_durable_progress_gives_the_patience_back_and_a_failure_of_unknown_progress_does_not() -> None:
    steps = [100, 100, 100, 200]
    records = [failed(number, verdict(), durable_step=step) for number, step in enumerate(steps, start=1)]
    assert decide(*records).kind is Next.RESTART
    unknown = [failed(number, verdict(), durable_step=None) for number in range(1, 5)]
    assert decide(*unknown).kind is Next.ASK_PERSON


def test_disruptions_spend_nobodys_budget_however_many() -> None:
    records = [failed(number, verdict(BudgetKind.DISRUPTION)) for number in range(1, 60)]
    assert decide(*records).kind is Next.RESTART


def test_thirty_five_lost_nodes_in_a_row_are_capped_by_the_hour() -> None:
    records: list[AttemptRecord] = []
    now = BEGIN
    for number in range(1, 36):
        records.append(failed(number, verdict(BudgetKind.PLATFORM, f"f{number}"), at=now))
        decision = after_failure(spec(), history(*records), now)
        assert decision.kind is Next.RESTART
        now = max(decision.not_before, now)
    starts = [record.planned_at for record in records]
    assert all(starts[index + 6] - start >= HOUR for index, start in enumerate(starts[:-6]))


def test_the_platforms_budget_ends_at_a_person() -> None:
    records = [failed(number, verdict(BudgetKind.PLATFORM)) for number in range(1, 5)]
    assert decide(*records, platform=3).kind is Next.ASK_PERSON


def test_the_attempts_of_a_life_end_at_a_person() -> None:
    records = [failed(number, verdict(BudgetKind.DISRUPTION)) for number in range(1, 4)]
    assert decide(*records, attempts=3).kind is Next.ASK_PERSON


def test_what_a_person_has_forgiven_counts_no_more() -> None:
    records = [failed(number, verdict()) for number in range(1, 5)]
    past = forgiven(history(*records))
    again = history(*past.attempts, failed(5, verdict()))
    assert after_failure(spec(), again, LATE).kind is Next.RESTART


def test_quick_failures_pause_twice_as_long_each_time_and_not_for_ever() -> None:
    records: list[AttemptRecord] = []
    pauses = []
    for number in range(1, 9):
        records.append(failed(number, verdict(BudgetKind.DISRUPTION), first_step_at=None))
        pauses.append(decide(*records).not_before - LATE)
    assert pauses[:3] == [FIRST_PAUSE, 2 * FIRST_PAUSE, 4 * FIRST_PAUSE]
    assert max(pauses) == LONGEST_PAUSE


def test_more_blamed_nodes_than_a_day_may_have_are_a_common_cause() -> None:
    blamed = tuple(NodeBlame(node=name, reason="Xid 79", hardware=True) for name in ("a", "b", "c"))
    decision = decide(failed(1, verdict(BudgetKind.PLATFORM, blamed=blamed[:2]), nodes=40))
    assert len(decision.exclude) == 2
    small = decide(failed(1, verdict(BudgetKind.PLATFORM, blamed=blamed), nodes=4))
    assert len(small.exclude) == 2
    assert "cause in common" in small.common_cause


def test_without_a_verdict_there_is_nothing_to_decide() -> None:
    with pytest.raises(ValueError, match="no verdict"):
        after_failure(spec(), history(), LATE)


VERDICTS = st.builds(verdict, st.sampled_from(list(BudgetKind)), st.sampled_from("abc"))


@given(st.lists(st.tuples(VERDICTS, st.booleans(), st.integers(0, 90)), min_size=1, max_size=60))
def test_no_sequence_of_failures_starts_more_in_an_hour_than_the_budget(
    failures: list[tuple[object, bool, int]],
) -> None:
    job = spec()
    most = max(job.budgets.per_hour, job.budgets.disruptions_per_hour)
    records: list[AttemptRecord] = []
    now = BEGIN
    for number, (found, progress, minutes) in enumerate(failures, start=1):
        durable = number if progress else None
        records.append(failed(number, found, at=now, durable_step=durable))  # type: ignore[arg-type]
        now += timedelta(minutes=minutes)
        decision = after_failure(job, history(*records), now)
        if decision.kind is not Next.RESTART:
            break
        assert decision.not_before >= now
        now = decision.not_before
        starts = [record.planned_at for record in records]
        assert sum(start > now - HOUR for start in starts) < most or now not in starts


@given(st.lists(st.sampled_from("abc"), min_size=1, max_size=30))
def test_unknown_failures_without_progress_never_go_on_past_the_patience(fingerprints: list[str]) -> None:
    records = [failed(number, verdict(fingerprint=each)) for number, each in enumerate(fingerprints, start=1)]
    patience = RestartBudgets().unexplained
    assert (decide(*records).kind is Next.RESTART) == (len(records) <= patience)
