"""The record of one check: what its runs so far make of it. Rules of facts: detection, 7 and 10.4."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sickbay.catalogue import fault_of
from sickbay.check_record import CheckRecord, CheckRun, after_reset, after_run, report_of, silence_of
from sickbay.checks import (
    CheckAbout,
    CheckCost,
    CheckLayer,
    CheckOutcome,
    CheckResult,
    healthy,
    judged,
    not_applicable,
    starting,
    unknown,
)
from sickbay.faults import Component, ComponentKind, Fault, Rung

BOOT = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
PCI = "0000:61:00"

ABOUT = CheckAbout(
    name="fabric",
    layer=CheckLayer.NVML,
    judges=(ComponentKind.GPU,),
    cost=CheckCost.CHEAP,
    looks_at="a test",
    source="a test",
    every=MINUTE,
    deadline=timedelta(seconds=30),
    fresh_for=timedelta(minutes=5),
)
SOURCE_WITHDRAWS = ABOUT.model_copy(update={"withdraws": True})


def fault(code: str, pci: str = PCI) -> Fault:
    return fault_of(code, Component(kind=ComponentKind.GPU, id=pci), boot_id="boot-1", seen=BOOT)


LOST = fault("gpu-lost")
PENDING = fault("row-remap-pending")
NIC = fault_of("nic-port-down", Component(kind=ComponentKind.NIC, id="mlx5_0/1"), boot_id="boot-1", seen=BOOT)
"""Blocks new work, and may pass by itself."""


def run(*outcomes: CheckOutcome, about: CheckAbout = ABOUT, record: CheckRecord | None = None) -> CheckRecord:
    """One run a minute."""
    record = record or CheckRecord(name=about.name)
    for outcome in outcomes:
        begun = BOOT if record.ran_at is None else record.ran_at + MINUTE
        record = after_run(record, about, CheckRun(at=begun, outcome=outcome), BOOT)
    return record


def result(record: CheckRecord, about: CheckAbout = ABOUT, later: timedelta = timedelta()) -> CheckResult:
    return report_of(record, about, (record.ran_at or BOOT) + later).result


def codes(record: CheckRecord) -> list[str]:
    return [entry.code for entry in report_of(record, ABOUT, record.ran_at or BOOT).faults]


def silence(record: CheckRecord, later: timedelta = timedelta()) -> tuple[str, Rung] | None:
    found = silence_of(record, ABOUT, (record.ran_at or BOOT) + later, "boot-1")
    return None if found is None else (found.code, found.rung)


def test_a_check_that_has_not_run_is_unknown_and_no_fault_yet() -> None:
    assert result(run()) is CheckResult.UNKNOWN
    assert silence(run()) is None


def test_one_run_without_an_answer_is_unknown_at_once_and_blocks_new_work_when_it_lasts() -> None:
    """Detection 8.9: a monitor that is starved or hangs is a verdict of its own, which survives its restarts."""
    once = run(healthy(), unknown("no answer in time"))
    assert (result(once), silence(once)) == (CheckResult.UNKNOWN, ("check-silent", Rung.NONE))
    twice = run(unknown("no answer in time"), record=once)
    assert silence(twice) == ("check-silent", Rung.BLOCK_NEW_WORK)
    assert silence(CheckRecord.model_validate_json(twice.model_dump_json())) == silence(twice)
    assert silence(run(healthy(), record=twice)) is None


def test_a_silent_monitor_never_asks_for_more_than_to_block_new_work() -> None:
    """Detection 8.12."""
    assert silence(run(*[unknown("DCGM is not reachable")] * 100)) == ("check-silent", Rung.BLOCK_NEW_WORK)


def test_an_answer_past_its_freshness_is_unknown_and_a_silence() -> None:
    record = run(healthy())
    assert result(record, later=ABOUT.fresh_for) is CheckResult.HEALTHY
    assert result(record, later=ABOUT.fresh_for + MINUTE) is CheckResult.UNKNOWN
    assert silence(record, later=ABOUT.fresh_for + MINUTE) == ("check-silent", Rung.BLOCK_NEW_WORK)


def test_a_check_that_runs_only_when_asked_is_not_silent_for_not_being_asked() -> None:
    about = ABOUT.model_copy(update={"every": timedelta()})
    well = run(healthy(), about=about)
    assert result(well, about) is CheckResult.HEALTHY
    assert result(well, about, later=ABOUT.fresh_for + MINUTE) is CheckResult.NOT_APPLICABLE
    assert silence_of(well, about, BOOT + timedelta(days=1), "boot-1") is None
    dark = run(unknown("no answer in time"), about=about, record=well)
    assert result(dark, about, later=timedelta(days=1)) is CheckResult.UNKNOWN
    broken = run(judged([LOST]), healthy(), about=about)
    assert result(broken, about, later=timedelta(days=1)) is CheckResult.FAULTS


def test_a_start_has_an_end() -> None:
    """Detection 8.14: a bounded wait, then a fault."""
    about = ABOUT.model_copy(update={"starting_for": 2 * MINUTE})
    begun = run(starting("fabric in progress"), starting("fabric in progress"), about=about)
    assert (result(begun, about), begun.bad_runs) == (CheckResult.STARTING, 0)
    late = run(starting("fabric in progress"), about=about, record=begun)
    assert result(late, about) is CheckResult.UNKNOWN
    assert late.why == "still starting 2 minutes after the boot: fabric in progress"


def test_a_fault_that_disrupts_stays_whatever_later_runs_say() -> None:
    record = run(judged([LOST]), *[healthy()] * 10)
    assert (codes(record), result(record)) == (["gpu-lost"], CheckResult.FAULTS)


def test_a_source_that_withdraws_its_word_is_believed() -> None:
    record = run(judged([LOST]), healthy(), about=SOURCE_WITHDRAWS)
    assert result(record, SOURCE_WITHDRAWS) is CheckResult.HEALTHY


def test_a_source_that_did_not_answer_has_withdrawn_nothing() -> None:
    record = run(judged([LOST]), unknown("no answer in time"), about=SOURCE_WITHDRAWS)
    assert codes(record) == ["gpu-lost"]


def test_a_fault_that_may_pass_goes_after_enough_whole_runs_in_a_row() -> None:
    record = run(judged([NIC]), healthy())
    assert codes(record) == ["nic-port-down"]
    assert codes(run(unknown("sysfs hangs"), record=record)) == ["nic-port-down"]
    assert codes(run(not_applicable("all GPUs are in use"), record=record)) == ["nic-port-down"]
    assert codes(run(healthy(), record=record)) == []
    assert codes(run(judged([NIC]), healthy(), record=record)) == ["nic-port-down"]


def test_a_run_that_left_something_unjudged_clears_nothing() -> None:
    record = run(judged([NIC, PENDING]), *[judged([PENDING], "mlx5_0 could not be read")] * 5)
    assert sorted(codes(record)) == ["nic-port-down", "row-remap-pending"]


def test_a_proven_reset_and_a_whole_run_after_it_clear_what_a_reset_cures() -> None:
    record = run(judged([PENDING, fault("gpu-lost", "0000:53:00")]))
    assert record.ran_at is not None
    reset = after_reset(record, (PCI,), record.ran_at + MINUTE)
    assert sorted(codes(reset)) == ["gpu-lost", "row-remap-pending"]
    assert codes(run(healthy(), record=reset)) == ["gpu-lost"]
    assert sorted(codes(run(unknown("no answer"), record=reset))) == ["gpu-lost", "row-remap-pending"]


def test_a_reset_cures_nothing_that_shows_again_or_lies_elsewhere() -> None:
    record = run(judged([PENDING, NIC]))
    assert record.ran_at is not None
    reset = after_reset(record, (PCI,), record.ran_at + MINUTE)
    assert sorted(codes(run(judged([PENDING]), healthy(), record=reset))) == ["row-remap-pending"]
    other = after_reset(record, ("0000:53:00",), record.ran_at + MINUTE)
    assert "row-remap-pending" in codes(run(healthy(), record=other))


def test_a_fault_that_comes_and_goes_stays_until_the_boot_ends() -> None:
    flap = (judged([NIC]), healthy(), healthy())
    assert codes(run(*flap, *flap)) == []
    record = run(*flap, *flap, *flap)
    (told,) = report_of(record, ABOUT, record.ran_at or BOOT).faults
    assert told.evidence[0].startswith("came and went 3 times within 12 hours")
    assert codes(run(*[healthy()] * 50, record=record)) == ["nic-port-down"]


def test_departures_of_long_ago_do_not_count() -> None:
    flap = (judged([NIC]), healthy(), healthy())
    record = run(*flap, *flap)
    assert record.ran_at is not None
    rested = record.model_copy(update={"ran_at": record.ran_at + timedelta(hours=12)})
    assert codes(run(*flap, record=rested)) == []


def test_a_fault_that_was_seen_all_along_keeps_its_first_time_and_its_strongest_rung() -> None:
    later = NIC.model_copy(update={"first_seen": BOOT + MINUTE, "last_seen": BOOT + MINUTE, "rung": Rung.NONE})
    (told,) = report_of(run(judged([NIC]), judged([later])), ABOUT, BOOT + MINUTE).faults
    assert (told.first_seen, told.last_seen, told.rung) == (BOOT, BOOT + MINUTE, Rung.BLOCK_NEW_WORK)


@pytest.mark.parametrize("answered", [True, False])
def test_what_a_check_asked_to_remember_outlives_runs_that_were_given_up(answered: bool) -> None:
    record = run(healthy(memory="a baseline"))
    given_up = CheckRun(at=BOOT + MINUTE, outcome=unknown("no answer"), answered=answered)
    assert after_run(record, ABOUT, given_up, BOOT).memory == ("" if answered else "a baseline")


OUTCOMES = st.one_of(
    st.just(healthy()),
    st.just(unknown("no answer")),
    st.just(starting("not there yet")),
    st.just(not_applicable("in use")),
    st.lists(st.sampled_from([LOST, PENDING, NIC, fault("xid-31")]), max_size=4).map(judged),
    st.lists(st.sampled_from([LOST, PENDING, NIC]), min_size=1, max_size=2).map(lambda found: judged(found, "a gap")),
)


@given(st.lists(OUTCOMES, min_size=1, max_size=40))
def test_after_a_bad_run_nothing_is_healthy_before_a_run_that_passed(outcomes: list[CheckOutcome]) -> None:
    bad = False
    record = CheckRecord(name=ABOUT.name)
    for outcome in outcomes:
        record = run(outcome, record=record)
        bad = outcome.result is CheckResult.UNKNOWN or (bad and outcome.result is not CheckResult.HEALTHY)
        assert not (bad and result(record) is CheckResult.HEALTHY)


@given(st.lists(OUTCOMES, max_size=40))
def test_no_fault_with_a_disrupting_rung_disappears_within_a_boot(outcomes: list[CheckOutcome]) -> None:
    shown: set[str] = set()
    record = CheckRecord(name=ABOUT.name)
    for outcome in outcomes:
        record = run(outcome, record=record)
        shown |= {found.code for found in outcome.faults if found.rung.disrupts}
        assert shown <= set(codes(record))


@given(st.lists(OUTCOMES, max_size=30), st.integers(0, 30))
def test_a_restart_at_any_point_changes_nothing(outcomes: list[CheckOutcome], cut: int) -> None:
    before = run(*outcomes[:cut])
    restarted = CheckRecord.model_validate_json(before.model_dump_json())
    assert restarted == before
    assert run(*outcomes[cut:], record=restarted) == run(*outcomes)
