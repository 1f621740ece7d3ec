"""The kernel log as the agent follows it: what happened since the last look, and since when it cannot be read.

Used by the agent. Reading is `health.kernel_log`, memory over restarts is `health.kernel_faults`; which faults are
still open is the rule of `sickbay.open_faults`.
"""

import asyncio
import shlex
from collections.abc import Callable
from datetime import datetime
from typing import Final

from health.boot_journal import earlier_lines
from health.kernel_faults import KernelFaults
from health.kernel_log import KernelLogReader, Taken
from health.kernel_log_check import ABOUT_KERNEL_LOG
from health.settings import NodeSettings
from health.state import AgentState
from sickbay.catalogue import fault_of
from sickbay.checks import CheckReport, judged
from sickbay.faults import Component, ComponentKind, Fault
from sickbay.kernel_log import scan
from sickbay.node_conditions import CHECK_KERNEL_LOG, BlindCheck
from sickbay.open_faults import Happening

CATCH_UP_SECONDS: Final = 10.0
"""How long a probe waits until the log is read to its end; a whole ring takes less than a second."""

SILENT_LOG_SECONDS: Final = 30.0
"""After this long without the log its silence is a fault."""


class KernelWatch:
    """The kernel log of one boot. All methods are for one event loop."""

    def __init__(self, settings: NodeSettings, state: AgentState, now: Callable[[], datetime]) -> None:
        """`state` is what an earlier agent of this boot remembered."""
        self._reader = KernelLogReader(
            settings.kmsg_path, settings.kernel_log_rate, trust_user_records=settings.trust_user_records
        )
        self._faults = KernelFaults(state.boot_id, state.sequence, (entry.fault for entry in state.open_faults))
        self._journal = shlex.split(settings.journal_command)
        self._boot_id = state.boot_id
        self._now = now
        self._reading = asyncio.Lock()
        self.missing_since: datetime | None = now()
        """Since when the log cannot be read, or has not been; None while it can."""
        self.problem = "not read yet"
        """Why, in words."""
        self.begun = asyncio.Event()
        """Set once a record was read."""

    @property
    def sequence(self) -> int:
        """Number of the last record that was read."""
        return self._faults.sequence

    @property
    def silent(self) -> bool:
        """Whether the log has been missing for so long that it is a fault."""
        since = self.missing_since
        return since is not None and (self._now() - since).total_seconds() > SILENT_LOG_SECONDS

    def start(self) -> None:
        """Begin reading."""
        self._reader.start()
        # What a busy machine needs to start us is no silence of the log.
        self.missing_since = self._now()

    def stop(self) -> None:
        """End reading. Blocking, for two seconds at most."""
        self._reader.stop()

    async def read(self, *, to_end: bool = False) -> Happening:
        """What happened since the last look; up to this moment if `to_end`, for which it may wait."""
        async with self._reading:
            taken = await self._take(to_end)
            if taken.problem:
                self.missing_since = self.missing_since or self._now()
                self.problem = taken.problem
            elif taken.caught_up or taken.records:
                self.missing_since = None
            if not taken.records:
                # The usual case, twice a second for ever: no thread for nothing.
                return Happening(sequence=self.sequence, at=self._now())
            happening = await asyncio.to_thread(self._faults.observe, taken.records, self._now())
            self.begun.set()
            return happening

    async def beginning(self) -> tuple[Fault, ...]:
        """What happened in this boot before the ring's first record, once that was read: nothing if none is missing.

        By the journal; if it gives nothing, the gap is told. To be asked once; it may take as long as journalctl.
        """
        first = self._faults.began
        if first is None or first.sequence == 0:
            return ()
        lines = await asyncio.to_thread(earlier_lines, self._journal, first.seconds)
        if lines is not None:
            return scan(lines, self._boot_id)
        gap = fault_of(
            "kernel-log-gap",
            Component(kind=ComponentKind.MONITOR, id=CHECK_KERNEL_LOG),
            seen=self._now(),
            boot_id=self._boot_id,
            evidence=("the first records of this boot were overwritten, and the journal does not give them",),
        )
        return (gap.model_copy(update={"count": first.sequence}),)

    def silence(self) -> Fault | None:
        """The fault of a log that is silent."""
        if not self.silent:
            return None
        monitor = Component(kind=ComponentKind.MONITOR, id=CHECK_KERNEL_LOG)
        return fault_of(
            "kernel-log-silent",
            monitor,
            seen=self.missing_since,
            boot_id=self._boot_id,
            evidence=("the kernel log cannot be read",),
        )

    def blind(self) -> BlindCheck | None:
        """What is left open while the log cannot be read; None while it can."""
        if self.missing_since is None:
            return None
        judges = ABOUT_KERNEL_LOG.judges
        return BlindCheck(name=CHECK_KERNEL_LOG, judges=judges, why=self.problem, since=self.missing_since)

    def report(self, faults: tuple[Fault, ...]) -> CheckReport:
        """The log as one check among the others, with the faults that it has open."""
        outcome = judged(faults, self.problem if self.missing_since else "")
        return CheckReport(
            name=CHECK_KERNEL_LOG,
            layer=ABOUT_KERNEL_LOG.layer,
            result=outcome.result,
            why=outcome.why,
            at=self._now(),
            faults=faults,
        )

    async def _take(self, to_end: bool) -> Taken:
        if to_end:
            return await asyncio.to_thread(self._reader.take_all, CATCH_UP_SECONDS)
        return self._reader.take()
