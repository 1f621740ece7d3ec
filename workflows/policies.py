"""How long an activity may take and how it is retried, by class of what it does.

The one place of these numbers. Errors that no retry can help are raised non-retryable by the activities themselves
(`activities.errors`, `activities.aws_errors`).
"""

from datetime import timedelta
from typing import Final

from temporalio.common import RetryPolicy

CALL: Final = timedelta(seconds=30)
"""One try of a call to the API server, to EC2 or to Temporal."""

PATIENT: Final = RetryPolicy(initial_interval=timedelta(seconds=1), maximum_interval=timedelta(seconds=30))
"""For looks and for undoing: the outside comes back, and nothing else can be done without it."""
LOOK_DEADLINE: Final = timedelta(minutes=15)
"""For all tries of one look; past it the incident says that the outside is silent, and goes on asking."""
UNDO_DEADLINE: Final = timedelta(days=1)
"""For all tries of undoing one mark; past it the controller's sweep finds the mark as an orphan."""

ACT: Final = RetryPolicy(
    initial_interval=timedelta(seconds=2), maximum_interval=timedelta(seconds=30), maximum_attempts=5
)
"""For steps on the machine: idempotent, and the ladder has a next rung."""
ACT_DEADLINE: Final = timedelta(minutes=10)

HOST_HEARTBEAT: Final = timedelta(seconds=10)
"""A host activity that is silent for so long runs on a machine that died under it."""
HOST_ONCE: Final = RetryPolicy(maximum_attempts=2, initial_interval=timedelta(seconds=1))
HOST_ORDER: Final = RetryPolicy(maximum_attempts=1)
"""For an order that takes its worker away: a second try could only hide that the first was taken."""

WAIT_HEARTBEAT: Final = timedelta(seconds=20)
"""Of activities that wait on the controller's worker; a lost worker is noticed within it. Four of their heartbeats."""
WAIT_SLACK: Final = timedelta(minutes=2)
"""Beyond the deadline that the activity itself keeps."""

COURTESY: Final = RetryPolicy(maximum_attempts=3)
"""For Events and looks back: good to have, and never a reason to stop."""
COURTESY_DEADLINE: Final = timedelta(minutes=1)
