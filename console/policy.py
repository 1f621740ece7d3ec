"""`sickbay policy`: is a policy file right, and what would it do.

Called by `console.main`. Needs neither Temporal nor a cluster. `check` exits 0 for a file that can be used, 1 for one
that cannot, with every problem on a line of its own, and 2 for one that cannot be read.
"""

import sys
from pathlib import Path
from typing import Annotated

import typer

from console.errors import UserError
from sickbay.policy.explain import explain
from sickbay.policy.file import Policy, parse_policy
from sickbay.policy.problems import PolicyError

PolicyFile = Annotated[Path, typer.Argument(metavar="FILE", help="A policy file, YAML.")]


def register(app: typer.Typer) -> None:
    """Add the command group `policy`."""
    group = typer.Typer(no_args_is_help=True, rich_markup_mode=None)

    @group.command(name="check")
    def check(file: PolicyFile) -> None:
        """Say whether a policy file can be used; if not, every problem of it with line, place and cure.

        Exit code: 0 it can, 1 it cannot, 2 it cannot be read.
        """
        raise typer.Exit(check_command(file))

    @group.command(name="explain")
    def explain_(
        file: PolicyFile,
        fault: Annotated[str, typer.Option(help="A fault code, e.g. xid-79, gpu-lost, node-not-ready.")],
        pool: Annotated[str, typer.Option(help="A pool's name, as nodes carry it.")] = "",
    ) -> None:
        """Print the ladder, with its timers, that a fault on a node of a pool would climb."""
        raise typer.Exit(explain_command(file, fault, pool))

    app.add_typer(group, name="policy", help="Check a policy file, or explain what it would do.")


def check_command(file: Path) -> int:
    """Print whether the file can be used; the exit code. Raises UserError if it cannot be read."""
    policy = _policy(file)
    if policy is None:
        return 1
    pools = f", {len(policy.pools)} pool section(s)" if policy.pools else ""
    print(f"{file}: policy {policy.version} ({policy.digest}) is right{pools}")
    return 0


def explain_command(file: Path, fault: str, pool: str) -> int:
    """Print what the policy does about a fault; the exit code. Raises UserError if the file cannot be read."""
    policy = _policy(file)
    if policy is None:
        return 1
    print(explain(policy, fault.strip().lower(), pool))
    return 0


def _policy(file: Path) -> Policy | None:
    """The policy of a file; None after its problems were printed."""
    try:
        return parse_policy(file.read_bytes(), str(file))
    except OSError as error:
        raise UserError(f"cannot read policy file {file}: {error.strerror}; name a file that you may read") from error
    except PolicyError as error:
        print(error, file=sys.stderr)
        print(f"{file}: {len(error.problems)} problem(s)", file=sys.stderr)
        return None
