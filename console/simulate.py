"""`sickbay simulate SCENARIO`: a stage of one's own to try policies, faults and commands on, until Ctrl-C.

Called by people. It starts what `console.stage` starts and prints where everything is; it plays the scenario's faults,
and leaves every decision to the person.
"""

import asyncio
from importlib import resources
from pathlib import Path
from typing import Annotated

import aiohttp
import typer
from rich.console import Console

from console.controller import read_policy
from console.errors import UserError
from console.incident_text import console_for_people
from console.processes import program
from console.stage import CONTROLLER_LOG, Stage, controlled, staged, until_controlled, working_folder
from simulator.scenario import ScenarioError, built_in, load


def register(app: typer.Typer) -> None:
    """Add the command `simulate`."""

    @app.command()
    def simulate(
        scenario: Annotated[str, typer.Argument(help=f"A scenario file, or one of {', '.join(built_in())}.")],
        policy: Annotated[
            Path | None, typer.Option("--policy", help="Your policy file; the demo's without one.")
        ] = None,
        speed: Annotated[float | None, typer.Option("--speed", help="Simulated seconds per real second.")] = None,
        folder: Annotated[Path | None, typer.Option("--folder", help="Where logs go; a temporary one without.")] = None,
    ) -> None:
        """Run a simulated cluster with Temporal and the real controller, and play a scenario's faults, until Ctrl-C."""
        try:
            load(scenario)
            read_policy(policy, "--policy")
        except ScenarioError as error:
            raise UserError(str(error)) from error
        where = working_folder(folder, "simulate")
        try:
            asyncio.run(_run(scenario, where, policy, speed))
        except KeyboardInterrupt:
            raise typer.Exit(0) from None


async def _run(scenario: str, folder: Path, policy: Path | None, speed: float | None) -> None:
    console = console_for_people()
    console.print(f"Starting a Temporal server and a simulated cluster; logs are in {folder}", soft_wrap=True)
    with resources.as_file(resources.files("console") / "demo_policy.yaml") as shipped:
        async with staged(scenario, folder, speed=speed) as stage, controlled(stage, policy or shipped) as controller:
            await until_controlled(stage)
            _tell(console, stage)
            async with aiohttp.ClientSession(stage.simulator.control) as session, session.post("/play") as answer:
                answer.raise_for_status()
            await controller.wait()
            raise UserError(f"the controller ended; see {folder / CONTROLLER_LOG}", 1)


def _tell(console: Console, stage: Stage) -> None:
    """Where everything is, in lines that can be pasted into a shell."""
    console.print(f"Temporal's UI: {stage.temporal.ui}", style="bold", soft_wrap=True)
    console.print(f"export TEMPORAL_ADDRESS={stage.temporal.server}", soft_wrap=True)
    console.print(f"export KUBECONFIG={stage.simulator.kubeconfig}", soft_wrap=True)
    console.print(f"See and decide: {program()} incidents list", soft_wrap=True)
    console.print(f"Break something: POST {stage.simulator.control}/machines/NODE/faults", soft_wrap=True)
    console.print("The scenario's faults begin. Ctrl-C ends it all.")
