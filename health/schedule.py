"""Runs the agent's checks, each at its own pace, and keeps what is known of each.

Used by the agent. Checks do not wait for one another: one that hangs costs its own answer. Those that need the driver
stay away from it during a reset, and those that need idle GPUs run by themselves only as seldom as they ask for.
What a run means is in `sickbay.check_record`; nothing here decides.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from typing import Final

from health.check import Check
from health.check_run import CheckRunner
from health.driver_gate import DriverGate
from sickbay.check_record import CheckRecord, CheckRun, after_reset, after_run, report_of, silence_of
from sickbay.checks import (
    ActiveDepth,
    CheckAbout,
    CheckCost,
    CheckLayer,
    CheckMoment,
    CheckReport,
    CheckResult,
    HostFacts,
)
from sickbay.faults import Fault
from sickbay.node_conditions import BlindCheck

DRIVER_LAYERS: Final = frozenset({CheckLayer.NVML, CheckLayer.DCGM, CheckLayer.ACTIVE})
"""Layers whose checks open the GPUs' driver."""

SPACING: Final = 0.1
"""Seconds between the first runs of two checks, which also keeps their later ones apart."""

FIRST_PASS_SECONDS: Final = 20.0
"""What the first publishing waits for checks that have not answered yet; they are unknown from then on."""


