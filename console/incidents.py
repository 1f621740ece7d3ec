"""`sickbay incidents`: what people see of incidents, and what they tell them.

Registered by `console.main`. Every order is an update of the incident's workflow, checked there by its own rules and
kept in its history with a name and a reason; this module only asks, and prints what it was answered.
"""

import asyncio
import getpass
import json
from collections.abc import Coroutine
from datetime import UTC, datetime
from typing import Annotated, Any, TypeVar
from uuid import uuid4

import typer
from rich.text import Text

from console import incident_desk, temporal_desk
from console.incident_desk import IncidentRow
from console.incident_text import account, console_for_people, table
from sickbay.faults import Rung
from sickbay.incident import Command, CommandKind, IncidentView

Incident = Annotated[str, typer.Argument(metavar="INCIDENT", help="An incident id, a node's name or an instance id.")]
Reason = Annotated[str, typer.Option("--reason", help="Why; kept in the incident's history.")]
By = Annotated[str, typer.Option("--by", default_factory=getpass.getuser, help="Who says it.", show_default="you")]
RequestId = Annotated[
    str, typer.Option("--request-id", default_factory=lambda: uuid4().hex, help="Makes a repeat the same order.",
                      show_default="a new one")
]  # fmt: skip
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]

Answer = TypeVar("Answer")


def register(app: typer.Typer) -> None:
    """Add the group `incidents`."""
    app.add_typer(incidents, name="incidents")


incidents = typer.Typer(
    help="List, show and decide incidents.", no_args_is_help=True, rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)  # fmt: skip


@incidents.command("list")
def list_incidents(
    everything: Annotated[bool, typer.Option("--all", help="Closed ones too.")] = False,
    cluster: Annotated[str, typer.Option("--cluster", help="Only this cluster's.")] = "",
    limit: Annotated[int, typer.Option("--limit", min=1, max=1000, help="At most so many, newest first.")] = 100,
    as_json: AsJson = False,
) -> None:
    """List open incidents and what they wait for."""
    rows = _run(_rows(everything=everything, cluster=cluster, limit=limit))
    if as_json:
        print(json.dumps([row.model_dump(mode="json") for row in rows], indent=2))
    elif rows:
        console_for_people().print(table(rows, datetime.now(UTC)))
    else:
        print("No incident is open." if not everything else "There is no incident.")


@incidents.command()
def show(incident: Incident, as_json: AsJson = False) -> None:
    """Show one incident in full.

    Its verdict, its rungs with their proof, what it waits for until when, and its timeline.
    """
    view = _run(_view(incident))
    if as_json:
        print(view.model_dump_json(indent=2))
    else:
        console_for_people().print(account(view, datetime.now(UTC)))


@incidents.command()
def approve(
    incident: Incident,
    reason: Reason,
    by: By,
    request_id: RequestId,
    rung: Annotated[Rung | None, typer.Option("--rung", help="The rung you approve; what it asks for now.")] = None,
) -> None:
    """Say yes to the rung that is asked for now.

    A yes counts for that rung and attempt alone: if the incident has moved on by then, it is refused.
    """
    command = Command(kind=CommandKind.APPROVE, by=by, reason=reason, rung=rung, request_id=request_id)
    _print_reply(_run(_order(incident, command)))


@incidents.command()
def reject(incident: Incident, reason: Reason, by: By, request_id: RequestId) -> None:
    """Say no to the rung that is asked for now.

    The incident is then handed over to a person.
    """
    _give(incident, CommandKind.REJECT, by, reason, request_id)


@incidents.command()
def hold(incident: Incident, reason: Reason, by: By, request_id: RequestId) -> None:
    """Stop an incident until it is released."""
    _give(incident, CommandKind.HOLD, by, reason, request_id)


@incidents.command()
def release(incident: Incident, reason: Reason, by: By, request_id: RequestId) -> None:
    """Let a held incident go on."""
    _give(incident, CommandKind.RELEASE, by, reason, request_id)


@incidents.command("choose-rung")
def choose_rung(
    incident: Incident,
    rung: Annotated[Rung, typer.Argument(metavar="RUNG", help="The rung to try next.")],
    reason: Reason,
    by: By,
    request_id: RequestId,
) -> None:
    """Choose the rung that an incident tries next."""
    command = Command(kind=CommandKind.CHOOSE_RUNG, by=by, reason=reason, rung=rung, request_id=request_id)
    _print_reply(_run(_order(incident, command)))


@incidents.command()
def withdraw(incident: Incident, reason: Reason, by: By, request_id: RequestId) -> None:
    """End an incident and give its node back as it was."""
    _give(incident, CommandKind.WITHDRAW, by, reason, request_id)


@incidents.command()
def close(
    incident: Incident,
    reason: Reason,
    by: By,
    request_id: RequestId,
    keep_cordon: Annotated[bool, typer.Option("--keep-cordon", help="Leave the node cordoned, in your hands.")] = False,
) -> None:
    """End an incident that was handed over."""
    command = Command(kind=CommandKind.CLOSE, by=by, reason=reason, request_id=request_id, keep_cordon=keep_cordon)
    _print_reply(_run(_order(incident, command)))


def _give(incident: str, kind: CommandKind, by: str, reason: str, request_id: str) -> None:
    _print_reply(_run(_order(incident, Command(kind=kind, by=by, reason=reason, request_id=request_id))))


async def _rows(*, everything: bool, cluster: str, limit: int) -> tuple[IncidentRow, ...]:
    async with temporal_desk.temporal() as client:
        return await incident_desk.rows(client, include_closed=everything, cluster=cluster, limit=limit)


async def _view(incident: str) -> IncidentView:
    async with temporal_desk.temporal() as client:
        return await incident_desk.read(await incident_desk.find(client, incident))


async def _order(incident: str, command: Command) -> str:
    """Give an order; the answer in one line. A yes is pinned to the rung and attempt that ask at this moment.

    So a yes that arrives when the incident has moved on is refused, and never counts for another step.
    """
    async with temporal_desk.temporal() as client:
        handle = await incident_desk.find(client, incident)
        if command.kind is CommandKind.APPROVE:
            view = await incident_desk.read(handle)
            command = command.model_copy(update={"rung": command.rung or view.rung, "attempt": view.attempt or None})
        reply = await incident_desk.order(handle, command)
        return f"{handle.id}: {reply.message or 'done'}"


def _print_reply(line: str) -> None:
    console_for_people().print(Text(line))


def _run(work: Coroutine[Any, Any, Answer]) -> Answer:
    return asyncio.run(work)
