"""How commands speak with any workflow of ours: connect, search, ask for its account, give it an order.

Called by the desks of incidents and of training jobs. Every call has a timeout, since an update to a workflow whose
controller is down would wait for ever (facts: Temporal, 1.3); every failure becomes one line that says what to do.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any, Final, TypeVar

from temporalio.client import (
    Client,
    WorkflowExecution,
    WorkflowExecutionStatus,
    WorkflowFailureError,
    WorkflowHandle,
    WorkflowQueryFailedError,
    WorkflowQueryRejectedError,
    WorkflowUpdateFailedError,
    WorkflowUpdateRPCTimeoutOrCancelledError,
)
from temporalio.exceptions import ApplicationError
from temporalio.runtime import LoggingConfig, Runtime, TelemetryConfig, TelemetryFilter
from temporalio.service import RPCError, RPCStatusCode

from console.errors import UserError
from sickbay import names
from sickbay.model import Frozen
from workers.temporal_link import TemporalUnreachableError, connect

ANSWER_TIMEOUT: Final = timedelta(seconds=10)
"""How long a workflow may take to answer; a controller that runs answers in milliseconds."""
LIST_TIMEOUT: Final = timedelta(seconds=10)
REFUSED: Final = 1
"""Exit code of an order that the workflow did not take."""
WORDS: Final = {
    WorkflowExecutionStatus.CANCELED: "cancelled",
    WorkflowExecutionStatus.TERMINATED: "terminated",
    WorkflowExecutionStatus.FAILED: "failed",
    WorkflowExecutionStatus.TIMED_OUT: "timed out",
}
"""How a workflow ended that did not end by its own rules."""

Model = TypeVar("Model", bound=Frozen)
Result = TypeVar("Result", bound=Frozen)


@asynccontextmanager
async def temporal() -> AsyncIterator[Client]:
    """The client that the environment configures. Raises UserError where no server answers or it refuses."""
    try:
        yield await connect(runtime=_quiet_runtime())
    except TemporalUnreachableError as error:
        raise UserError(str(error)) from error
    except RPCError as error:
        if error.status is RPCStatusCode.UNAVAILABLE:
            raise UserError(f"the Temporal server does not answer any more: {error.message}; try again") from error
        raise UserError(f"the Temporal server refused: {error.message}") from error


def _quiet_runtime() -> Runtime:
    """For a command of people: what the SDK would log of each try again, the command tells in one line at the end."""
    levels = TelemetryFilter(core_level="OFF", other_level="OFF")
    return Runtime(telemetry=TelemetryConfig(logging=LoggingConfig(filter=levels)))


async def search(client: Client, query: str, limit: int) -> list[WorkflowExecution]:
    """Workflows that a visibility query finds. Raises UserError where the namespace lacks our search attributes."""
    try:
        listed = client.list_workflows(query, limit=limit, rpc_timeout=LIST_TIMEOUT)
        return [execution async for execution in listed]
    except RPCError as error:
        if error.status is not RPCStatusCode.INVALID_ARGUMENT:
            raise
        cure = "start a controller once, which registers them, and until then name workflows by their id"
        raise UserError(f"the namespace lacks our search attributes ({error.message}); {cure}") from error


async def ask(handle: WorkflowHandle[Any, Any], view: type[Model]) -> Model | None:
    """An open workflow's own account; None if no controller answers for it."""
    try:
        answer: Model = await handle.query(names.QUERY_VIEW, result_type=view, rpc_timeout=ANSWER_TIMEOUT)
    except (WorkflowQueryFailedError, WorkflowQueryRejectedError):
        return None
    except RPCError as error:
        if error.status in (
            RPCStatusCode.DEADLINE_EXCEEDED,
            RPCStatusCode.CANCELLED,
            RPCStatusCode.FAILED_PRECONDITION,
        ):
            return None
        raise
    return answer


async def open_or_result(handle: WorkflowHandle[Any, Result], view: type[Model]) -> Model | Result:
    """The account of an open workflow, or the result of one that is over. Raises UserError if neither can be had."""
    described = await handle.describe(rpc_timeout=ANSWER_TIMEOUT)
    if described.status is WorkflowExecutionStatus.RUNNING:
        answer = await ask(handle, view)
        if answer is None:
            raise UserError(silent(handle.id))
        return answer
    try:
        return await handle.result(follow_runs=False, rpc_timeout=ANSWER_TIMEOUT)
    except WorkflowFailureError as error:
        word = WORDS.get(described.status or WorkflowExecutionStatus.FAILED, "not completed")
        raise UserError(f"{handle.id} was {word} and left no account; its history is in the Temporal UI") from error


async def exists(handle: WorkflowHandle[Any, Any]) -> bool:
    """Whether there is or was such a workflow."""
    try:
        await handle.describe(rpc_timeout=ANSWER_TIMEOUT)
    except RPCError as error:
        if error.status is not RPCStatusCode.NOT_FOUND:
            raise
        return False
    return True


async def give(
    handle: WorkflowHandle[Any, Any], command: Frozen, update_id: str, reply: type[Model], *, how_it_ended: str
) -> Model:
    """Give an order by update; a repeat of its id is the same order.

    `how_it_ended` is what to type to see the end of a workflow that is over. Raises UserError with the workflow's own
    words if it refuses, and if it is over or silent.
    """
    try:
        answer: Model = await handle.execute_update(
            names.UPDATE_COMMAND, command, id=update_id, result_type=reply, rpc_timeout=ANSWER_TIMEOUT
        )
    except WorkflowUpdateFailedError as error:
        cause = error.cause
        reason = cause.message if isinstance(cause, ApplicationError) else str(cause)
        raise UserError(f"refused: {reason}", REFUSED) from error
    except WorkflowUpdateRPCTimeoutOrCancelledError as error:
        again = f"repeat with --request-id {update_id.rpartition('-')[2]}, which counts as the same order"
        raise UserError(f"{silent(handle.id)}; {again}") from error
    except RPCError as error:
        if error.status is RPCStatusCode.NOT_FOUND:
            raise UserError(f"{handle.id} is over already; see how with `{how_it_ended}`", REFUSED) from error
        raise
    return answer


def silent(workflow_id: str) -> str:
    """What to say of a workflow that nobody speaks for."""
    seconds = int(ANSWER_TIMEOUT.total_seconds())
    return f"no controller answered for {workflow_id} within {seconds} s; check that `sickbay controller` runs"
