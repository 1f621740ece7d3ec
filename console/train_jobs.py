"""`sickbay train submit|list|status|explain|cancel|pause|...`: what people ask of training jobs, and tell them.

Added to the group by `console.train`. Every order is an update of the job's workflow, checked there by its own rules
and kept in its history with a name and a reason; this module only asks, and prints what it was answered.
"""

import asyncio
import getpass
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated
from uuid import uuid4

import typer
from rich.text import Text
from temporalio.client import WorkflowExecutionStatus

from console import job_desk, temporal_desk
from console.errors import UserError
from console.incident_text import console_for_people
from console.job_text import JobRow, account, explained, table
from sickbay import search_attributes
from sickbay.training import manifests
from sickbay.training.job import JobCommand, JobCommandKind, JobInput, JobStage, JobView, TrainingSpec
from sickbay.training.spec_file import SpecError, read_spec

Job = Annotated[str, typer.Argument(metavar="NAME", help="A job's name, NAMESPACE/NAME, or its workflow id.")]
SpecFile = Annotated[Path, typer.Argument(metavar="FILE", help="A training job, YAML; see deploy/training.")]
Cluster = Annotated[str, typer.Option("--cluster", envvar="SICKBAY_CLUSTER", help="The controller's own name of it.")]
Reason = Annotated[str, typer.Option("--reason", help="Why; kept in the job's history.")]
By = Annotated[str, typer.Option("--by", default_factory=getpass.getuser, help="Who says it.", show_default="you")]
RequestId = Annotated[
    str, typer.Option("--request-id", default_factory=lambda: uuid4().hex, help="Makes a repeat the same order.",
                      show_default="a new one")
]  # fmt: skip
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]


def register(group: typer.Typer) -> None:
    """Add the commands to `sickbay train`."""
    group.command()(submit)
    group.command("list")(list_jobs)
    group.command()(status)
    group.command()(explain)
    group.command()(cancel)
    group.command()(pause)
    group.command()(resume)
    group.command()(restart)
    group.command()(retry)
    group.command("exclude-node")(exclude_node)
    group.command("include-node")(include_node)
    group.command("from-step")(from_step)


def submit(
    file: SpecFile,
    cluster: Cluster,
    by: By,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say whether the file can be used.")] = False,
) -> None:
    """Start a training job, which then goes on until its target, whatever happens to its nodes."""
    spec = spec_of(file)
    if dry_run:
        print(f"{file}: {spec.namespace}/{spec.name} can be submitted")
        return
    start = JobInput(cluster=cluster, spec=spec, submitted_by=by, submitted_at=datetime.now(UTC))

    async def work() -> str:
        async with temporal_desk.temporal() as client:
            return (await job_desk.submit(client, start)).id

    _say(f"{asyncio.run(work())} is submitted; follow it with `sickbay train status {spec.name}`")


def spec_of(file: Path) -> TrainingSpec:
    """The job of a file, with the manifest it names read in. Raises UserError with everything that is wrong."""
    try:
        spec = read_spec(file.read_text(encoding="utf-8"), str(file), lambda name: _beside(file, name))
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else "it is not UTF-8 text"
        raise UserError(f"cannot read {file}: {reason}") from error
    except SpecError as error:
        raise UserError(str(error)) from error
    if problems := manifests.check(spec.manifest):
        raise UserError(f"{file}: manifest: {'; '.join(problems)}")
    return spec


def list_jobs(
    everything: Annotated[bool, typer.Option("--all", help="Those that are over too.")] = False,
    cluster: Annotated[str, typer.Option("--cluster", help="Only this cluster's.")] = "",
    limit: Annotated[int, typer.Option("--limit", min=1, max=1000, help="At most so many, newest first.")] = 100,
    as_json: AsJson = False,
) -> None:
    """List open training jobs and what they wait for."""
    rows = asyncio.run(_rows(everything=everything, cluster=cluster, limit=limit))
    if as_json:
        print(json.dumps([row.model_dump(mode="json") for row in rows], indent=2))
    elif rows:
        console_for_people().print(table(rows, datetime.now(UTC)))
    else:
        print("There is no training job." if everything else "No training job is open.")


def status(job: Job, as_json: AsJson = False) -> None:
    """Show one training job: its attempt, its step, what it waits for until when, and its timeline."""
    view = asyncio.run(_view(job))
    if as_json:
        print(view.model_dump_json(indent=2))
    else:
        console_for_people().print(account(view, datetime.now(UTC)))


