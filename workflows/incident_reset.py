"""The GPU reset of an incident, with the clients that run as pods out of its way.

Called by `incident_rungs` for that one rung. Host services step aside on the node itself, within the reset activity.
The clients are resumed on every way out of the reset, and once more by the release at the incident's end, should that
have failed.
"""

import asyncio
from collections.abc import Callable
from datetime import datetime

from activities.gpu_client_pods import PauseReport
from activities.host import ResetReport
from sickbay.incident import Intent
from sickbay.nodes import NodeSnapshot
from sickbay.proof import gpus_of
from sickbay.safety import Objection
from workflows.incident_calls import IncidentCalls
from workflows.outside import HostSilentError, OutsideError


class GpuReset:
    """One reset; `note` adds a line to the account, `objection` says what in a look forbids it, if anything."""

    def __init__(
        self, calls: IncidentCalls, note: Callable[[str], None], objection: Callable[[NodeSnapshot], Objection | None]
    ) -> None:
        self._calls = calls
        self._note = note
        self._objection = objection
        self._pause = PauseReport()

    async def act(self, intent: Intent) -> ResetReport:
        """Pause, reset, resume. Raises as the calls do, once the clients are resumed."""
        try:
            report = await self._paused_and_reset(intent)
        except (asyncio.CancelledError, HostSilentError, OutsideError):
            # Not `finally`, which would also run where the workflow only leaves its worker's cache.
            await self._resume()
            raise
        await self._resume()
        return report

    async def restart_latched(self, reset_at: datetime) -> None:
        """Restart what the reset does not wake, once it is proven. A failure is told, and harms no proof."""
        try:
            report = await self._calls.restart_latched_pods(reset_at)
        except OutsideError as failed:
            self._note(f"pods that hold on to what they saw before the reset could not be restarted: {failed}")
            return
        if report.restarted:
            self._note(f"restarted {', '.join(report.restarted)}")
        if report.missing:
            self._note(f"not back after their restart: {', '.join(report.missing)}")

    async def _paused_and_reset(self, intent: Intent) -> ResetReport:
        self._pause = await self._calls.pause_gpu_clients()
        if self._pause.paused:
            self._note(f"GPU clients paused: {', '.join(self._pause.paused)}")
        if self._pause.remaining:
            return ResetReport(reset=False, refused=f"GPU clients stay: {', '.join(self._pause.remaining)}")
        # A pause takes minutes, so the last look before it is none any more (design, 3.4).
        if self._pause.paused and (objection := self._objection(await self._calls.look())):
            return ResetReport(reset=False, refused=objection.reason)
        return await self._calls.reset_gpus(intent, gpus_of(intent))

    async def _resume(self) -> None:
        """Whatever became of the pause: a failed one may have paused some."""
        try:
            report = await self._calls.resume_gpu_clients(self._pause.stopped)
        except OutsideError as failed:
            self._note(f"GPU clients could not be resumed, which is tried again at the end: {failed}")
            return
        if report.resumed:
            self._note(f"GPU clients resumed: {', '.join(report.resumed)}")
        if report.missing:
            self._note(f"GPU clients that are not back yet: {', '.join(report.missing)}")
