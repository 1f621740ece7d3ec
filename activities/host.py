"""What the node's own worker does on its host, from the queue `sickbay.names.node_queue`.

Called by the incident workflow. Each activity looks first (the boot, the ledger), acts once and reports; whether a
reset helped or a reboot happened is for the workflow to prove. A refusal is a result, not an error: the next rung is
due. Nothing here waits for the host to come back: that is the controller's.
"""

import asyncio
import contextlib
import shlex
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypeVar

from temporalio import activity

from activities.gpu_clients import GpuClients
from activities.gpu_reset import reset
from activities.host_ledger import Entry, HostAct, HostLedger
from health.agent import NodeAgent
from health.children import run_child
from health.settings import NodeSettings
from sickbay.checks import ActiveDepth
from sickbay.model import Frozen
from sickbay.nodes import HostProbe

T = TypeVar("T")

_HEARTBEAT_SECONDS: Final = 2.0
_REBOOT_COMMAND_SECONDS: Final = 30.0
"""For the command to take the order; the reboot itself follows."""


class ProbeRequest(Frozen):
    """One full pass of the layers, scanning the kernel log of the whole boot."""

    incident_id: str
    expected_gpus: int | None = None
    depth: ActiveDepth = ActiveDepth.NONE
    """How far to go with active checks on idle GPUs."""
    burn_in: timedelta = timedelta(minutes=3)
    """How long a burn-in may load the GPUs."""


class ResetRequest(Frozen):
    """Reset GPUs, with their clients stopped before and restored after."""

    incident_id: str
    attempt: int
    boot_id: str
    """Refused on another boot: somebody rebooted the node since the intent was recorded."""
    pcis: tuple[str, ...] = ()
    """GPUs to reset, e.g. `0000:61:00`; all of them if empty."""
    decided_at: datetime | None = None
    """When the intent was recorded; see `host_ledger.Entry`."""


class ResetReport(Frozen):
    """What came of it."""

    reset: bool
    already: bool = False
    """An earlier try of this incident and attempt had done it."""
    refused: str = ""
    """Why the reset could not be done here, in words (in use, not supported, driver hangs): the next rung is due."""
    clients_stopped: tuple[str, ...] = ()


class RebootRequest(Frozen):
    """Ask the host to reboot. The controller's worker waits for the proof."""

    incident_id: str
    attempt: int
    boot_id: str
    decided_at: datetime | None = None
    """When the intent was recorded; see `host_ledger.Entry`."""


class RebootReport(Frozen):
    """What came of it."""

    requested: bool
    already: bool = False
    """The host runs another boot by now, or this attempt was already asked for."""
    refused: str = ""


class HostActivities:
    """The activities of one host, beside its agent."""

    def __init__(
        self, settings: NodeSettings, agent: NodeAgent, now: Callable[[], datetime] = lambda: datetime.now(UTC)
    ) -> None:
        """`now` is given by tests."""
        self._settings = settings
        self._agent = agent
        self._now = now
        self._ledger = HostLedger(settings.state_dir)
        self._clients = GpuClients(settings)
        self._acting = asyncio.Lock()

    @activity.defn
    async def probe_host(self, request: ProbeRequest) -> HostProbe:
        """One full pass of all layers, now."""
        return await _with_heartbeats(self._agent.probe(request.expected_gpus, request.depth, request.burn_in))

    @activity.defn
    async def reset_gpus(self, request: ResetRequest) -> ResetReport:
        """Reset GPUs with their clients stopped; clients run again afterwards, however it ends."""
        return await _with_heartbeats(self._reset(request))

    @activity.defn
    async def reboot_host(self, request: RebootRequest) -> RebootReport:
        """Ask the host to reboot, once per incident and attempt, and return at once."""
        return await _with_heartbeats(self._reboot(request))

    async def restore_clients(self) -> tuple[str, ...]:
        """Start what an agent that died in the middle of a reset left stopped. Gives what went wrong, in words.

        For the start of the process. The reset itself is left undone: its activity is tried again.
        """
        problems: list[str] = []
        for entry in self._ledger.unfinished_resets():
            problems += await asyncio.to_thread(self._clients.start, entry.clients_stopped)
            self._ledger.strike(entry)
        return tuple(problems)

    async def _reset(self, request: ResetRequest) -> ResetReport:
        async with self._acting:
            if self._settings.boot_id() != request.boot_id:
                return ResetReport(reset=False, refused="the host was rebooted since the reset was decided")
            entry = self._entry(HostAct.RESET, request)
            before = self._ledger.find(entry)
            if before is not None and before.done:
                return ResetReport(reset=True, already=True, clients_stopped=before.clients_stopped)
            return await self._reset_once(entry, request.pcis)

    async def _reset_once(self, entry: Entry, pcis: tuple[str, ...]) -> ResetReport:
        async with self._agent.driver_untouched():
            running = await asyncio.to_thread(self._clients.running)
            entry = entry.model_copy(update={"clients_stopped": running})
            self._ledger.write(entry)
            try:
                refused = await asyncio.to_thread(self._stop_and_reset, running, pcis)
            finally:
                problems = await asyncio.to_thread(self._clients.start, running)
        if refused:
            self._ledger.strike(entry)
            return ResetReport(reset=False, refused="; ".join((refused, *problems)), clients_stopped=running)
        self._ledger.write(entry.model_copy(update={"done": True}))
        await self._agent.note_reset(pcis)
        for problem in problems:
            activity.logger.warning("after the reset: %s", problem)
        return ResetReport(reset=True, clients_stopped=running)

    def _stop_and_reset(self, clients: tuple[str, ...], pcis: tuple[str, ...]) -> str:
        for client in clients:
            if problem := self._clients.stop(client):
                return problem
        return reset(self._settings.nvidia_smi, pcis, timedelta(seconds=self._settings.reset_seconds))

    async def _reboot(self, request: RebootRequest) -> RebootReport:
        async with self._acting:
            if self._settings.boot_id() != request.boot_id:
                return RebootReport(requested=False, already=True)
            entry = self._entry(HostAct.REBOOT, request)
            if self._ledger.find(entry) is not None:
                return RebootReport(requested=False, already=True)
            self._ledger.write(entry)
            words = shlex.split(self._settings.reboot_command)
            result = await asyncio.to_thread(run_child, words, timedelta(seconds=_REBOOT_COMMAND_SECONDS))
            if result.exit_code == 0 or result.timed_out:
                # Without an answer in time the order may have been taken; the missing proof would tell.
                return RebootReport(requested=True)
            self._ledger.strike(entry)
            return RebootReport(requested=False, refused=f"the host refused to reboot: {result.words}")

    def _entry(self, act: HostAct, request: ResetRequest | RebootRequest) -> Entry:
        return Entry(
            act=act,
            incident_id=request.incident_id,
            attempt=request.attempt,
            boot_id=request.boot_id,
            asked_at=self._now(),
            decided_at=request.decided_at,
        )


async def _with_heartbeats(work: Coroutine[Any, Any, T]) -> T:
    """Do bounded work to its end while telling Temporal that we live. A cancellation is obeyed after the work: a reset
    that is broken off would leave clients stopped and a GPU in between."""
    task = asyncio.ensure_future(work)
    while not task.done():
        with contextlib.suppress(TimeoutError):
            try:
                await asyncio.wait_for(asyncio.shield(task), _HEARTBEAT_SECONDS)
            except asyncio.CancelledError:
                await task
                raise
        if activity.in_activity():
            activity.heartbeat()
    return task.result()
