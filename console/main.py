"""The `sickbay` command.

Called by the console script of the package. It knows each command by its name, one line of help and the module that
holds it, and imports that module only when the command is called: `sickbay --help` and `sickbay diagnose` must not
wait for the Temporal and Kubernetes clients, which take over a second to import. What a command does is none of its
business.

A module of commands offers `register(app: typer.Typer) -> None`, which adds the command, or the group of commands, of
the name it is listed under here.
"""

import errno
import io
import os
import sys
import traceback
from collections.abc import Sequence
from importlib import import_module, metadata
from typing import Any, Final, NoReturn

import typer
from typer.core import TyperCommand, TyperGroup

from console.errors import UserError

COMMANDS: Final = {
    "diagnose": ("console.diagnose", "Say what a kernel log shows, and what would cure it."),
    "check": ("console.check", "Say how this machine is, or what recorded outputs show."),
    "incidents": ("console.incidents", "List, show and decide incidents."),
    "train": ("console.train", "Submit, follow and explain training jobs."),
    "checkpoints": ("console.checkpoints", "Say which checkpoints are whole and may be resumed."),
    "policy": ("console.policy", "Check a policy file, or explain what it would do."),
    "doctor": ("console.doctor", "Say what in a cluster would make Sickbay fail."),
    "controller": ("console.controller", "Run the cluster's controller: watch, contain, repair."),
    "demo": ("console.demo", "Watch real faults being repaired on a simulated cluster."),
    "simulate": ("console.simulate", "Run a simulated cluster to try things on."),
    "node": ("console.node", "Run the agent of one GPU node: detect, publish, repair."),
}
"""Every command: its module, and its line in the help text."""


class LazyCommand(TyperCommand):
    """Stands for a command in the help text, and gives way to the real one when it is called."""

    def __init__(self, name: str, module: str, summary: str) -> None:
        super().__init__(name, help=summary)
        self.module = module

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        """The context of the real command, so that the real command is what runs."""
        return self.load().make_context(info_name, args, parent, **extra)

    def load(self) -> Any:
        """Import the module of this command and let it register. Raises KeyError if it registers another name."""
        app = typer.Typer(rich_markup_mode=None, add_completion=False)
        import_module(self.module).register(app)
        return typer.main.get_group(app).commands[self.name or ""]


class LazyGroup(TyperGroup):
    """The top-level group, which knows its commands before they are imported."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        for name, (module, summary) in COMMANDS.items():
            self.add_command(LazyCommand(name, module, summary))


app = typer.Typer(
    cls=LazyGroup,
    no_args_is_help=True,
    rich_markup_mode=None,  # plain help: quick to print, and the same in a pipe
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"sickbay {metadata.version('sickbay')}")
        raise typer.Exit


@app.callback()
def sickbay(
    version: bool = typer.Option(False, "--version", callback=_print_version, is_eager=True, help="Show the version."),
) -> None:
    """Durable repair of sick GPU nodes on Kubernetes and AWS."""


def run(arguments: Sequence[str]) -> int:
    """Run one command line; the exit code, with a user's error told on stderr in one line."""
    try:
        app(list(arguments), prog_name="sickbay")
    except UserError as error:
        print(f"sickbay: {error}", file=sys.stderr)
        return error.exit_code
    except OSError as error:
        if error.errno != errno.ENOSPC or error.filename is not None:
            raise
        print("sickbay: the output cannot be written: no space is left; print it elsewhere", file=sys.stderr)
        return 2
    except SystemExit as ending:
        return ending.code if isinstance(ending.code, int) else int(ending.code is not None)
    return 0


def main() -> NoReturn:
    """The console script. It leaves without the interpreter's own shutdown.

    A process that used a Temporal client may abort while Python finalises (facts: Temporal, 0.10); after a flush there
    is nothing left that finalising would do for us.
    """
    _use_what_streams_there_are()
    try:
        code = run(sys.argv[1:])
    except Exception:  # noqa: BLE001 - a fault of ours: its traceback is the report, and we must still reach `_exit`
        traceback.print_exc()
        code = 1
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except OSError:
        pass  # the reader (`head`, a pager) has seen enough, or `run` has told that the disk is full
    os._exit(code)


def _use_what_streams_there_are() -> None:
    """Print what a terminal's encoding lacks as an escape, and do without a stream that the caller closed."""
    if sys.stdin is None:
        sys.stdin = open(os.devnull, encoding="utf-8")  # noqa: SIM115 - it lives as long as the process
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115 - as above
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
