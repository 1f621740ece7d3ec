"""The node agent: puts the layers together into the open faults of this node.

Run by `workers.node`; probed by `activities.host`. The kernel log has a loop of its own, which must go on when
everything else hangs; all other checks run by `health.schedule`. What clears a fault is the rule of
`sickbay.open_faults` for the log and of `sickbay.check_record` for the checks; here is only order, memory and time.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Final, Protocol, runtime_checkable

from health.check import Check
from health.heard_events import EventSource, HeardEvents
from health.inventory import Machine, MachineWatch, look_at_machine
from health.kernel_watch import KernelWatch
from health.layers import checks as all_checks
from health.schedule import DRIVER_LAYERS, FIRST_PASS_SECONDS, Schedule
from health.settings import Listening, NodeSettings
from health.state import AgentMemory, AgentState
from health.stuck_children import StuckChildren
from sickbay.check_record import CheckRecord, CheckRun
from sickbay.checks import ActiveDepth, CheckMoment, CheckReport
from sickbay.conditions import FaultsAnnotation
from sickbay.faults import Fault, update_faults
from sickbay.gpu_readings import NvmlAnswer, known_gpus, passes_after_reset, readings
from sickbay.node_conditions import BlindCheck
from sickbay.nodes import HostProbe
from sickbay.open_faults import (
    ResetMark,
    confirmed,
    with_happening,
    with_heard,
    without_answered,
    without_quiet,
    without_reset,
)

NVML: Final = "nvml"
"""Name of the check whose answers also name the GPUs and prove resets."""

_LOOK_SECONDS: Final = 120.0
"""Between two looks at what the machine has; each costs a process start."""


@runtime_checkable
class GpuCheck(Check, Protocol):
    """The check `nvml`, which tells more than an outcome."""

    @property
    def last_answer(self) -> NvmlAnswer | None:
        """What NVML answered in the last run; None before the first."""
        ...


def _now() -> datetime:
    return datetime.now(UTC)


def _checks(settings: NodeSettings) -> Iterable[Check]:
    """The checks of every layer, and the one that only the agent has."""
    layers = all_checks(settings)
    return (*layers, StuckChildren(check.about.name for check in layers if check.about.layer in DRIVER_LAYERS))


class NodeAgent:
    """The health of one node in one boot. All methods are for one event loop."""

    def __init__(
        self,
        settings: NodeSettings,
        checks: Iterable[Check] | None = None,
        now: Callable[[], datetime] = _now,
        look: Callable[[NodeSettings], Machine] = look_at_machine,
        events: EventSource | None = None,
    ) -> None:
        """`events` are NVML's, for when they are wanted; `checks`, `now` and `look` are given by tests.

        Raises OSError if the boot id cannot be read.
        """
        self._settings = settings
        self._now = now
        self._machine = MachineWatch(settings, look)
        self._heard = None if events is None else HeardEvents(events)
        self._hands_off = False
        self._memory = AgentMemory(settings.state_dir, settings.boot_id(), now)
        self._log = KernelWatch(settings, self._state, now)
        chosen = tuple(_checks(settings) if checks is None else checks)
        self._gpu_check = next((check for check in chosen if isinstance(check, GpuCheck)), None)
        moment = CheckMoment(
            now=now(),
            boot_id=self.boot_id,
            boot_seen_at=self._state.boot_seen_at,
            expected_gpus=settings.expected_gpus,
        )
        self.schedule = Schedule(chosen, self._state.checks, moment, now, self._ran)
        self._answer: NvmlAnswer | None = None
        self.changed = asyncio.Event()
        """Set when the report may have changed; whoever publishes it clears it."""

    @property
    def _state(self) -> AgentState:
        return self._memory.state

    @property
    def boot_id(self) -> str:
        """The boot that this agent watches."""
        return self._state.boot_id

    @property
    def passed(self) -> bool:
        """Whether each layer has been looked at once since the start; before that nothing is published."""
        return self.schedule.passed and (self._log.missing_since is None or self._log.silent)

    @property
    def gpu_answer(self) -> NvmlAnswer | None:
        """What NVML told in its last run; None if that run had no answer."""
        return self._answer

    async def run(self) -> None:
        """Watch until cancelled."""
        self._log.start()
        try:
            async with asyncio.TaskGroup() as loops:
                loops.create_task(self._watch_kernel_log(), name="kernel log")
                loops.create_task(self._read_beginning(), name="beginning of the boot")
                await self._look_at_machine()
                loops.create_task(self.schedule.run(), name="checks")
                loops.create_task(self._watch_machine(), name="machine")
                await asyncio.sleep(FIRST_PASS_SECONDS)
                self.changed.set()
        finally:
            await self._listen(hands_off=True)
            await asyncio.to_thread(self._log.stop)

    def report(self) -> FaultsAnnotation:
        """The open faults now, for publishing."""
        return FaultsAnnotation(
            boot_id=self.boot_id,
            reported_at=self._now(),
            faults=self._faults(),
            checks_unknown=tuple(check.name for check in self.blind()),
            expected_gpus=self._settings.expected_gpus,
            inventory=self._machine.inventory(),
            boot_seen_at=self._state.boot_seen_at,
        )

    def blind(self) -> tuple[BlindCheck, ...]:
        """The checks that cannot judge now, with what that leaves open."""
        log = self._log.blind()
        return (*((log,) if log else ()), *self.schedule.blind())

    def check_reports(self) -> tuple[CheckReport, ...]:
        """Every check as it stands, the kernel log first."""
        logged = tuple(entry.fault for entry in self._state.open_faults)
        return (self._log.report(logged), *self.schedule.reports())

    async def probe(
        self,
        expected_gpus: int | None = None,
        depth: ActiveDepth = ActiveDepth.NONE,
        burn_in: timedelta = timedelta(minutes=3),
    ) -> HostProbe:
        """One full pass of all layers, now; on idle GPUs as far as `depth` says, loading them for `burn_in`.

        Takes at most the deadlines of the layers.
        """
        wanted = expected_gpus if expected_gpus is not None else self._settings.expected_gpus
        await self._read_kernel_log(to_end=True)
        await self._look_at_machine()
        await self.schedule.pass_once(depth, burn_in, wanted)
        answer = self._answer
        if answer is None:
            answer = NvmlAnswer(silent="not asked") if self.schedule.applies(NVML) else NvmlAnswer(count=0)
        return HostProbe(
            observed_at=self._now(),
            boot_id=self.boot_id,
            gpus=readings(answer),
            gpus_answered=answer.whole,
            expected_gpus=wanted,
            faults=self._faults(),
            checks_unknown=tuple(check.name for check in self.blind()),
            checks=self.check_reports(),
        )

    @asynccontextmanager
    async def driver_untouched(self) -> AsyncIterator[None]:
        """Keep the agent's own hands off the GPUs, which a reset needs."""
        async with self.schedule.gate.untouched():
            await self._listen(hands_off=True)
            try:
                yield
            finally:
                await self._listen(hands_off=False)

    async def note_reset(self, pcis: tuple[str, ...]) -> None:
        """These GPUs were reset just now: what was seen before counts no more, once a full pass is clean."""
        await self._read_kernel_log(to_end=True)
        mark = ResetMark(pcis=pcis, sequence=self._log.sequence)
        self._keep(self._state.model_copy(update={"unproven_resets": (*self._state.unproven_resets, mark)}))
        await self.schedule.run_check(NVML)

    async def _watch_kernel_log(self) -> None:
        while True:
            await self._read_kernel_log()
            await asyncio.sleep(self._settings.kernel_log_seconds)

    async def _read_beginning(self) -> None:
        """What the log showed before its first record that is left is not forgotten for having been overwritten."""
        await self._log.begun.wait()
        heard = await self._log.beginning()
        open_faults = with_heard(self._state.open_faults, heard, self._log.sequence, self._now())
        self._keep(self._state.model_copy(update={"open_faults": open_faults}), durable=bool(heard))

    async def _watch_machine(self) -> None:
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            await self._look_at_machine(again=True)

    async def _look_at_machine(self, *, again: bool = False) -> None:
        """Learn what kind of machine this is; which checks apply follows from it."""
        await self._machine.look(again=again)
        self.schedule.host = self._machine.host

    async def _listen(self, *, hands_off: bool | None = None) -> None:
        """Listen to NVML's events while they are wanted, and never with `hands_off`: it holds the GPUs open."""
        if self._heard is None:
            return
        if hands_off is not None:
            self._hands_off = hands_off
        when = self._settings.nvml_events
        wanted = when is Listening.ALWAYS or (when is Listening.WHEN_LOG_SILENT and self._log.silent)
        await self._heard.listen(wanted and not self._hands_off and self.schedule.applies(NVML))

    async def _read_kernel_log(self, *, to_end: bool = False) -> None:
        was_missing = self._log.missing_since is not None
        happening = await self._log.read(to_end=to_end)
        if was_missing and self._log.missing_since is None:
            self.changed.set()
        await self._listen()
        before = self._state.open_faults
        heard = () if self._heard is None else self._heard.take()
        open_faults = with_heard(with_happening(before, happening), heard, happening.sequence, self._now())
        open_faults = without_quiet(open_faults, self._now(), timedelta(seconds=self._settings.quiet_seconds))
        state = self._state.model_copy(update={"sequence": happening.sequence, "open_faults": open_faults})
        # An older number on the disk goes with the older faults there: a restart then sees the rest happen again.
        self._keep(state, durable=open_faults != before)

    def _ran(self, before: CheckRecord, after: CheckRecord, run: CheckRun) -> None:
        """A check has run: keep what it showed, and tell what is new."""
        if after.name == NVML and self._gpu_check is not None:
            self._take_answer(self._gpu_check.last_answer if run.answered else None)
        self._keep(self._state, durable=after.essence() != before.essence() or self._memory.is_old)
        self.changed.set()

    def _take_answer(self, answer: NvmlAnswer | None) -> None:
        """What NVML said names GPUs, proves resets, and takes back what the log said of recovery actions."""
        self._answer = answer
        self._machine.hear(answer)
        self.schedule.host = self._machine.host
        if answer is None:
            return
        known = known_gpus(answer, self._state.known_gpus)
        at_peace = [gpu.pci for gpu in readings(answer) if gpu.recovery_action == "none"]
        marks = self._state.unproven_resets
        # No pass runs during a reset, so one that is clean after the mark was set proves the reset.
        proven = [mark for mark in marks if passes_after_reset(answer, mark.pcis, known)]
        for mark in proven:
            self.schedule.reset_proven(mark.pcis)
        update = {
            "known_gpus": known,
            "open_faults": without_reset(without_answered(self._state.open_faults, at_peace), proven),
            "unproven_resets": tuple(mark for mark in marks if mark not in proven),
        }
        self._keep(self._state.model_copy(update=update))

    def _keep(self, state: AgentState, *, durable: bool = True) -> None:
        if state.open_faults != self._state.open_faults:
            self.changed.set()
        self._memory.keep(state.model_copy(update={"checks": self.schedule.records}), durable=durable)

    def _faults(self) -> tuple[Fault, ...]:
        logged = (entry.fault for entry in self._state.open_faults)
        silence = self._log.silence()
        read = (*self.schedule.faults(), *((silence,) if silence else ()))
        # One thing seen by two sources is one fault, whose counts do not add up.
        return update_faults(confirmed(logged, read), read)
