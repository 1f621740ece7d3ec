"""`sickbay diagnose`: what a kernel log shows, and the gentlest step that would cure it.

Called by `console.main`. It reads the log once, in constant memory, and needs neither Temporal nor a cluster. Exit
code 0: nothing to do; 1: something to do; 2: the log cannot be read.
"""

import json
import os
import stat
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from enum import StrEnum
from pathlib import Path
from typing import Annotated, BinaryIO, Final

import typer

from console.errors import UserError
from console.fault_text import faults_as_json, faults_as_text
from sickbay.diagnosis import diagnose
from sickbay.faults import Fault, Rung, Verdict
from sickbay.kernel_log import KernelLogScanner
from sickbay.kernel_log.stream import NotTextError, feed_stream

STANDARD_INPUT: Final = "-"
KMSG_DEVICE: Final = os.makedev(1, 11)
"""Numbers of /dev/kmsg (Linux, admin-guide/devices.txt)."""


class OutputFormat(StrEnum):
    """How the diagnosis is printed."""

    TEXT = "text"
    JSON = "json"


def register(app: typer.Typer) -> None:
    """Add the command to an application."""

    @app.command(name="diagnose")
    def command(
        file: Annotated[str, typer.Argument(metavar="[FILE|-]", help="A kernel log; - or nothing reads a pipe.")] = "-",
        output_format: Annotated[OutputFormat, typer.Option("--format", help="How to print.")] = OutputFormat.TEXT,
    ) -> None:
        """Say what a kernel log shows, and what would cure it.

        Reads dmesg, journalctl -k, syslog, raw /dev/kmsg or Fabric Manager's log. Stamps of dmesg -T are taken as UTC.
        Exit code: 0 nothing to do, 1 something to do, 2 the log cannot be read.
        """
        raise typer.Exit(diagnose_command(file, output_format))

    @app.callback()
    def group() -> None:
        """Keep the command's name, which typer drops from an application of one command."""


def diagnose_command(file: str, output_format: str) -> int:
    """Print the diagnosis of a log and return the exit code. Raises `UserError` (exit code 2) on an unreadable log."""
    scanner = KernelLogScanner()
    try:
        with ExitStack() as stack:
            size = feed_stream(_open(file, stack), scanner)
    except NotTextError as error:
        raise UserError(f"{_name(file)} {error}") from error
    except OSError as error:
        raise UserError(f"cannot read {_name(file)}: {error.strerror or error}") from error
    if not size:  # no error, since a log may be new; but so looks a `dmesg` that may not read the kernel's log
        print(f"sickbay: {_name(file)} is empty, which proves nothing; may you read the kernel log?", file=sys.stderr)
    faults = scanner.faults()
    verdict = diagnose(faults)
    lines = [_as_json(verdict, faults)] if output_format == OutputFormat.JSON else _as_text(verdict, faults)
    for line in lines:
        print(line)
    return 0 if verdict.rung is Rung.NONE else 1


def _open(file: str, stack: ExitStack) -> BinaryIO:
    if file != STANDARD_INPUT:
        if _follows_the_kernel(file):
            raise UserError(f"{file} never ends; use `dmesg --raw | sickbay diagnose -`")
        return stack.enter_context(Path(file).open("rb"))
    if sys.stdin.isatty():
        raise UserError("no log given: name a FILE, or pipe one in, for example `dmesg | sickbay diagnose -`")
    return sys.stdin.buffer


def _follows_the_kernel(file: str) -> bool:
    """Whether it is the kernel's own device, under any name, whose reader waits for the next record for ever."""
    found = os.stat(file)
    return stat.S_ISCHR(found.st_mode) and found.st_rdev == KMSG_DEVICE


def _name(file: str) -> str:
    return "standard input" if file == STANDARD_INPUT else file


def _as_json(verdict: Verdict, faults: tuple[Fault, ...]) -> str:
    return json.dumps(
        {
            "verdict": verdict.model_dump(mode="json"),
            "faults": faults_as_json(faults),
        },
        indent=2,
    )


def _as_text(verdict: Verdict, faults: tuple[Fault, ...]) -> Iterator[str]:
    yield f"verdict   {verdict.fault_class}"
    yield f"do first  {verdict.rung}"
    if verdict.components:
        yield f"parts     {', '.join(f'{part.kind} {part.id}' for part in verdict.components)}"
    yield f"because   {verdict.reason}"
    yield from faults_as_text(faults)
