from datetime import timedelta

from temporalio.api.failure.v1 import Failure
from temporalio.converter import DataConverter

from activities.errors import FINAL_ERROR, PASSING_ERROR, FinalError, PassingError
from activities.kube import ConflictError, KubeFinalError, NotFoundError, Refusal
from sickbay.kube_objects import Status

REFUSAL = Refusal(code=0, status=Status(), retry_after=None)


def as_a_workflow_sees(error: Exception) -> Failure:
    converter, failure = DataConverter.default, Failure()
    converter.failure_converter.to_failure(error, converter.payload_converter, failure)
    return failure


def test_workflows_see_two_types_of_error_whatever_class_was_raised() -> None:
    for error in (FinalError("x"), KubeFinalError("x", REFUSAL), NotFoundError("x", REFUSAL)):
        info = as_a_workflow_sees(error).application_failure_info
        assert (info.type, info.non_retryable) == (FINAL_ERROR, True)
    for passing in (PassingError("x"), ConflictError("x", REFUSAL)):
        info = as_a_workflow_sees(passing).application_failure_info
        assert (info.type, info.non_retryable) == (PASSING_ERROR, False)


def test_the_wait_that_the_outside_asked_for_reaches_the_retry() -> None:
    failure = as_a_workflow_sees(PassingError("x", retry_after=timedelta(seconds=7)))
    assert failure.application_failure_info.next_retry_delay.ToTimedelta() == timedelta(seconds=7)
