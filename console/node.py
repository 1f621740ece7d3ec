"""`sickbay node`: runs the agent of one GPU node, from the environment alone.

Called by the DaemonSet, and by the simulator for its own nodes. It only turns wrong settings into one clear line.
"""

import asyncio

import typer
from pydantic import ValidationError

from console.errors import UserError, wrong_environment
from console.lean_imports import leave_out_unused
from health.api_server import NoAccessError
from health.settings import NodeSettings


def register(app: typer.Typer) -> None:
    """Add the command `node`."""

    @app.command()
    def node() -> None:
        """Run the agent of one GPU node: find faults, publish them, and repair what the incident asks for.

        Settings come from environment variables SICKBAY_...; SICKBAY_NODE_NAME is the one that must be set.
        """
        raise typer.Exit(node_command())


def node_command() -> int:
    """Run until SIGTERM; the exit code. Raises UserError for settings that cannot work."""
    settings = read_settings()
    leave_out_unused()
    from workers.logging import LogFormat, configure_logging
    from workers.node import run_node

    configure_logging(LogFormat(settings.log_format), settings.log_level)
    try:
        return asyncio.run(run_node(settings))
    except NoAccessError as error:
        raise UserError(str(error)) from error
    except OSError as error:
        if error.filename != str(settings.boot_id_path):
            raise
        raise UserError(
            f"SICKBAY_BOOT_ID_PATH: cannot read the boot id from {error.filename}: {error.strerror}; "
            "name the file that holds it"
        ) from error


def read_settings() -> NodeSettings:
    """The settings of the environment. Raises UserError naming each variable that is wrong, and why."""
    try:
        return NodeSettings()
    except ValidationError as error:
        raise wrong_environment(error) from error
