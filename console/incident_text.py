"""Incidents as people read them: a table of many, and one in full.

Called by `console.incidents`. It only lays out; times are UTC, since people in two places look at one incident.
"""

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Final

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from console.incident_desk import IncidentRow
from sickbay.faults import Fault, Rung
from sickbay.incident import IncidentView, Stage

PIPED_WIDTH: Final = 160
"""Columns where the output is no terminal and nobody can say."""
NEEDS_A_PERSON: Final = (Stage.AWAITING_APPROVAL, Stage.HANDED_OVER, Stage.HELD)


def console_for_people() -> Console:
    """Standard output; wide where it is no terminal."""
    console = Console(highlight=False)
    return console if console.is_terminal else Console(width=PIPED_WIDTH, highlight=False)


def table(rows: Iterable[IncidentRow], now: datetime) -> RenderableType:
    """Many incidents, one a line."""
    columns = Table(box=None, pad_edge=False)
    for heading in ("NODE", "POOL", "FAULTS", "STAGE", "RUNG", "WAITS FOR", "UNTIL", "OPENED", "INCIDENT"):
        columns.add_column(heading, overflow="fold")
    for row in rows:
        columns.add_row(
            row.node,
            row.pool,
            ", ".join(row.faults),
            Text(row.outcome or row.stage, style=_style(row.stage)),
            "" if row.rung == Rung.NONE else row.rung,
            row.waiting_for if row.answers else "(no controller answers)",
            deadline(row.waiting_until, now),
            f"{moment(row.opened_at)}",
            row.incident_id,
        )
    return columns


def account(view: IncidentView, now: datetime) -> RenderableType:
    """One incident in full."""
    facts = Table.grid(padding=(0, 2))
    for name, value in _facts(view, now):
        facts.add_row(Text(name, style="bold"), value)
    parts: list[RenderableType] = [facts]
    if view.faults:
        parts += ["", Text("Faults", style="bold"), *(_fault(fault) for fault in view.faults)]
    if view.intents:
        parts += ["", Text("Rungs tried", style="bold")]
        parts += [
            f"  {intent.rung} {intent.attempt}: {_end_of(intent.proof, intent.failure)}" for intent in view.intents
        ]
    if view.approvals:
        parts += ["", Text("Approvals", style="bold")]
        parts += [f"  {moment(yes.at)}  {yes.rung} {yes.attempt} by {yes.by}: {yes.reason}" for yes in view.approvals]
    parts += ["", Text("Timeline", style="bold"), *(f"  {moment(entry.at)}  {entry.text}" for entry in view.timeline)]
    if view.stage in NEEDS_A_PERSON and view.outcome is None:
        parts += ["", _what_to_type(view)]
    return Group(*(Text(part) if isinstance(part, str) else part for part in parts))


def deadline(until: datetime | None, now: datetime) -> str:
    """A deadline with what is left until it; empty if there is none."""
    if until is None:
        return ""
    left = until - now
    return f"{moment(until)} (in {length(left)})" if left > timedelta(0) else f"{moment(until)} (past)"


def moment(at: datetime) -> str:
    """A moment, as every line of ours writes it."""
    return f"{at:%Y-%m-%d %H:%M:%S}Z"


def length(duration: timedelta) -> str:
    """A duration in its two largest units, e.g. `7 h 12 min`."""
    seconds = int(duration.total_seconds())
    days, hours, minutes = seconds // 86_400, seconds // 3600 % 24, seconds // 60 % 60
    if days:
        return f"{days} d {hours} h"
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {seconds % 60} s" if minutes else f"{seconds} s"


def _facts(view: IncidentView, now: datetime) -> Iterable[tuple[str, str]]:
    node = view.node
    yield "Incident", view.incident_id
    yield "Node", f"{node.name} ({node.machine}){f' of pool {node.pool}' if node.pool else ''}"
    yield "Stage", f"{view.stage}{f', {view.outcome}' if view.outcome else ''}"
    if view.rung is not Rung.NONE:
        yield "Rung", f"{view.rung}, attempt {view.attempt}" if view.attempt else str(view.rung)
    if view.waiting_for:
        yield "Waits for", view.waiting_for
        yield "Until", deadline(view.waiting_until, now) or "no end is set"
    yield "Verdict", f"{view.verdict.fault_class}, {view.verdict.rung}: {view.verdict.reason}"
    if view.handover is not None:
        yield "Handed over", view.handover
    yield "Opened", moment(view.opened_at)
    if view.contained_at is not None:
        yield "Contained", f"{moment(view.contained_at)}, {length(view.contained_at - view.opened_at)} after opening"
    if view.closed_at is not None:
        yield "Closed", f"{moment(view.closed_at)}, {length(view.closed_at - view.opened_at)} after opening"
    yield "Judged by", f"policy {view.policy_version}, catalogue {view.catalogue_version}"


def _fault(fault: Fault) -> str:
    times = f", {fault.count} times" if fault.count > 1 else ""
    evidence = f"\n      {fault.evidence[0]}" if fault.evidence else ""
    return f"  {fault.code} on {fault.component.kind} {fault.component.id} ({fault.severity}{times}){evidence}"


def _end_of(proof: str, failure: str) -> str:
    if proof:
        return f"proven: {proof}"
    return f"failed: {failure}" if failure else "under way"


def _what_to_type(view: IncidentView) -> str:
    """The orders that fit the stage, ready to be copied."""
    if view.stage is Stage.AWAITING_APPROVAL:
        return (
            f"To decide: sickbay incidents approve {view.node.name} --reason '...'"
            f"   or: sickbay incidents reject {view.node.name} --reason '...'"
        )
    if view.stage is Stage.HELD:
        return f"To go on: sickbay incidents release {view.node.name} --reason '...'"
    return (
        f"To end: sickbay incidents close {view.node.name} --reason '...' (with --keep-cordon to keep it out of work)"
        f"   or: sickbay incidents choose-rung {view.node.name} RUNG --reason '...'"
    )


def _style(stage: str) -> str:
    if stage in NEEDS_A_PERSON:
        return "bold yellow"
    return "dim" if stage == Stage.CLOSED else ""