def explain(
    job: Job,
    attempt: Annotated[int | None, typer.Option("--attempt", min=1, help="Which; the newest that failed.")] = None,
    as_json: AsJson = False,
) -> None:
    """Say why an attempt ended: the class, the rule that decided, its evidence, and whose budget paid."""
    view = asyncio.run(_view(job))
    with_verdict = [each for each in view.history.attempts if each.verdict is not None]
    if attempt is not None:
        with_verdict = [each for each in with_verdict if each.attempt == attempt]
    if not with_verdict:
        tried = len(view.history.attempts)
        which = f"attempt {attempt}" if attempt is not None else "no attempt"
        raise UserError(f"{view.namespace}/{view.name}: {which} has failed; {tried} attempt(s) were made")
    record = with_verdict[-1]
    if as_json:
        print(record.model_dump_json(indent=2, by_alias=True))
    else:
        console_for_people().print(explained(record))


def cancel(job: Job, reason: Reason, by: By, request_id: RequestId) -> None:
    """End a job: it checkpoints if it can, and its pods go."""
    _give(job, JobCommand(kind=JobCommandKind.CANCEL, by=by, reason=reason, request_id=request_id))


def pause(job: Job, reason: Reason, by: By, request_id: RequestId) -> None:
    """Have a job checkpoint and give its nodes back until it is resumed."""
    _give(job, JobCommand(kind=JobCommandKind.PAUSE, by=by, reason=reason, request_id=request_id))


def resume(job: Job, reason: Reason, by: By, request_id: RequestId) -> None:
    """Let a paused job go on."""
    _give(job, JobCommand(kind=JobCommandKind.RESUME, by=by, reason=reason, request_id=request_id))


def restart(job: Job, reason: Reason, by: By, request_id: RequestId) -> None:
    """End the running attempt after a checkpoint, and begin the next."""
    _give(job, JobCommand(kind=JobCommandKind.RESTART, by=by, reason=reason, request_id=request_id))


def retry(job: Job, reason: Reason, by: By, request_id: RequestId) -> None:
    """Let a job that waits for a person try again, its failure's budgets anew."""
    _give(job, JobCommand(kind=JobCommandKind.RETRY, by=by, reason=reason, request_id=request_id))


def exclude_node(
    job: Job,
    node: Annotated[str, typer.Argument(metavar="NODE", help="A node's name.")],
    reason: Reason,
    by: By,
    request_id: RequestId,
) -> None:
    """Keep a job off a node from its next attempt on."""
    _give(job, JobCommand(kind=JobCommandKind.EXCLUDE_NODE, by=by, reason=reason, node=node, request_id=request_id))


def include_node(
    job: Job,
    node: Annotated[str, typer.Argument(metavar="NODE", help="A node's name.")],
    reason: Reason,
    by: By,
    request_id: RequestId,
) -> None:
    """Let a job use a node again that it keeps off."""
    _give(job, JobCommand(kind=JobCommandKind.INCLUDE_NODE, by=by, reason=reason, node=node, request_id=request_id))


def from_step(
    job: Job,
    step: Annotated[int, typer.Argument(metavar="STEP", min=0, help="Of a checkpoint; 0 begins anew.")],
    reason: Reason,
    by: By,
    request_id: RequestId,
) -> None:
    """Let a job that waits for a person resume from this checkpoint, although it is older or suspected."""
    _give(job, JobCommand(kind=JobCommandKind.FROM_STEP, by=by, reason=reason, step=step, request_id=request_id))


def _give(job: str, command: JobCommand) -> None:
    async def work() -> str:
        async with temporal_desk.temporal() as client:
            handle = await job_desk.find(client, job)
            reply = await job_desk.order(handle, command)
            return f"{handle.id}: {reply.message or 'done'}"

    _say(asyncio.run(work()))


async def _view(job: str) -> JobView:
    async with temporal_desk.temporal() as client:
        return await job_desk.read(await job_desk.find(client, job))


async def _rows(*, everything: bool, cluster: str, limit: int) -> list[JobRow]:
    async with temporal_desk.temporal() as client:
        found = await job_desk.list_jobs(client, cluster=cluster, limit=limit)
        rows = []
        for execution in found:
            is_open = execution.status is WorkflowExecutionStatus.RUNNING
            if not (is_open or everything):
                continue
            view = await temporal_desk.ask(job_desk.handle_of(client, execution.id), JobView) if is_open else None
            known = execution.typed_search_attributes
            word = temporal_desk.WORDS.get(execution.status or WorkflowExecutionStatus.RUNNING, "")
            rows.append(
                JobRow(
                    job_id=execution.id,
                    name=known.get(search_attributes.JOB) or execution.id,
                    stage=(known.get(search_attributes.STAGE) or "") if is_open else JobStage.CLOSED,
                    outcome=known.get(search_attributes.OUTCOME) or word,
                    view=view,
                    answers=view is not None or not is_open,
                    submitted_at=execution.start_time,
                )
            )
        return rows


def _beside(file: Path, name: str) -> str:
    """The text of a file that the job's file names, relative to it."""
    path = file.parent / name
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else "it is not UTF-8 text"
        raise UserError(f"{file}: manifest: cannot read {path}: {reason}") from error


def _say(line: str) -> None:
    console_for_people().print(Text(line))
