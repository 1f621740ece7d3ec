"""`sickbay check`: how this machine is, or what recorded outputs of another one show.

Called by `console.main`. It runs the checks of the node agent once, without an agent, a cluster or any rights: what
cannot be read is unknown. Exit code 0: healthy; 1: faults; 2: unknown, or nothing could be judged.
"""

from collections.abc import Iterator, Sequence
from typing import Annotated, Final

import typer
from pydantic import ValidationError

from console.check_text import as_json, as_text, explain_check, explain_kind
from console.errors import UserError, wrong_environment
from console.recordings import judge_recordings
from health.one_pass import all_checks, one_pass
from health.settings import LookSettings
from sickbay.checks import ActiveDepth, CheckLayer, CheckReport, CheckResult, overall
from sickbay.recorded.kinds import KINDS

_EXIT_CODES: Final = {CheckResult.HEALTHY: 0, CheckResult.FAULTS: 1}
_UNKNOWN: Final = 2


def register(app: typer.Typer) -> None:
    """Add the command to an application."""

    @app.command(name="check")
    def command(
        layer: Annotated[list[CheckLayer] | None, typer.Option(help="Run this layer only; may be repeated.")] = None,
        recorded: Annotated[
            list[str] | None,
            typer.Option(
                "--from",
                metavar="KIND[:EXIT]=FILE",
                help="Judge a recorded output, and no machine; may be repeated. FILE - is standard input; EXIT is what "
                f"the command ended with. Kinds: {', '.join(KINDS)}.",
            ),
        ] = None,
        active: Annotated[bool, typer.Option("--active", help="Try out idle GPUs too: seconds each.")] = False,
        burn_in: Annotated[bool, typer.Option("--burn-in", help="Load idle GPUs and their links: minutes.")] = False,
        json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
        explain: Annotated[
            str | None, typer.Option(metavar="NAME", help="Say what a check looks at, why, and its limits.")
        ] = None,
    ) -> None:
        """Say how this machine is, or what recorded outputs of another one show.

        Settings come from environment variables SICKBAY_..., as those of the node agent. Exit code: 0 healthy, 1
        faults, 2 unknown.
        """
        if explain is not None:
            raise typer.Exit(explain_command(explain))
        if recorded and (layer or active or burn_in):
            raise UserError("--from judges recordings: leave out --layer, --active and --burn-in, which ask a machine")
        depth = ActiveDepth.BURN_IN if burn_in else ActiveDepth.QUICK if active else ActiveDepth.NONE
        reports = judge_recordings(recorded) if recorded else look(layer or (), depth)
        raise typer.Exit(print_reports(reports, in_json=json))

    @app.callback()
    def group() -> None:
        """Keep the command's name, which typer drops from an application of one command."""


def look(layers: Sequence[CheckLayer], depth: ActiveDepth) -> tuple[CheckReport, ...]:
    """Run the checks of these layers, of all if none is named. Raises UserError for settings that cannot work."""
    reports = one_pass(_settings(), frozenset(layers), depth)
    if not reports:
        raise UserError(f"--layer {layers[0]}: no check of this layer runs on a machine")
    return reports


def print_reports(reports: tuple[CheckReport, ...], *, in_json: bool) -> int:
    """Print what was found; the exit code."""
    result = overall(reports)
    for line in [as_json(result, reports)] if in_json else as_text(result, reports):
        print(line)
    return _EXIT_CODES.get(result, _UNKNOWN)


def explain_command(name: str) -> int:
    """Print what a check or a kind of recording is about. Raises UserError, with all names, if there is none."""
    checks = all_checks(_settings())
    lines: list[Iterator[str]] = [explain_check(about) for about in checks if about.name == name]
    lines += [explain_kind(about) for about in KINDS.values() if about.kind == name]
    if not lines:
        names = sorted({about.name for about in checks} | set(KINDS))
        raise UserError(f"--explain {name}: no check is called that; there are {', '.join(names)}")
    for part in lines:
        for line in part:
            print(line)
    return 0


def _settings() -> LookSettings:
    try:
        return LookSettings()
    except ValidationError as error:
        raise wrong_environment(error) from error
