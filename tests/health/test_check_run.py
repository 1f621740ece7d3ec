import asyncio
import os
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from health import children
from health.check_run import CheckRunner
from health.children import leaked_by_owner
from sickbay.check_record import CheckRun
from sickbay.checks import ActiveDepth, CheckCost, CheckMoment, CheckOutcome, CheckResult, healthy
from tests.eventually import eventually

from .stand_in_checks import AT_ONCE, Hanging, Told, about, asks_child

NOW = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)
MOMENT = CheckMoment(now=NOW, boot_id="boot-1", boot_seen_at=NOW)
AT_ONCE_SECONDS = timedelta(seconds=0.05)


def python(program: str) -> list[str]:
    return [sys.executable, "-I", "-S", "-c", program]


async def test_an_answer_in_time_is_what_the_check_said() -> None:
    runner = CheckRunner(Told(about("disks"), lambda moment: healthy("all well")))
    run = await runner.run(MOMENT)
    assert (run.outcome, run.answered, run.at) == (healthy("all well"), True, NOW)
    assert runner.runs == {CheckResult.HEALTHY: 1}


def explode(moment: CheckMoment) -> CheckOutcome:
    raise ZeroDivisionError("one by none")


async def test_a_check_that_raises_is_unknown_with_its_words() -> None:
    run = await CheckRunner(Told(about("disks"), explode)).run(MOMENT)
    assert (run.outcome.result, run.answered) == (CheckResult.UNKNOWN, False)
    assert run.outcome.why == "the check failed: ZeroDivisionError: one by none"


async def test_a_thread_that_does_not_come_back_is_left_and_not_joined_by_a_second() -> None:
    hanging = Hanging()
    runner = CheckRunner(Told(about("disks", deadline=AT_ONCE_SECONDS), hanging), grace=AT_ONCE_SECONDS)
    first = await runner.run(MOMENT)
    second = await runner.run(MOMENT)
    assert first.outcome.why == "no answer within 0.1 s"
    assert second.outcome.why == "its run before this one has not come back"
    assert (first.answered, second.answered) == (False, False)
    assert (hanging.begun, runner.abandoned) == (1, 1)
    hanging.released.set()
    await eventually(lambda: not runner._working)
    assert (await runner.run(MOMENT)).outcome == healthy()


async def test_there_are_never_two_runs_of_one_check() -> None:
    hanging = Hanging()
    check = Told(about("disks"), hanging)
    runner = CheckRunner(check)
    runs = [asyncio.create_task(runner.run(MOMENT)) for _ in range(3)]
    await eventually(lambda: hanging.begun > 0)
    assert len(check.moments) == 1
    hanging.released.set()
    assert [run.outcome for run in await asyncio.gather(*runs)] == [healthy()] * 3


def silent_children(folder: Path) -> dict[str, list[str]]:
    fifo = folder / "driver"
    os.mkfifo(fifo)
    return {
        "a file that never answers": ["cat", str(fifo)],
        "a stopped process": python("import os, signal; os.kill(os.getpid(), signal.SIGSTOP)"),
        "one that ignores SIGTERM and holds the pipe": python(
            "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('well', flush=True);"
            " time.sleep(600)"
        ),
        "a grandchild that holds the pipe": python("import os, time\nos.fork()\ntime.sleep(600)\n"),
    }


@pytest.mark.parametrize(
    "kind",
    [
        "a file that never answers",
        "a stopped process",
        "one that ignores SIGTERM and holds the pipe",
        "a grandchild that holds the pipe",
    ],
)
async def test_a_real_child_that_hangs_makes_its_check_unknown_in_time(kind: str, tmp_path: Path) -> None:
    """Detection 3d: a child that takes no kind word is killed with its group, and nobody waits for its pipe."""
    check = Told(about("driver"), asks_child(silent_children(tmp_path)[kind]))
    run: CheckRun = await CheckRunner(check).run(MOMENT)
    assert (run.outcome.result, run.outcome.why) == (CheckResult.UNKNOWN, "no answer in time")


async def test_a_child_that_cannot_be_ended_is_counted_for_its_check(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process in state D takes no SIGKILL; here the kill is what fails, which looks the same to the parent."""
    with monkeypatch.context() as patch:
        patch.setattr(children, "_REAP_SECONDS", 0.05)
        patch.setattr(os, "killpg", lambda *_: None)
        check = Told(about("dcgm-health"), asks_child(python("import time; time.sleep(600)"), AT_ONCE))
        assert (await CheckRunner(check).run(MOMENT)).outcome.result is CheckResult.UNKNOWN
    assert leaked_by_owner()["dcgm-health"] == 1
    (leaked,) = (child for child in children.leaked() if child.owner == "dcgm-health")
    leaked.process.kill()
    leaked.process.wait(20)
    assert leaked_by_owner()["dcgm-health"] == 0


async def test_a_burn_in_may_take_its_time_where_a_quick_look_may_not() -> None:
    runner = CheckRunner(Told(about("active", deadline=AT_ONCE, cost=CheckCost.EXCLUSIVE)))
    loaded = MOMENT.model_copy(update={"depth": ActiveDepth.BURN_IN, "burn_in": timedelta(minutes=3)})
    assert runner._limit_of(MOMENT) < 2
    assert runner._limit_of(loaded) > 180
