"""How commands reach incidents: finding the one that is meant, reading it, and giving it an order.

Called by `console.incidents`, which prints. What all workflows have in common is in `console.temporal_desk`.
"""

import asyncio
import re
from datetime import datetime
from typing import Final

from temporalio.client import Client, WorkflowExecution, WorkflowExecutionStatus, WorkflowHandle
from temporalio.common import SearchAttributeKey

from console import temporal_desk
from console.errors import UserError
from console.temporal_desk import WORDS
from sickbay import names, search_attributes
from sickbay.incident import Command, CommandReply, IncidentResult, IncidentView
from sickbay.model import Frozen

ASKED_AT_ONCE: Final = 8

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]*")
_OF_INCIDENTS: Final = f"WorkflowType = '{names.WORKFLOW_INCIDENT}'"


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


async def find(client: Client, wanted: str) -> WorkflowHandle[object, IncidentResult]:
    """The incident of an incident id, a node's name or an instance id: the open one, else the latest.

    Raises UserError if there is none, or more than one is open.
    """
    if not _NAME.fullmatch(wanted):
        raise UserError(f"{wanted!r} is no incident id, node name or instance id; see `sickbay incidents list`")
    if wanted.startswith(names.incident_id("", "").rstrip("-") + "-"):
        return await _existing(client, wanted)
    of_it = f"({search_attributes.NODE.name} = '{wanted}' OR {search_attributes.MACHINE.name} = '{wanted}')"
    found = await temporal_desk.search(client, f"{_OF_INCIDENTS} AND {of_it}", limit=50)
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
    told = await temporal_desk.open_or_result(handle, IncidentView)
    return told.view if isinstance(told, IncidentResult) else told


async def rows(client: Client, *, include_closed: bool, cluster: str, limit: int) -> tuple[IncidentRow, ...]:
    """Open incidents, and with `include_closed` the others too, newest first."""
    query = _OF_INCIDENTS if include_closed else f"{_OF_INCIDENTS} AND ExecutionStatus = 'Running'"
    if cluster:
        if not _NAME.fullmatch(cluster):
            raise UserError(f"--cluster: {cluster!r} is no name of a cluster")
        query += f" AND WorkflowId STARTS_WITH '{names.incident_id(cluster, '')}'"
    found = await temporal_desk.search(client, query, limit)
    turns = asyncio.Semaphore(ASKED_AT_ONCE)

    async def row(execution: WorkflowExecution) -> IncidentRow:
        async with turns:
            return await _row(client, execution)

    return tuple(await asyncio.gather(*(row(each) for each in found)))


async def order(handle: WorkflowHandle[object, IncidentResult], command: Command) -> CommandReply:
    """Give an order. Raises UserError with the incident's own words if it refuses, and if it is over or silent."""
    update_id = f"{command.kind}-{command.request_id}"
    see = f"sickbay incidents show {handle.id}"
    return await temporal_desk.give(handle, command, update_id, CommandReply, how_it_ended=see)


async def _existing(client: Client, incident_id: str) -> WorkflowHandle[object, IncidentResult]:
    handle = handle_of(client, incident_id)
    if not await temporal_desk.exists(handle):
        raise UserError(f"there is no incident {incident_id}; see `sickbay incidents list --all`")
    return handle


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
        outcome=word(search_attributes.OUTCOME) or WORDS.get(execution.status or WorkflowExecutionStatus.RUNNING, ""),
        rung=word(search_attributes.RUNG),
        opened_at=execution.start_time,
        closed_at=execution.close_time,
    )
    if execution.status is not WorkflowExecutionStatus.RUNNING:
        return row.model_copy(update={"stage": "closed"})
    view = await temporal_desk.ask(handle_of(client, execution.id), IncidentView)
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
