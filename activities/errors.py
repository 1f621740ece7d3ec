"""Errors at the border to every outside system, split by the one thing a workflow must know: can a retry help?

Raised by the activities and by the plain functions under them, which the controller's watch calls without Temporal.
Retry policies name the types (`FINAL_ERROR`), since a workflow sees only the type's name.
"""

from datetime import timedelta
from typing import Final

from temporalio.exceptions import ApplicationError

FINAL_ERROR: Final = "FinalError"
PASSING_ERROR: Final = "PassingError"


class FinalError(ApplicationError):
    """The outside refused for good: no permission, protection, quota, a bug of ours. A retry cannot help."""

    def __init__(self, message: str) -> None:
        super().__init__(message, type=FINAL_ERROR, non_retryable=True)


class PassingError(ApplicationError):
    """The outside could not answer now: throttling, trouble of its own, no connection, a lost race. Retry later.

    `retry_after` is the wait that the outside asked for, if it did.
    """

    def __init__(self, message: str, *, retry_after: timedelta | None = None) -> None:
        super().__init__(message, type=PASSING_ERROR, next_retry_delay=retry_after)
        self.retry_after = retry_after
