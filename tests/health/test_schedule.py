"""The schedule, with checks that do as the test says and children that really hang."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from health import schedule as schedule_module
from health.check_run import CheckRunner
from health.driver_gate import DriverGate
from health.schedule import Schedule
from sickbay.catalogue import fault_of
from sickbay.check_record import CheckRecord
from sickbay.checks import (
    ActiveDepth,
    CheckCost,
    CheckLayer,
    CheckMoment,
    CheckOutcome,
    CheckResult,
    healthy,
    judged,
    unknown,
)
from sickbay.faults import Component, ComponentKind, Rung
from tests.eventually import eventually

from .stand_in_checks import AT_ONCE, Hanging, Told, about, asks_child

NOW = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)
NEVER = timedelta(hours=5)


def schedule_of(*checks: Told, records: Iterable[CheckRecord] = ()) -> Schedule:
    moment = CheckMoment(now=NOW, boot_id="boot-1", boot_seen_at=NOW, expected_gpus=8)
    made = Schedule(checks, records, moment, lambda: NOW, lambda *_: None)
    for runner in made.runners.values():
        _without_grace(runner)
    return made


def _without_grace(runner: CheckRunner) -> None:
    runner._limit = runner.check.about.deadline.total_seconds()


@asynccontextmanager
async def running(schedule: Schedule) -> AsyncIterator[Schedule]:
    task = asyncio.create_task(schedule.run())
    try:
        yield schedule
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def results(schedule: Schedule) -> dict[str, CheckResult]:
    return {report.name: report.result for report in schedule.reports()}


async def test_one_check_hangs_and_the_other_goes_on(tmp_path: Path) -> None:
    hanging = Hanging()
    stuck, well = Told(about("stuck", deadline=AT_ONCE), hanging), Told(about("well"))
    async with running(schedule_of(stuck, well)) as schedule:
        await eventually(lambda: len(well.moments) > 20)
        await eventually(lambda: schedule.records[0].bad_runs >= 2)
        assert results(schedule) == {"stuck": CheckResult.UNKNOWN, "well": CheckResult.HEALTHY}
        (silent,) = schedule.faults()
        assert (silent.code, silent.component.id, silent.rung) == ("check-silent", "stuck", Rung.BLOCK_NEW_WORK)
        assert [check.name for check in schedule.blind()] == ["stuck"]
        assert hanging.begun == 1
    hanging.released.set()


async def test_a_check_whose_children_hang_keeps_trying_and_recovers(tmp_path: Path) -> None:
    check = Told(about("driver"), asks_child(["sleep", "600"], timedelta(milliseconds=50)))
    async with running(schedule_of(check)) as schedule:
        await eventually(lambda: schedule.records[0].bad_runs >= 2)
        check.answer = lambda moment: healthy()
        await eventually(lambda: results(schedule) == {"driver": CheckResult.HEALTHY})
        assert schedule.faults() == ()


async def test_a_hanging_check_holds_up_the_first_publishing_only_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schedule_module, "FIRST_PASS_SECONDS", 0.2)
    hanging = Hanging()
    async with running(schedule_of(Told(about("stuck", deadline=NEVER), hanging))) as schedule:
        await eventually(lambda: hanging.begun > 0)
        await eventually(lambda: schedule.passed)
        assert [check.name for check in schedule.blind()] == ["stuck"]
    hanging.released.set()


async def test_what_an_earlier_agent_of_the_boot_knew_is_where_the_next_begins() -> None:
    first = Told(about("counters"))
    schedule = schedule_of(first)
    await schedule.pass_once(ActiveDepth.NONE, timedelta(), None)
    again = Told(about("counters"))
    after = schedule_of(again, records=schedule.records)
    assert after.passed
    assert after.reports() == schedule.reports()
    await after.pass_once(ActiveDepth.NONE, timedelta(), None)
    assert again.moments[0].memory == "."


async def test_the_driver_is_left_alone_while_it_is_untouched() -> None:
    asks = Told(about("nvml", layer=CheckLayer.NVML))
    files = Told(about("disks"))
    async with running(schedule_of(asks, files)) as schedule:
        await eventually(lambda: len(asks.moments) > 0)
        async with schedule.gate.untouched():
            asked, read = len(asks.moments), len(files.moments)
            await eventually(lambda: len(files.moments) > read + 10)
            assert len(asks.moments) == asked
        await eventually(lambda: len(asks.moments) > asked)


async def test_a_reset_waits_for_those_who_are_at_the_driver() -> None:
    gate, order = DriverGate(), []

    async def reset() -> None:
        async with gate.untouched():
            order.append("reset")

    async with gate.touching():
        waiting = asyncio.create_task(reset())
        await asyncio.sleep(0)
        late = asyncio.create_task(_touch(gate, order))
        await asyncio.sleep(0)
        order.append("first")
    await asyncio.gather(waiting, late)
    assert order == ["first", "reset", "late"]


async def _touch(gate: DriverGate, order: list[str]) -> None:
    async with gate.touching():
        order.append("late")


async def test_an_exclusive_check_runs_as_deep_as_it_is_asked_and_alone() -> None:
    busy: list[str] = []

    def alone(moment: CheckMoment) -> CheckOutcome:
        busy.append("in")
        assert busy.count("in") - busy.count("out") == 1
        busy.append("out")
        return healthy()

    active = [Told(about(name, cost=CheckCost.EXCLUSIVE, every=NEVER), alone) for name in ("active", "nccl")]
    schedule = schedule_of(*active, Told(about("disks", every=NEVER)))
    await schedule.pass_once(ActiveDepth.NONE, timedelta(), 8)
    assert [len(check.moments) for check in active] == [0, 0]
    await schedule.pass_once(ActiveDepth.BURN_IN, timedelta(minutes=1), 8)
    (moment,) = active[0].moments
    assert (moment.depth, moment.burn_in, moment.expected_gpus) == (ActiveDepth.BURN_IN, timedelta(minutes=1), 8)
    assert results(schedule) == dict.fromkeys(("active", "nccl", "disks"), CheckResult.HEALTHY)


async def test_an_exclusive_check_that_nobody_asked_for_leaves_nothing_open() -> None:
    schedule = schedule_of(Told(about("active", cost=CheckCost.EXCLUSIVE, every=NEVER)))
    assert (schedule.passed, schedule.blind()) == (True, ())


async def test_an_exclusive_check_that_could_not_judge_is_asked_again_by_every_pass() -> None:
    """Else its silence would hold up a verification that loads no GPU as long as anything is unknown."""
    check = Told(about("dcgm-diag", cost=CheckCost.EXCLUSIVE, every=timedelta()), lambda moment: unknown("no answer"))
    schedule = schedule_of(check)
    await schedule.pass_once(ActiveDepth.BURN_IN, timedelta(minutes=1), None)
    assert [blind.name for blind in schedule.blind()] == ["dcgm-diag"]
    check.answer = lambda moment: healthy()
    await schedule.pass_once(ActiveDepth.NONE, timedelta(minutes=1), None)
    assert [moment.depth for moment in check.moments] == [ActiveDepth.BURN_IN, ActiveDepth.QUICK]
    assert schedule.blind() == ()
    await schedule.pass_once(ActiveDepth.NONE, timedelta(minutes=1), None)
    assert len(check.moments) == 2


async def test_an_exclusive_check_that_holds_a_fault_is_asked_again_by_every_pass_and_a_reset_ends_it() -> None:
    """Else a fault that only it can see would outlive the reset that cured it, and the ladder would climb."""
    gpu = Component(kind=ComponentKind.GPU, id="0000:61:00")
    wrong = fault_of("gpu-wrong-result", gpu, boot_id="boot-1")
    check = Told(about("active", cost=CheckCost.EXCLUSIVE, every=timedelta()), lambda moment: judged((wrong,)))
    schedule = schedule_of(check)
    await schedule.pass_once(ActiveDepth.BURN_IN, timedelta(minutes=1), None)
    check.answer = lambda moment: healthy()
    await schedule.pass_once(ActiveDepth.NONE, timedelta(minutes=1), None)
    assert [fault.code for fault in schedule.faults()] == ["gpu-wrong-result"]
    schedule.reset_proven(("0000:61:00",))
    await schedule.pass_once(ActiveDepth.NONE, timedelta(minutes=1), None)
    assert schedule.faults() == ()
    assert [moment.depth for moment in check.moments[1:]] == [ActiveDepth.QUICK, ActiveDepth.QUICK]


async def test_an_exclusive_check_runs_quickly_at_its_own_interval_and_not_at_the_start() -> None:
    check = Told(about("active", cost=CheckCost.EXCLUSIVE, every=timedelta(seconds=0.1)))
    async with running(schedule_of(check)):
        await eventually(lambda: len(check.moments) > 0)
        assert check.moments[0].depth is ActiveDepth.QUICK


async def test_a_check_without_an_interval_runs_only_in_a_full_pass() -> None:
    check, other = Told(about("active", every=timedelta())), Told(about("disks"))
    async with running(schedule_of(check, other)) as schedule:
        await eventually(lambda: len(other.moments) > 10)
        assert check.moments == []
        await schedule.pass_once(ActiveDepth.QUICK, timedelta(), None)
        assert len(check.moments) == 1


async def test_a_check_that_does_not_apply_is_neither_run_nor_missed() -> None:
    check = Told(about("efa"))
    check.inapplicable = "no EFA function on the PCI bus"
    schedule = schedule_of(check)
    await schedule.pass_once(ActiveDepth.NONE, timedelta(), None)
    (report,) = schedule.reports()
    assert (report.result, report.why) == (CheckResult.NOT_APPLICABLE, "no EFA function on the PCI bus")
    assert (check.moments, schedule.blind(), schedule.faults()) == ([], (), ())


async def test_a_full_pass_ends_though_a_check_in_it_does_not() -> None:
    hanging = Hanging()
    schedule = schedule_of(Told(about("stuck", deadline=AT_ONCE), hanging), Told(about("well")))
    await schedule.pass_once(ActiveDepth.NONE, timedelta(), None)
    assert results(schedule) == {"stuck": CheckResult.UNKNOWN, "well": CheckResult.HEALTHY}
    hanging.released.set()


async def test_a_word_of_unknown_is_told_with_its_reason() -> None:
    schedule = schedule_of(Told(about("efa"), lambda moment: unknown("sysfs cannot be read")))
    await schedule.pass_once(ActiveDepth.NONE, timedelta(), None)
    (blind,) = schedule.blind()
    assert (blind.name, blind.why, blind.since) == ("efa", "sysfs cannot be read", NOW)
