"""`sickbay checkpoints list|verify`: which checkpoints are whole, and which one a job would resume from.

Called by `console.main`. Needs neither Temporal nor a cluster; credentials are the environment's own. Exit code 0 if
something can be resumed from, 1 if not, 2 if the place cannot be read.
"""

import asyncio
import json
from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from activities.checkpoints import CheckpointActivities
from console.errors import UserError
from console.incident_text import console_for_people
from sickbay.checkpoints.choice import choose
from sickbay.checkpoints.model import (
    CheckpointFormat,
    CheckpointListing,
    CheckpointPlace,
    CheckpointQuery,
    ResumeChoice,
)
from sickbay.training.history import JobHistory

Url = Annotated[str, typer.Argument(metavar="URL", help="A folder, or s3://bucket/prefix.")]
FormatOption = Annotated[CheckpointFormat, typer.Option("--format", help="Whose layout it is; told by the files.")]
Region = Annotated[str, typer.Option("--region", help="Of the bucket; as the environment says.")]
Endpoint = Annotated[str, typer.Option("--endpoint", help="Address of an S3 that is not AWS's.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]


def register(app: typer.Typer) -> None:
    """Add the group `checkpoints`."""
    group = typer.Typer(no_args_is_help=True, rich_markup_mode=None)
    group.command("list")(list_command)
    group.command("verify")(verify_command)
    app.add_typer(group, name="checkpoints", help="Say which checkpoints are whole and may be resumed.")


def list_command(
    url: Url,
    form: FormatOption = CheckpointFormat.AUTO,
    region: Region = "",
    endpoint: Endpoint = "",
    as_json: AsJson = False,
) -> None:
    """List checkpoints, and judge them by their files, sizes and markers."""
    raise typer.Exit(_run(CheckpointPlace(url=url, format=form, region=region, endpoint=endpoint), False, as_json))


def verify_command(
    url: Url,
    form: FormatOption = CheckpointFormat.AUTO,
    region: Region = "",
    endpoint: Endpoint = "",
    as_json: AsJson = False,
) -> None:
    """The same, with checksums of the newest where the format has them, which reads them whole."""
    raise typer.Exit(_run(CheckpointPlace(url=url, format=form, region=region, endpoint=endpoint), True, as_json))


def _run(place: CheckpointPlace, verify: bool, as_json: bool) -> int:
    query = CheckpointQuery(place=place, verify=verify)
    listing = asyncio.run(CheckpointActivities().look(query))
    if not listing.complete and not listing.checkpoints:
        raise UserError("; ".join(listing.problems))
    choice = choose(listing, place, JobHistory(), allow_nothing=True)
    resumable = choice.allowed and choice.checkpoint is not None
    if as_json:
        print(json.dumps(_for_programs(listing, choice), indent=2))
    else:
        _for_people(listing, choice)
    return 0 if resumable else 1


def _for_programs(listing: CheckpointListing, choice: ResumeChoice) -> dict[str, Any]:
    step = choice.checkpoint.step if choice.allowed and choice.checkpoint is not None else None
    return {
        "checkpoints": [
            {
                "step": each.step,
                "path": each.path,
                "format": each.format,
                "level": each.level,
                "problems": list(each.problems),
            }
            for each in listing.checkpoints
        ],
        "resume": step,
        "why": "; ".join((choice.why, *listing.problems)),
    }


def _for_people(listing: CheckpointListing, choice: ResumeChoice) -> None:
    console = console_for_people()
    columns = Table(box=None, pad_edge=False)
    for heading in ("STEP", "FORMAT", "LEVEL", "PATH", "PROBLEMS"):
        columns.add_column(heading, overflow="fold")
    for each in listing.checkpoints:
        columns.add_row(str(each.step), each.format, each.level, each.path, Text("; ".join(each.problems)))
    if listing.checkpoints:
        console.print(columns)
    for problem in listing.problems:
        console.print(Text(problem, style="bold yellow"))
    console.print(Text(f"Resume: {choice.why}"))
