"""How commands reach incidents: finding the one that is meant, reading it, and giving it an order.

Called by `console.incidents`, which prints. Every call has a timeout, since an update to an incident whose controller
is down would wait for ever (facts: Temporal, 1.3); every failure becomes one line that says what to do.
"""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import Final

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
from temporalio.common import SearchAttributeKey
from temporalio.exceptions import ApplicationError
from temporalio.runtime import LoggingConfig, Runtime, TelemetryConfig, TelemetryFilter
from temporalio.service import RPCError, RPCStatusCode

from console.errors import UserError
from sickbay import names, search_attributes
from sickbay.incident import Command, CommandReply, IncidentResult, IncidentView
from sickbay.model import Frozen
from workers.temporal_link import TemporalUnreachableError, connect

ANSWER_TIMEOUT: Final = timedelta(seconds=10)
"""How long an incident may take to answer; a controller that runs answers in milliseconds."""
LIST_TIMEOUT: Final = timedelta(seconds=10)
ASKED_AT_ONCE: Final = 8
REFUSED: Final = 1
"""Exit code of an order that the incident did not take."""

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]*")
_OF_INCIDENTS: Final = f"WorkflowType = '{names.WORKFLOW_INCIDENT}'"
_WORDS: Final = {
    WorkflowExecutionStatus.CANCELED: "cancelled",
    WorkflowExecutionStatus.TERMINATED: "terminated",
    WorkflowExecutionStatus.FAILED: "failed",
    WorkflowExecutionStatus.TIMED_OUT: "timed out",
}


class IncidentRow(Frozen):
    """One incident in a list."""

    incident_id: str
    node: str = ""
    pool: str = ""
    faults: tuple[str, ...] = ()
    stage: str = ""
    outcome: str = ""
    rung: str = ""
    waiting_for: str = ""
    waiting_until: datetime | None = None
    opened_at: datetime
    closed_at: datetime | None = None
    answers: bool = True
    """False for an open incident that no controller speaks for now: what is shown is what Temporal itself knows."""


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


async def find(client: Client, wanted: str) -> WorkflowHandle[object, IncidentResult]:
    """The incident of an incident id, a node's name or an instance id: the open one, else the latest.

    Raises UserError if there is none, or more than one is open.
    """
    if not _NAME.fullmatch(wanted):
        raise UserError(f"{wanted!r} is no incident id, node name or instance id; see `sickbay incidents list`")
    if wanted.startswith(names.incident_id("", "").rstrip("-") + "-"):
        return await _existing(client, wanted)
    of_it = f"({search_attributes.NODE.name} = '{wanted}' OR {search_attributes.MACHINE.name} = '{wanted}')"
    found = await _search(client, f"{_OF_INCIDENTS} AND {of_it}", limit=50)
    running = sorted({each.id for each in found if each.status is WorkflowExecutionStatus.RUNNING})
    if len(running) > 1:
        raise UserError(f"{wanted} has {len(running)} open incidents; name one of {', '.join(running)}")
    if not found:
        raise UserError(f"{wanted} has no incident; see `sickbay incidents list --all`")
    chosen = running[0] if running else max(found, key=lambda each: each.start_time).id
    return handle_of(client, chosen)


def handle_of(client: Client, incident_id: str) -> WorkflowHandle[object, IncidentResult]:
    """The incident of an id that is known to be one; nothing is asked of the server."""
    return client.get_workflow_handle(incident_id, result_type=IncidentResult)


async def read(handle: WorkflowHandle[object, IncidentResult]) -> IncidentView:
    """The incident as it is, or as it ended. Raises UserError if it cannot be read."""
    described = await handle.describe(rpc_timeout=ANSWER_TIMEOUT)
    if described.status is WorkflowExecutionStatus.RUNNING:
        view = await _ask(handle)
        if view is None:
            raise UserError(_silent(handle.id))
        return view
    try:
        return (await handle.result(follow_runs=False, rpc_timeout=ANSWER_TIMEOUT)).view
    except WorkflowFailureError as error:
        word = _WORDS.get(described.status or WorkflowExecutionStatus.FAILED, "not completed")
        raise UserError(f"{handle.id} was {word} and left no account; its history is in the Temporal UI") from error