class Schedule:
    """The checks of one node in one boot. All methods are for one event loop."""

    def __init__(
        self,
        checks: Iterable[Check],
        records: Iterable[CheckRecord],
        moment: CheckMoment,
        now: Callable[[], datetime],
        ran: Callable[[CheckRecord, CheckRecord, CheckRun], None],
    ) -> None:
        """`records` are those of an earlier agent of this boot; `moment` tells the boot and the machine as expected.

        `ran` is called after each run with the check's record before and after it, and the run.
        """
        self.gate = DriverGate()
        self.runners: Mapping[str, CheckRunner] = {check.about.name: CheckRunner(check) for check in checks}
        kept = {record.name: record for record in records}
        self._records = {name: kept.get(name) or CheckRecord(name=name) for name in self.runners}
        self._moment = moment
        self._now = now
        self._ran = ran
        self._waits_until: float | None = None

    @property
    def host(self) -> HostFacts:
        """What kind of machine this is, as far as it is known."""
        return self._moment.host

    @host.setter
    def host(self, host: HostFacts) -> None:
        self._moment = self._moment.model_copy(update={"host": host})

    @property
    def passed(self) -> bool:
        """Whether every check that runs by itself has a fresh answer, or was waited for long enough."""
        if self._waits_until is not None and asyncio.get_running_loop().time() >= self._waits_until:
            return True
        return not any(self._is_awaited(runner.check.about) for runner in self._applying())

    @property
    def records(self) -> tuple[CheckRecord, ...]:
        """What is known of each check, for keeping."""
        return tuple(self._records.values())

    async def run(self) -> None:
        """Run the checks until cancelled."""
        self._waits_until = asyncio.get_running_loop().time() + FIRST_PASS_SECONDS
        async with asyncio.TaskGroup() as loops:
            for place, runner in enumerate(self.runners.values()):
                if runner.check.about.every > timedelta():
                    loops.create_task(self._repeat(runner, place * SPACING), name=f"check {runner.name}")

    async def pass_once(self, depth: ActiveDepth, burn_in: timedelta, expected_gpus: int | None) -> None:
        """Run every check that applies anew; the exclusive ones as far as `depth` says, one after the other.

        One of those that could not judge when it last ran, or that holds a fault open, is asked again, briefly,
        whatever `depth` says: nobody else might, and a repair would count as failed for what it has cured.
        """
        update = {"depth": depth, "burn_in": burn_in, "expected_gpus": expected_gpus}
        moment = self._moment.model_copy(update=update)
        applying = self._applying()
        alone = [runner for runner in applying if runner.check.about.cost is CheckCost.EXCLUSIVE]
        await asyncio.gather(*(self._run(runner, moment) for runner in applying if runner not in alone))
        for runner in alone:
            if depth is not ActiveDepth.NONE:
                await self._run(runner, moment)
            elif self._records[runner.name].bad_runs or self._records[runner.name].held:
                await self._run(runner, moment.model_copy(update={"depth": ActiveDepth.QUICK}))

    async def run_check(self, name: str) -> None:
        """Run one check now, if there is such a one and it applies."""
        runner = self.runners.get(name)
        if runner is not None and runner in self._applying():
            await self._run(runner, self._moment)

    def reset_proven(self, pcis: tuple[str, ...]) -> None:
        """A reset of these GPUs (all, if none is named) is proven: what it cures may go with the next whole run."""
        now = self._now()
        self._records = {name: after_reset(record, pcis, now) for name, record in self._records.items()}

    def applies(self, name: str) -> bool:
        """Whether there is such a check and this machine has what it looks at."""
        return name in self.runners and not self.runners[name].check.applies(self.host)

    def reports(self) -> tuple[CheckReport, ...]:
        """Each check as it stands now."""
        return tuple(self._report(runner) for runner in self.runners.values())

    def faults(self) -> tuple[Fault, ...]:
        """What the checks have found, and their own silence."""
        now = self._now()
        held = [entry for runner in self._applying() for entry in self._report(runner).faults]
        silences = (
            silence_of(self._records[runner.name], runner.check.about, now, self._moment.boot_id)
            for runner in self._applying()
        )
        return (*held, *(fault for fault in silences if fault is not None))

    def blind(self) -> tuple[BlindCheck, ...]:
        """The checks that cannot judge now; one that runs only on idle GPUs is none until it has run once."""
        found = []
        for runner in self._applying():
            report, record = self._report(runner), self._records[runner.name]
            judges = report.result not in (CheckResult.UNKNOWN, CheckResult.STARTING)
            if judges or (record.ran_at is None and self._is_exclusive(runner.name)):
                continue
            since = record.dark_since or record.ran_at
            found.append(BlindCheck(name=report.name, judges=runner.check.about.judges, why=report.why, since=since))
        return tuple(found)

    async def _repeat(self, runner: CheckRunner, delay: float) -> None:
        every = runner.check.about.every.total_seconds()
        exclusive = self._is_exclusive(runner.name)
        depth = ActiveDepth.QUICK if exclusive else ActiveDepth.NONE
        # An agent that has just started leaves the GPUs to whoever was there before it.
        await asyncio.sleep(delay + (every if exclusive else 0.0))
        while True:
            if self.applies(runner.name):
                await self._run(runner, self._moment.model_copy(update={"depth": depth}))
            await asyncio.sleep(every)

    async def _run(self, runner: CheckRunner, moment: CheckMoment) -> None:
        if runner.check.about.layer not in DRIVER_LAYERS:
            return await self._run_now(runner, moment)
        async with self.gate.touching():
            return await self._run_now(runner, moment)

    async def _run_now(self, runner: CheckRunner, moment: CheckMoment) -> None:
        before = self._records[runner.name]
        moment = moment.model_copy(update={"now": self._now(), "memory": before.memory})
        run = await runner.run(moment)
        before = self._records[runner.name]
        after = after_run(before, runner.check.about, run, moment.boot_seen_at)
        self._records[runner.name] = after
        self._ran(before, after, run)

    def _report(self, runner: CheckRunner) -> CheckReport:
        about = runner.check.about
        if why := runner.check.applies(self.host):
            return CheckReport(
                name=about.name, layer=about.layer, result=CheckResult.NOT_APPLICABLE, why=why, at=self._now()
            )
        return report_of(self._records[runner.name], about, self._now())

    def _applying(self) -> list[CheckRunner]:
        return [runner for runner in self.runners.values() if not runner.check.applies(self.host)]

    def _is_exclusive(self, name: str) -> bool:
        return self.runners[name].check.about.cost is CheckCost.EXCLUSIVE

    def _is_awaited(self, about: CheckAbout) -> bool:
        """Whether a check that runs soon has nothing to say yet, or only what an earlier agent knew long ago."""
        ran_at = self._records[about.name].ran_at
        fresh = ran_at is not None and self._now() - ran_at <= about.fresh_for
        return not fresh and about.every > timedelta() and about.cost is not CheckCost.EXCLUSIVE
