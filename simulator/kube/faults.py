"""Trouble on order: what tests and scenarios use to make the API server behave as bad days do.

Held by the server, which asks it about each request; ordered through Python or through POST on `/simulator/faults`,
whose body is a `FaultOrder`. An answer can also be lost after the work is done, which is how repeated steps are tested.
"""

import asyncio
import re
from dataclasses import dataclass
from enum import StrEnum

from pydantic import Field

from sickbay.model import Frozen
from simulator.kube import errors

PATH = "/simulator/faults"


class RequestFault(Frozen):
    """What goes wrong with matching requests, the next `times` of them."""

    method: str = ""
    """HTTP method; every one if empty."""
    path: str = ""
    """Regular expression found anywhere in the path, e.g. `/pods/.*/eviction$`; every path if empty."""
    times: int = Field(default=1, ge=1)
    latency: float = Field(default=0.0, ge=0)
    """Real seconds by which the request is delayed."""
    status: int | None = Field(default=None, ge=400, le=599)
    """HTTP code of the refusal; only delayed if None. A 429 comes without a cause, as from overload protection."""
    retry_after: int | None = None
    """Seconds in the Retry-After header of the refusal."""
    after_work: bool = False
    """The request takes effect first, and only its answer is lost."""


class Trouble(StrEnum):
    """What can be ordered."""

    FAIL_REQUESTS = "fail_requests"
    DROP_WATCHES = "drop_watches"
    COMPACT = "compact"
    RESTART = "restart"
    CLEAR = "clear"


class FaultOrder(Frozen):
    """One order."""

    trouble: Trouble
    request: RequestFault = RequestFault()
    """For `fail_requests`."""
    down: float = Field(default=0.0, ge=0)
    """For `restart`: real seconds without a listening server."""


_REASONS = {429: "TooManyRequests", 500: "InternalError", 503: "ServiceUnavailable", 504: "Timeout"}


@dataclass
class _Active:
    rule: RequestFault
    left: int


class Faults:
    """The request faults that are in force."""

    def __init__(self) -> None:
        self._active: list[_Active] = []

    def add(self, rule: RequestFault) -> None:
        """Let the next matching requests fail."""
        self._active.append(_Active(rule, rule.times))

    def clear(self) -> None:
        """Let everything pass again."""
        self._active.clear()

    def take(self, method: str, path: str) -> RequestFault | None:
        """The fault that hits this request, which uses it up once."""
        for active in self._active:
            rule = active.rule
            if rule.method.upper() in ("", method) and re.search(rule.path, path):
                active.left -= 1
                if not active.left:
                    self._active.remove(active)
                return rule
        return None


async def suffer(rule: RequestFault | None, *, work_done: bool) -> None:
    """Delay and refuse as the rule says, if it is due at this point. Raises `ApiError`."""
    if rule is None or rule.after_work != work_done:
        return
    await asyncio.sleep(rule.latency)
    if rule.status is not None:
        reason = _REASONS.get(rule.status, "InternalError")
        raise errors.ApiError(rule.status, reason, "fault ordered of the simulator", retry_after=rule.retry_after)
