"""Training jobs as people read them: a table of many, one in full, and why an attempt ended.

Called by `console.train_jobs`. It only lays out; times are UTC, since people in two places look at one job.
"""

from collections.abc import Iterable
from datetime import datetime

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from console.incident_text import deadline, length, moment
from sickbay.model import Frozen
from sickbay.training.history import AttemptRecord
from sickbay.training.job import JobStage, JobView

NEEDS_A_PERSON = (JobStage.HELD, JobStage.PAUSED)


class JobRow(Frozen):
    """One job in a list."""

    job_id: str
    name: str
    stage: str
    outcome: str = ""
    view: JobView | None = None
    answers: bool = True
    """False for an open job that no controller speaks for now."""
    submitted_at: datetime


def table(rows: Iterable[JobRow], now: datetime) -> RenderableType:
    """Many jobs, one a line."""
    columns = Table(box=None, pad_edge=False)
    for heading in ("JOB", "STAGE", "ATTEMPT", "NODES", "STEP", "WAITS FOR", "UNTIL", "SUBMITTED", "WORKFLOW"):
        columns.add_column(heading, overflow="fold")
    for row in rows:
        view = row.view
        stage = row.outcome or (view.stage if view else row.stage)
        columns.add_row(
            row.name,
            Text(stage, style="bold yellow" if stage in NEEDS_A_PERSON else ""),
            str(view.attempt) if view else "",
            str(view.nodes) if view else "",
            _step(view) if view else "",
            view.waiting_for if view else "" if row.answers else "(no controller answers)",
            deadline(view.waiting_until, now) if view else "",
            moment(row.submitted_at),
            row.job_id,
        )
    return columns


def account(view: JobView, now: datetime) -> RenderableType:
    """One job in full."""
    facts = Table.grid(padding=(0, 2))
    for name, value in _facts(view, now):
        facts.add_row(Text(name, style="bold"), Text(value))
    parts: list[RenderableType] = [facts]
    if view.history.attempts:
        parts += ["", Text("Attempts", style="bold"), _attempts(view)]
    live = [each for each in view.history.exclusions if each.since <= now < each.until]
    if live:
        parts += ["", Text("Keeps off", style="bold")]
        parts += [f"  {each.node} until {moment(each.until)}: {each.reason}" for each in live]
    parts += ["", Text("Timeline", style="bold"), *(f"  {moment(entry.at)}  {entry.text}" for entry in view.timeline)]
    if view.outcome is None and (hint := _what_to_type(view)):
        parts += ["", hint]
    return Group(*(Text(part) if isinstance(part, str) else part for part in parts))


def explained(record: AttemptRecord) -> RenderableType:
    """Why one attempt ended."""
    verdict = record.verdict
    if verdict is None:
        return Text(f"Attempt {record.attempt} has not failed.")
    facts = Table.grid(padding=(0, 2))
    rows = [
        ("Attempt", f"{record.attempt}, {record.nodes} node(s)"),
        ("Verdict", f"{verdict.failure_class}: {verdict.reason}"),
        ("Action", str(verdict.action)),
        ("Rule", f"{verdict.rule} (rules {verdict.version})"),
        ("Culprits", ", ".join(verdict.culprits) or "nobody can be named"),
        ("Keeps off", ", ".join(blame.node for blame in verdict.blamed) or "no node"),
        ("Budget", str(verdict.budget)),
        ("Fingerprint", verdict.fingerprint),
    ]
    for name, value in rows:
        facts.add_row(Text(name, style="bold"), Text(value))
    parts: list[RenderableType] = [facts, "", Text("Evidence", style="bold")]
    parts += [f"  {line}" for line in verdict.evidence] or ["  none was kept"]
    if verdict.missing:
        parts += ["", Text("Did not answer, so that what they know is unknown", style="bold")]
        parts += [f"  {source}" for source in verdict.missing]
    return Group(*(Text(part) if isinstance(part, str) else part for part in parts))


def _facts(view: JobView, now: datetime) -> Iterable[tuple[str, str]]:
    yield "Job", f"{view.namespace}/{view.name} ({view.job_id})"
    yield "Stage", f"{view.stage}{f', {view.outcome}' if view.outcome else ''}"
    yield "Attempt", f"{view.attempt} on {view.nodes} node(s)" if view.attempt else "none yet"
    yield "Step", _step(view)
    if view.resume is not None and view.resume.why:
        yield "Resumed", view.resume.why
    if view.waiting_for:
        yield "Waits for", view.waiting_for
        yield "Until", deadline(view.waiting_until, now) or "no end is set"
    if view.verdict is not None:
        yield "Last failure", f"{view.verdict.failure_class}: {view.verdict.reason}"
    for words in view.slow:
        yield "Slow", words
    yield "Submitted", moment(view.submitted_at)
    if view.closed_at is not None:
        yield "Closed", f"{moment(view.closed_at)}, {length(view.closed_at - view.submitted_at)} after submission"


def _attempts(view: JobView) -> RenderableType:
    columns = Table(box=None, pad_edge=False)
    for heading in ("", "NODES", "FROM STEP", "TO STEP", "BEGAN", "ENDED", "WHY"):
        columns.add_column(heading, overflow="fold")
    for record in view.history.attempts:
        last = record.samples[-1].step if record.samples else None
        why = f"{record.verdict.failure_class}: {record.verdict.reason}" if record.verdict else record.why
        columns.add_row(
            str(record.attempt),
            str(record.nodes),
            "beginning" if record.resume_step is None else str(record.resume_step),
            "" if last is None else str(last),
            moment(record.created_at or record.planned_at),
            moment(record.gone_at) if record.gone_at else "",
            Text(why),
        )
    return columns


def _step(view: JobView) -> str:
    if view.step is None:
        return "none yet"
    return f"{view.step} of {view.target_step}" if view.target_step else str(view.step)


def _what_to_type(view: JobView) -> str:
    """The orders that fit the stage, ready to be copied."""
    name = f"{view.namespace}/{view.name}"
    if view.stage is JobStage.PAUSED:
        return f"To go on: sickbay train resume {name} --reason '...'"
    if view.stage is JobStage.HELD:
        return (
            f"To try again: sickbay train retry {name} --reason '...'"
            f"   from another checkpoint: sickbay train from-step {name} STEP --reason '...'"
            f"   to end: sickbay train cancel {name} --reason '...'"
        )
    return ""
