"""`sickbay train report`: what became of a job's time, what each cause cost, and a picture of it.

Added to the group by `console.train`. The job's workflow tells its history; `sickbay.goodput` adds it up.
"""

import asyncio
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from console import job_desk, temporal_desk
from console.errors import UserError
from console.incident_text import console_for_people, length
from sickbay.goodput.account import account_for
from sickbay.goodput.model import BucketSum, CauseSum, GoodputReport
from sickbay.goodput.picture import picture
from sickbay.training.job import JobOutcome, JobView

Job = Annotated[str, typer.Argument(metavar="NAME", help="A job's name, NAMESPACE/NAME, or its workflow id.")]


def register(group: typer.Typer) -> None:
    """Add the command to `sickbay train`."""
    group.command()(report)


def report(
    job: Job,
    picture_file: Annotated[
        Path | None, typer.Option("--picture", metavar="FILE", help="Where to draw it; NAME-timeline.svg by default.")
    ] = None,
    no_picture: Annotated[bool, typer.Option("--no-picture", help="Draw nothing.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")] = False,
) -> None:
    """Account for every second of a job: productive, recomputed, in queue, ...; and draw it."""
    view = asyncio.run(_view(job))
    made = report_of(view, datetime.now(UTC))
    file = None if no_picture else picture_file or Path(f"{view.name}-timeline.svg")
    if file is not None:
        _draw(file, picture(made, f"{view.namespace}/{view.name}"))
    if as_json:
        print(made.model_dump_json(indent=2))
        return
    console_for_people().print(in_words(view, made))
    if file is not None:
        console_for_people().print(Text(f"The timeline is drawn in {file}."))


def report_of(view: JobView, now: datetime) -> GoodputReport:
    """The account of a job, as its workflow tells it."""
    succeeded = view.outcome is JobOutcome.SUCCEEDED
    return account_for(view.history, view.submitted_at, now, view.closed_at, succeeded=succeeded)


def in_words(view: JobView, made: GoodputReport) -> RenderableType:
    """The report as people read it."""
    state = "still open" if made.open else str(view.outcome or "closed")
    head = f"{view.namespace}/{view.name}: {state}, {made.attempts} attempt(s), {length(made.wall)}"
    parts: list[RenderableType] = [Text(head, style="bold"), Text(), *(Text(line) for line in _ratios(made)), Text()]
    parts.append(_table("bucket", ((str(each.bucket), each) for each in made.buckets), made))
    if made.lost:
        parts += [Text(), Text("What it cost, by cause"), _table("cause", ((x.cause, x) for x in made.lost), made)]
    return Group(*parts)


def _ratios(made: GoodputReport) -> Iterable[str]:
    yield f"ETTR                 {_share(made.ettr)}  (productive time by all time since submission)"
    yield f"ETTR without queue   {_share(made.ettr_running)}"
    yield f"scheduling goodput   {_share(made.scheduling_goodput)}  (time with its machines by all time)"
    yield f"runtime goodput      {_share(made.runtime_goodput)}  (productive GPU time by GPU time held)"
    if made.unknown_share:
        yield f"unknown              {_share(made.unknown_share)}  (counted as not productive)"


def _table(title: str, sums: Iterable[tuple[str, BucketSum | CauseSum]], made: GoodputReport) -> Table:
    table = Table(title, box=None, pad_edge=False)
    for heading in ("time", "share", "GPU hours"):
        table.add_column(heading, justify="right")
    for name, each in sums:
        share = _share(each.time / made.wall if made.wall else None)
        table.add_row(name, length(each.time), share, f"{each.gpu_time.total_seconds() / 3600:.2f}")
    return table


def _share(share: float | None) -> str:
    return "   -  " if share is None else f"{share:6.1%}"


def _draw(file: Path, svg: str) -> None:
    try:
        file.write_text(svg, encoding="utf-8")
    except OSError as error:
        raise UserError(f"cannot write {file}: {error.strerror or error}; name another file with --picture") from error


async def _view(job: str) -> JobView:
    async with temporal_desk.temporal() as client:
        return await job_desk.read(await job_desk.find(client, job))