async def rows(client: Client, *, include_closed: bool, cluster: str, limit: int) -> tuple[IncidentRow, ...]:
    """Open incidents, and with `include_closed` the others too, newest first."""
    query = _OF_INCIDENTS if include_closed else f"{_OF_INCIDENTS} AND ExecutionStatus = 'Running'"
    if cluster:
        if not _NAME.fullmatch(cluster):
            raise UserError(f"--cluster: {cluster!r} is no name of a cluster")
        query += f" AND WorkflowId STARTS_WITH '{names.incident_id(cluster, '')}'"
    found = await _search(client, query, limit)
    turns = asyncio.Semaphore(ASKED_AT_ONCE)

    async def row(execution: WorkflowExecution) -> IncidentRow:
        async with turns:
            return await _row(client, execution)

    return tuple(await asyncio.gather(*(row(each) for each in found)))


async def order(handle: WorkflowHandle[object, IncidentResult], command: Command) -> CommandReply:
    """Give an order. Raises UserError with the incident's own words if it refuses, and if it is over or silent."""
    try:
        reply: CommandReply = await handle.execute_update(
            names.UPDATE_COMMAND,
            command,
            id=f"{command.kind}-{command.request_id}",
            result_type=CommandReply,
            rpc_timeout=ANSWER_TIMEOUT,
        )
    except WorkflowUpdateFailedError as error:
        cause = error.cause
        reason = cause.message if isinstance(cause, ApplicationError) else str(cause)
        raise UserError(f"refused: {reason}", REFUSED) from error
    except WorkflowUpdateRPCTimeoutOrCancelledError as error:
        again = f"repeat with --request-id {command.request_id}, which counts as the same order"
        raise UserError(f"{_silent(handle.id)}; {again}") from error
    except RPCError as error:
        if error.status is RPCStatusCode.NOT_FOUND:
            how = f"see how with `sickbay incidents show {handle.id}`"
            raise UserError(f"{handle.id} is over already; {how}", REFUSED) from error
        raise
    return reply


async def _existing(client: Client, incident_id: str) -> WorkflowHandle[object, IncidentResult]:
    handle = handle_of(client, incident_id)
    try:
        await handle.describe(rpc_timeout=ANSWER_TIMEOUT)
    except RPCError as error:
        if error.status is not RPCStatusCode.NOT_FOUND:
            raise
        raise UserError(f"there is no incident {incident_id}; see `sickbay incidents list --all`") from error
    return handle


async def _search(client: Client, query: str, limit: int) -> list[WorkflowExecution]:
    try:
        listed = client.list_workflows(query, limit=limit, rpc_timeout=LIST_TIMEOUT)
        return [execution async for execution in listed]
    except RPCError as error:
        if error.status is not RPCStatusCode.INVALID_ARGUMENT:
            raise
        cure = "start a controller once, which registers them, and until then name incidents by their id"
        raise UserError(f"the namespace lacks our search attributes ({error.message}); {cure}") from error


async def _ask(handle: WorkflowHandle[object, IncidentResult]) -> IncidentView | None:
    """An open incident's own account; None if no controller answers for it."""
    try:
        view: IncidentView = await handle.query(names.QUERY_VIEW, result_type=IncidentView, rpc_timeout=ANSWER_TIMEOUT)
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
    return view


async def _row(client: Client, execution: WorkflowExecution) -> IncidentRow:
    known = execution.typed_search_attributes

    def word(key: SearchAttributeKey[str]) -> str:
        return known.get(key) or ""

    row = IncidentRow(
        incident_id=execution.id,
        node=word(search_attributes.NODE),
        pool=word(search_attributes.POOL),
        faults=tuple(known.get(search_attributes.FAULT) or ()),
        stage=word(search_attributes.STAGE),
        outcome=word(search_attributes.OUTCOME) or _WORDS.get(execution.status or WorkflowExecutionStatus.RUNNING, ""),
        rung=word(search_attributes.RUNG),
        opened_at=execution.start_time,
        closed_at=execution.close_time,
    )
    if execution.status is not WorkflowExecutionStatus.RUNNING:
        return row.model_copy(update={"stage": "closed"})
    view = await _ask(handle_of(client, execution.id))
    if view is None:
        return row.model_copy(update={"answers": False})
    return IncidentRow(
        incident_id=view.incident_id,
        node=view.node.name,
        pool=view.node.pool,
        faults=tuple(sorted({fault.code for fault in view.faults})) or row.faults,
        stage=view.stage,
        rung=view.rung,
        waiting_for=view.waiting_for,
        waiting_until=view.waiting_until,
        opened_at=view.opened_at,
    )


def _silent(incident_id: str) -> str:
    seconds = int(ANSWER_TIMEOUT.total_seconds())
    return f"no controller answered for {incident_id} within {seconds} s; check that `sickbay controller` runs"
