"""Stops the host services that hold GPUs open, and starts exactly those again.

Used by `activities.host` around a reset (facts: remediation, 4.2). Pods that hold a GPU are the drain's to move, and
those of the node itself are paused from the controller's queue (`activities.gpu_client_pods`). The services are stopped
one after the other: stopped at once they have hung GPUs.
"""

import shlex
from collections.abc import Iterable
from datetime import timedelta

from health.children import ChildResult, run_child
from health.settings import NodeSettings


class GpuClients:
    """The services of one host, through a command that works as systemctl does."""

    def __init__(self, settings: NodeSettings) -> None:
        self._command = shlex.split(settings.service_command)
        self._units = tuple(settings.gpu_clients.split())
        self._deadline = timedelta(seconds=settings.service_seconds)

    def running(self) -> tuple[str, ...]:
        """Those that run now; none where there is no such command, as in a container without the host's."""
        return tuple(unit for unit in self._units if self._run("is-active", "--quiet", unit).exit_code == 0)

    def stop(self, unit: str) -> str:
        """Stop one. Gives what went wrong, in words; empty if nothing."""
        return self._problem("stop", unit)

    def start(self, units: Iterable[str]) -> tuple[str, ...]:
        """Start them again, the last stopped first. Gives what went wrong, in words."""
        problems = (self._problem("start", unit) for unit in reversed(tuple(units)))
        return tuple(problem for problem in problems if problem)

    def _problem(self, verb: str, unit: str) -> str:
        result = self._run(verb, unit)
        return "" if result.exit_code == 0 else f"cannot {verb} {unit}: {result.words}"

    def _run(self, *words: str) -> ChildResult:
        return run_child([*self._command, *words], self._deadline)
