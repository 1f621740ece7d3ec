"""`python -m simulator SCENARIO`: a GPU cluster in a box, until it is told to stop.

SCENARIO is a file or the name of a built-in scenario. When clients can connect, one line of JSON with the addresses
comes on standard output; everything else goes to standard error. Exit codes: 0 after a stop that was asked for, 2 for a
scenario or a system that cannot be used, with the reason in one line.
"""

import argparse
import asyncio
import logging
import shlex
import sys
import tempfile
from pathlib import Path

from simulator.host.native import NativeBuildError
from simulator.scenario import ScenarioError, built_in, load


def parse_arguments(words: list[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m simulator", description="A simulated GPU cluster.")
    parser.add_argument("scenario", help=f"a scenario file, or one of {', '.join(built_in())}")
    parser.add_argument("--agent", default="", help="command of the node agent, run on every machine")
    parser.add_argument("--folder", type=Path, help="where the machines' files go (default: a temporary folder)")
    parser.add_argument("--speed", type=float, help="simulated seconds per real second, instead of the scenario's")
    parser.add_argument("--hold", action="store_true", help="begin the faults only when POST /play asks for them")
    parser.add_argument("--with-parent", action="store_true", help="stop when the process that started this one ends")
    parser.add_argument("--verbose", action="store_true", help="log what the simulated world does")
    return parser.parse_args(words)


async def run(arguments: argparse.Namespace) -> None:
    """Serve the scenario. Raises ScenarioError or NativeBuildError where that cannot be."""
    scenario = load(arguments.scenario)
    if arguments.speed is not None:
        if not 0 < arguments.speed <= 1000:
            raise ScenarioError(f"--speed {arguments.speed:g}: give a number above 0 and up to 1000")
        scenario = scenario.model_copy(update={"speed": arguments.speed})
    try:
        from simulator.process import Simulation, serve
    except ModuleNotFoundError as error:
        raise ScenarioError(f"the simulator needs {error.name}: pip install 'sickbay[demo]'") from error
    with tempfile.TemporaryDirectory(prefix="sickbay-simulator-") as temporary:
        folder = arguments.folder or Path(temporary)
        simulation = Simulation(
            scenario, folder.resolve(), agent=tuple(shlex.split(arguments.agent)), hold=arguments.hold
        )
        await serve(simulation, with_parent=arguments.with_parent)


def main() -> int:
    """Run the command line; the exit code."""
    arguments = parse_arguments()
    level = logging.INFO if arguments.verbose else logging.WARNING
    logging.basicConfig(level=level, stream=sys.stderr, format="%(levelname)s %(name)s: %(message)s")
    try:
        asyncio.run(run(arguments))
    except (ScenarioError, NativeBuildError) as error:
        sys.stderr.write(f"{error}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
