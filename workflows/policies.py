"""How long an activity may take and how it is retried, by class of what it does.

The one place of these numbers. Errors that no retry can help are raised non-retryable by the activities themselves
(`activities.errors`, `activities.aws_errors`).
"""

from datetime import timedelta
from typing import Final, TypedDict

from temporalio.common import RetryPolicy

from sickbay.checks import ActiveDepth

CALL: Final = timedelta(seconds=30)
"""One try of a call to the API server, to EC2 or to Temporal."""


class CallOptions(TypedDict):
    """What the calls of one class have in common, as keywords of `workflow.execute_activity_method`."""

    start_to_close_timeout: timedelta
    schedule_to_close_timeout: timedelta
    retry_policy: RetryPolicy


PATIENT: Final = RetryPolicy(initial_interval=timedelta(seconds=1), maximum_interval=timedelta(seconds=30))
"""For looks and for undoing: the outside comes back, and nothing else can be done without it."""
UNDO_DEADLINE: Final = timedelta(days=1)
"""For all tries of undoing one mark; past it the controller's sweep finds the mark as an orphan."""
LOOK: Final = CallOptions(
    start_to_close_timeout=CALL, schedule_to_close_timeout=timedelta(minutes=15), retry_policy=PATIENT
)
"""A look, or a mark without which nothing can go on. Past the deadline the incident says that the outside is silent,
and asks again."""
LISTING: Final = CallOptions(
    start_to_close_timeout=timedelta(minutes=5), schedule_to_close_timeout=timedelta(minutes=20), retry_policy=PATIENT
)
"""A listing of a store, which may hold a hundred thousand objects."""
UNDO: Final = CallOptions(start_to_close_timeout=CALL, schedule_to_close_timeout=UNDO_DEADLINE, retry_policy=PATIENT)
"""Undoing one mark."""

ACT: Final = RetryPolicy(
    initial_interval=timedelta(seconds=2), maximum_interval=timedelta(seconds=30), maximum_attempts=5
)
"""For steps on the machine: idempotent, and the ladder has a next rung."""
STEP: Final = CallOptions(
    start_to_close_timeout=CALL, schedule_to_close_timeout=timedelta(minutes=10), retry_policy=ACT
)
"""A step on the machine by its owner or its cloud, and what must be known right before it."""

COURTESY: Final = CallOptions(
    start_to_close_timeout=CALL,
    schedule_to_close_timeout=timedelta(minutes=1),
    retry_policy=RetryPolicy(maximum_attempts=3),
)
"""Events and looks back: good to have, and never a reason to stop."""

HOST_PROBE: Final = timedelta(minutes=2)
"""One full pass of a node's layers."""
BURN_IN_SLACK: Final = timedelta(minutes=1)
"""Beyond a burn-in itself: GPUs are filled and emptied, one after the other on a machine that also works."""
HOST_ORDER_TIME: Final = timedelta(minutes=1)
"""For an order that the host takes and answers at once."""
HOST_HEARTBEAT: Final = timedelta(seconds=10)
"""A host activity that is silent for so long runs on a machine that died under it."""
HOST_ONCE: Final = RetryPolicy(maximum_attempts=2, initial_interval=timedelta(seconds=1))
HOST_ORDER: Final = RetryPolicy(maximum_attempts=1)
"""For an order that takes its worker away: a second try could only hide that the first was taken."""

WAIT_HEARTBEAT: Final = timedelta(seconds=20)
"""Of activities that wait on the controller's worker; a lost worker is noticed within it. Four of their heartbeats."""
WAIT_SLACK: Final = timedelta(minutes=2)
"""Beyond the deadline that the activity itself keeps."""


def host_probe(depth: ActiveDepth, burn_in: timedelta) -> timedelta:
    """One full pass of a node's layers with active checks to this depth."""
    return HOST_PROBE + burn_in + BURN_IN_SLACK if depth is ActiveDepth.BURN_IN else HOST_PROBE


class WaitOptions(CallOptions):
    """What activities have in common that wait on the controller's worker for something to come about."""

    heartbeat_timeout: timedelta


def waiting(deadline: timedelta, retries: RetryPolicy) -> WaitOptions:
    """For an activity that keeps this deadline itself, over all its tries; a lost worker costs no more than as much."""
    return WaitOptions(
        start_to_close_timeout=deadline + WAIT_SLACK,
        schedule_to_close_timeout=2 * deadline + WAIT_SLACK,
        heartbeat_timeout=WAIT_HEARTBEAT,
        retry_policy=retries,
    )


BUDGET: Final = CallOptions(
    start_to_close_timeout=CALL,
    schedule_to_close_timeout=timedelta(minutes=2),
    retry_policy=RetryPolicy(initial_interval=timedelta(seconds=1), maximum_attempts=3),
)
"""A look at a pool or a search for lost holders; past the deadline the budget's turn goes on without, and the next one
tries again."""
