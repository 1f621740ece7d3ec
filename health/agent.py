"""The node agent: puts the layers together into the open faults of this node.

Run by `workers.node`; probed by `activities.host`. Two loops that cannot hold each other up: the kernel log, which must
go on when the driver hangs, and NVML. What clears a fault, and what an answer of NVML means, are rules of
`sickbay.open_faults` and `sickbay.gpu_readings`; here is only order, memory and time.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Final

from health.kernel_faults import KernelFaults
from health.kernel_log import KernelLogReader, Taken
from health.nvml import ask_nvml
from health.settings import NodeSettings
from health.state import AgentState, StateFile
from sickbay.catalogue import fault_of
from sickbay.conditions import FaultsAnnotation
from sickbay.faults import Component, ComponentKind, Fault, merge_faults
from sickbay.gpu_readings import (
    Expectation,
    NvmlAnswer,
    gpu_faults,
    known_gpus,
    passes_after_reset,
    readings,
    unknown_checks,
)
from sickbay.node_conditions import CHECK_KERNEL_LOG
from sickbay.nodes import HostProbe
from sickbay.open_faults import ResetMark, confirmed, with_happening, without_answered, without_quiet, without_reset

_log = logging.getLogger(__name__)

AskNvml = Callable[[timedelta, str], NvmlAnswer]

_CATCH_UP_SECONDS: Final = 10.0
"""How long a probe waits until the kernel log is read to its end; a whole ring takes less than a second."""

_SILENT_LOG_SECONDS: Final = 30.0
"""After this long without the kernel log its silence is a fault."""


def _now() -> datetime:
    return datetime.now(UTC)


class NodeAgent:
    """The health of one node in one boot. All methods are for one event loop."""

    def __init__(self, settings: NodeSettings, ask: AskNvml = ask_nvml, now: Callable[[], datetime] = _now) -> None:
        """`ask` and `now` are given by tests. Raises OSError if the boot id cannot be read."""
        self._settings = settings
        self._ask = ask
        self._now = now
        self._file = StateFile(settings.state_dir / "agent.json", AgentState)
        self._state = self._state_of_boot(settings.boot_id())
        self._reader = KernelLogReader(
            settings.kmsg_path, settings.kernel_log_rate, trust_user_records=settings.trust_user_records
        )
        remembered = (entry.fault for entry in self._state.open_faults)
        self._kernel = KernelFaults(self._state.boot_id, self._state.sequence, remembered)
        self._answer: NvmlAnswer | None = None
        self._misses = 0
        self._log_missing_since: datetime | None = now()
        self._reading = asyncio.Lock()
        self._driver = asyncio.Lock()
        self.changed = asyncio.Event()
        """Set when the report may have changed; whoever publishes it clears it."""

    @property
    def boot_id(self) -> str:
        """The boot that this agent watches."""
        return self._state.boot_id

    @property
    def expected_gpus(self) -> int | None:
        """GPUs of a healthy machine, as far as it is known."""
        return self._settings.expected_gpus

    @property
    def passed(self) -> bool:
        """Whether each layer has been looked at once since the start; before that nothing is published."""
        return self._answer is not None and (self._log_missing_since is None or self._log_is_silent())

    async def run(self) -> None:
        """Watch until cancelled."""
        self._reader.start()
        # What a busy machine needs to start us is no silence of the log.
        self._log_missing_since = self._now()
        try:
            async with asyncio.TaskGroup() as loops:
                loops.create_task(self._watch_kernel_log(), name="kernel log")
                loops.create_task(self._watch_gpus(), name="nvml")
        finally:
            await asyncio.to_thread(self._reader.stop)

    def report(self) -> FaultsAnnotation:
        """The open faults now, for publishing."""
        return FaultsAnnotation(
            boot_id=self.boot_id,
            reported_at=self._now(),
            faults=self._faults(),
            checks_unknown=self._checks_unknown(),
            expected_gpus=self._settings.expected_gpus,
        )

    async def probe(self, expected_gpus: int | None = None) -> HostProbe:
        """One full pass of all layers, now. Takes at most the deadlines of the layers."""
        await self._read_kernel_log(to_end=True)
        await self._ask_gpus()
        answer = self._answer or NvmlAnswer(silent="not asked yet")
        wanted = expected_gpus if expected_gpus is not None else self._settings.expected_gpus
        return HostProbe(
            observed_at=self._now(),
            boot_id=self.boot_id,
            gpus=readings(answer),
            gpus_answered=answer.whole,
            expected_gpus=wanted,
            faults=self._faults(wanted),
            checks_unknown=self._checks_unknown(),
        )

    @asynccontextmanager
    async def driver_untouched(self) -> AsyncIterator[None]:
        """Keep the agent's own hands off the GPUs, which a reset needs."""
        async with self._driver:
            yield

    async def note_reset(self, pcis: tuple[str, ...]) -> None:
        """These GPUs were reset just now: what the log showed before counts no more, once a full pass is clean."""
        await self._read_kernel_log(to_end=True)
        mark = ResetMark(pcis=pcis, sequence=self._kernel.sequence)
        self._keep(self._state.model_copy(update={"unproven_resets": (*self._state.unproven_resets, mark)}))
        await self._ask_gpus()

    async def _watch_kernel_log(self) -> None:
        while True:
            await self._read_kernel_log()
            await asyncio.sleep(self._settings.kernel_log_seconds)

    async def _watch_gpus(self) -> None:
        while True:
            await self._ask_gpus()
            await asyncio.sleep(self._settings.probe_seconds)

    async def _read_kernel_log(self, *, to_end: bool = False) -> None:
        async with self._reading:
            taken = await self._take(to_end)
            if taken.problem:
                self._log_missing_since = self._log_missing_since or self._now()
            elif self._log_missing_since and (taken.caught_up or taken.records):
                self._log_missing_since = None
                self.changed.set()
            happening = await asyncio.to_thread(self._kernel.observe, taken.records, self._now())
            before = self._state.open_faults
            open_faults = with_happening(before, happening)
            open_faults = without_quiet(open_faults, self._now(), timedelta(seconds=self._settings.quiet_seconds))
            state = self._state.model_copy(update={"sequence": happening.sequence, "open_faults": open_faults})
            # An older number on the disk goes with the older faults there: a restart then sees the rest happen again.
            self._keep(state, durable=open_faults != before)

    async def _take(self, to_end: bool) -> Taken:
        if to_end:
            return await asyncio.to_thread(self._reader.take_all, _CATCH_UP_SECONDS)
        return self._reader.take()

    async def _ask_gpus(self) -> None:
        async with self._driver:
            answer = await asyncio.to_thread(self._ask_once)
        self._answer = answer
        self._misses = 0 if answer.whole and not self._short_of_gpus(answer) else self._misses + 1
        known = known_gpus(answer, self._state.known_gpus)
        at_peace = [gpu.pci for gpu in readings(answer) if gpu.recovery_action == "none"]
        marks = self._state.unproven_resets
        # No pass runs during a reset, so one that is clean after the mark was set proves the reset.
        proven = [mark for mark in marks if passes_after_reset(answer, mark.pcis, known)]
        update = {
            "known_gpus": known,
            "open_faults": without_reset(without_answered(self._state.open_faults, at_peace), proven),
            "unproven_resets": tuple(mark for mark in marks if mark not in proven),
        }
        self._keep(self._state.model_copy(update=update))
        self.changed.set()

    def _ask_once(self) -> NvmlAnswer:
        if self._settings.expected_gpus == 0:
            return NvmlAnswer(count=0)
        return self._ask(timedelta(seconds=self._settings.nvml_seconds), self._settings.nvml_library)

    def _keep(self, state: AgentState, *, durable: bool = True) -> None:
        if state.open_faults != self._state.open_faults:
            self.changed.set()
        self._state = state
        if not durable:
            return
        try:
            self._file.store(state)
        except OSError as error:
            # Without its memory the agent only reads more after a restart; it must not stop watching for that.
            _log.warning("cannot keep the agent's state in %s: %s", self._settings.state_dir, error.strerror)

    def _state_of_boot(self, boot_id: str) -> AgentState:
        stored = self._file.load()
        if stored is not None and stored.boot_id == boot_id:
            return stored
        return AgentState(boot_id=boot_id, boot_seen_at=self._now())

    def _faults(self, expected_gpus: int | None = None) -> tuple[Fault, ...]:
        logged = (entry.fault for entry in self._state.open_faults)
        read = (*self._faults_of_gpus(expected_gpus), *self._faults_of_monitors())
        return merge_faults(confirmed(logged, read), read)

    def _faults_of_gpus(self, expected_gpus: int | None) -> tuple[Fault, ...]:
        if self._answer is None:
            return ()
        count = self._settings.expected_gpus if expected_gpus is None else expected_gpus
        found = gpu_faults(self._answer, self._expectation(count))
        certain = self._misses >= self._settings.nvml_misses
        return tuple(fault for fault in found if certain or fault.code != "gpu-missing")

    def _faults_of_monitors(self) -> tuple[Fault, ...]:
        found = []
        if self._log_is_silent():
            found.append(self._monitor_fault("kernel-log-silent", CHECK_KERNEL_LOG, "the kernel log cannot be read"))
        answer = self._answer
        if answer is not None and answer.starting:
            if not self._still_starting():
                found.append(self._monitor_fault("driver-not-loaded", "nvml", "NVML finds no driver"))
        elif answer is not None and not answer.whole and self._misses >= self._settings.nvml_misses:
            words = answer.silent or f"NVML refuses with error {answer.failed}"
            found.append(self._monitor_fault("nvml-silent", "nvml", words))
        return tuple(found)

    def _monitor_fault(self, code: str, monitor: str, evidence: str) -> Fault:
        component = Component(kind=ComponentKind.MONITOR, id=monitor)
        return fault_of(code, component, seen=self._now(), boot_id=self.boot_id, evidence=(evidence,))

    def _checks_unknown(self) -> tuple[str, ...]:
        answer = self._answer or NvmlAnswer(silent="not asked yet")
        unknown = unknown_checks(answer) or (("nvml",) if 0 < self._misses < self._settings.nvml_misses else ())
        return (*((CHECK_KERNEL_LOG,) if self._log_missing_since else ()), *unknown)

    def _expectation(self, count: int | None) -> Expectation:
        return Expectation(boot_id=self.boot_id, seen=self._now(), count=count, known=self._state.known_gpus)

    def _short_of_gpus(self, answer: NvmlAnswer) -> bool:
        expected = self._expectation(self._settings.expected_gpus)
        return any(fault.code == "gpu-missing" for fault in gpu_faults(answer, expected))

    def _still_starting(self) -> bool:
        return self._now() - self._state.boot_seen_at < timedelta(seconds=self._settings.starting_seconds)

    def _log_is_silent(self) -> bool:
        since = self._log_missing_since
        return since is not None and self._now() - since > timedelta(seconds=_SILENT_LOG_SECONDS)
