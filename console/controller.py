"""`sickbay controller`: runs the cluster's controller, from the environment alone.

Registered by `console.main`. It reads settings and policy before anything starts, so that a mistake in either is one
clear line and changes nothing.
"""

import asyncio
import errno
from pathlib import Path

import typer
from pydantic import ValidationError

from activities.kube import ClusterAccessError
from console.errors import UserError
from sickbay.policy.file import Policy, default_policy, parse_policy
from sickbay.policy.problems import PolicyError
from workers.controller import run_controller
from workers.logging import configure_logging
from workers.settings import ControllerSettings


def register(app: typer.Typer) -> None:
    """Add the command `controller`."""

    @app.command()
    def controller() -> None:
        """Run the cluster's controller: watch nodes, contain sick ones, and run their incidents.

        Settings come from environment variables SICKBAY_...; SICKBAY_CLUSTER is the one that must be set. Temporal is
        found by TEMPORAL_ADDRESS and Temporal's other variables.
        """
        controller_command()


def controller_command() -> None:
    """Run until SIGTERM. Raises UserError for settings, a policy or an environment that cannot work."""
    settings = read_settings()
    policy = read_policy(settings.policy_file)
    configure_logging(settings.log_format, settings.log_level)
    try:
        asyncio.run(run_controller(settings, policy))
    except ClusterAccessError as error:
        raise UserError(str(error)) from error
    except OSError as error:
        if error.errno not in (errno.EADDRINUSE, errno.EADDRNOTAVAIL, errno.EACCES):
            raise
        place = f"{settings.serve_host}:{settings.serve_port}"
        raise UserError(
            f"SICKBAY_SERVE_PORT: cannot serve on {place}: {error.strerror}; choose another port"
        ) from error


def read_settings() -> ControllerSettings:
    """The settings of the environment. Raises UserError naming each variable that is wrong, and why."""
    try:
        return ControllerSettings()
    except ValidationError as error:
        wrong = (f"SICKBAY_{str(problem['loc'][0]).upper()}: {_clause(problem['msg'])}" for problem in error.errors())
        raise UserError(f"environment: {'; '.join(wrong)}") from error


def _clause(sentence: str) -> str:
    return sentence[:1].lower() + sentence[1:]


def read_policy(file: Path | None, named_by: str = "SICKBAY_POLICY_FILE") -> Policy:
    """The policy of a file, or the shipped one. Raises UserError with every problem of the file, and who named it."""
    if file is None:
        return default_policy()
    try:
        return parse_policy(file.read_bytes(), str(file))
    except OSError as error:
        raise UserError(f"{named_by}: cannot read {file}: {error.strerror}") from error
    except PolicyError as error:
        raise UserError(f"{named_by}: {error}") from error
