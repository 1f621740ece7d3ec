"""What an activity's end means to an incident, and what every call of one incident needs.

Used by the modules of an incident's calls. It turns what Temporal raises into the two things that matter here: the
node's own worker is silent (`HostSilentError`), or the outside refused or failed (`OutsideError`).
"""

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

from temporalio.exceptions import ActivityError, ApplicationError, TimeoutType, is_cancelled_exception
from temporalio.exceptions import TimeoutError as ActivityTimeoutError

from sickbay.nodes import NodeRef
from sickbay.policy.model import IncidentPolicy

T = TypeVar("T")


class HostSilentError(Exception):
    """Nobody serves the node's queue, or its worker fell silent over the activity, which it then `took`."""

    def __init__(self, message: str, *, took: bool) -> None:
        super().__init__(message)
        self.took = took


class OutsideError(Exception):
    """An activity failed for good; `final` if the outside refused, so that no later try can help."""

    def __init__(self, message: str, *, final: bool) -> None:
        super().__init__(message)
        self.final = final


class Outside:
    """The world outside of one incident, as far as its calls go."""

    def __init__(self, incident_id: str, node: NodeRef, policy: IncidentPolicy) -> None:
        self._incident_id = incident_id
        self._node = node
        self._policy = policy


async def told(call: Awaitable[T]) -> T:
    """The call's result, its failure told in the words of this module.

    Raises asyncio.CancelledError where the incident is cancelled, in the middle of a call as between two.
    """
    try:
        return await call
    except ActivityError as error:
        if is_cancelled_exception(error):
            raise asyncio.CancelledError from error
        raise failure_of(error) from error


def failure_of(error: ActivityError) -> HostSilentError | OutsideError:
    """What a failed activity means to an incident."""
    cause = error.cause
    if isinstance(cause, ActivityTimeoutError):
        if cause.type in (TimeoutType.SCHEDULE_TO_START, TimeoutType.HEARTBEAT):
            took = cause.type is TimeoutType.HEARTBEAT
            return HostSilentError(f"{error.activity_type}: the worker did not answer", took=took)
        return OutsideError(f"{error.activity_type} did not end in time", final=False)
    final = isinstance(cause, ApplicationError) and cause.non_retryable
    return OutsideError(f"{error.activity_type}: {cause or error}", final=final)
