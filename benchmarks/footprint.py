"""What the node agent takes from a node at rest: memory, processor, and writes of the Node object.

Run by people: `python benchmarks/footprint.py [--seconds N]`. It starts the embedded Temporal server and one simulated
node with eight GPUs, lets the real agent run on it with its shipped settings, waits until it has settled, and then
measures the agent with all of its children: proportional set size (`/proc/PID/smaps_rollup`), processor time (its own
and that of its ended children) and the writes that a watch of the Node shows. The bounds are 96 MB, 1 % of one core
and one write a minute; past one of them the exit code is 1.
"""

import argparse
import asyncio
import json
import os
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

import aiohttp

from console.embedded_temporal import embedded_temporal
from console.processes import own_environment, running
from sickbay.names import ANNOTATION_FAULTS, CONDITIONS

MEMORY_BOUND: Final = 96.0
"""Megabytes, of a million bytes."""
CORE_BOUND: Final = 1.0
"""Per cent of one core."""
WRITES_BOUND: Final = 1.0
"""A minute; one more in all is not counted, since a window may hold the ends of two minutes."""
SETTLE_SECONDS: Final = 90.0
TICKS: Final = os.sysconf("SC_CLK_TCK")

SCENARIO: Final = """\
speed: 20
pools:
  - name: p5
    nodes: 1
    instance_type: p5.48xlarge
"""
_SETTINGS: Final = {"SICKBAY_SERVE_HOST": "127.0.0.1", "SICKBAY_SERVE_PORT": "0", "SICKBAY_GPU_CLIENTS": ""}


class Taken(NamedTuple):
    """What the agent took in one measured window."""

    megabytes: float
    """At most, of the samples."""
    core_per_cent: float
    writes_a_minute: float
    processes: int
    """Started in the window, as far as the samples saw."""


class Family:
    """The agent's process and everything that it started."""

    def __init__(self, node: str) -> None:
        self.agent = _find_agent(node)

    def members(self) -> list[int]:
        """The agent and its living descendants."""
        children: dict[int, list[int]] = {}
        for process in _processes():
            with suppress(OSError, IndexError):
                children.setdefault(int(_stat(process)[1]), []).append(process)
        found, waiting = [], [self.agent]
        while waiting:
            process = waiting.pop()
            found.append(process)
            waiting += children.get(process, [])
        return found

    def megabytes(self, members: list[int]) -> float:
        """Memory of these processes, what they share with others counted in part."""
        total = 0
        for process in members:
            with suppress(OSError, StopIteration):
                lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
                total += int(next(line for line in lines if line.startswith("Pss:")).split()[1])
        return total * 1024 / 1e6

    def processor_seconds(self, members: list[int]) -> float:
        """Time of the agent, of its ended children and of those that live."""
        own = sum(map(int, _stat(self.agent)[11:15]))
        living = 0
        for process in members:
            if process != self.agent:
                with suppress(OSError):
                    living += sum(map(int, _stat(process)[11:15]))
        return (own + living) / TICKS


async def measure(seconds: float, folder: Path) -> Taken:
    """Run one node and measure its agent over this time."""
    scenario = folder / "one-node.yaml"
    scenario.write_text(SCENARIO)
    async with embedded_temporal(folder) as temporal:
        agent = f"{sys.executable} -m console node"
        command = [sys.executable, "-m", "simulator", str(scenario), "--hold", "--with-parent"]
        command += ["--folder", str(folder / "cluster"), "--agent", agent]
        environment = {**own_environment(), **_SETTINGS, "TEMPORAL_ADDRESS": temporal.server}
        log = folder / "simulator.log"
        async with running(command, log, environment, stdout=asyncio.subprocess.PIPE) as process:
            assert process.stdout is not None
            addresses = json.loads(await asyncio.wait_for(process.stdout.readline(), 120))
            async with aiohttp.ClientSession() as session:
                node = await _reported_node(session, addresses["kube"])
                await asyncio.sleep(SETTLE_SECONDS)
                return await _window(session, addresses["kube"], node, seconds)


async def _window(session: aiohttp.ClientSession, kube: str, node: str, seconds: float) -> Taken:
    family = Family(node)
    writes = asyncio.create_task(_count_writes(session, kube, node, seconds))
    began, before = time.monotonic(), family.processor_seconds(family.members())
    most, seen = 0.0, set[int]()
    while time.monotonic() - began < seconds:
        members = family.members()
        most = max(most, family.megabytes(members))
        seen.update(members)
        await asyncio.sleep(0.25)
    used = family.processor_seconds(family.members()) - before
    elapsed = time.monotonic() - began
    return Taken(most, 100 * used / elapsed, max(0, await writes - 1) * 60 / elapsed, len(seen) - 1)


async def _reported_node(session: aiohttp.ClientSession, kube: str) -> str:
    async with asyncio.timeout(180):
        while True:
            async with session.get(f"{kube}/api/v1/nodes") as answer:
                nodes = (await answer.json())["items"]
            for node in nodes:
                if _ours(node)[1]:
                    return str(node["metadata"]["name"])
            await asyncio.sleep(1)


async def _count_writes(session: aiohttp.ClientSession, kube: str, node: str, seconds: float) -> int:
    """How often what the agent writes changed."""
    query = {"watch": "true", "fieldSelector": f"metadata.name={node}", "timeoutSeconds": str(int(seconds))}
    last, count = None, -1
    async with session.get(f"{kube}/api/v1/nodes", params=query) as answer:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                async for line in answer.content:
                    ours = _ours(json.loads(line)["object"])
                    count += ours != last
                    last = ours
    return max(count, 0)


def _ours(node: dict[str, Any]) -> tuple[list[Any], str]:
    conditions = [each for each in node.get("status", {}).get("conditions", []) if each["type"] in CONDITIONS]
    return conditions, node["metadata"].get("annotations", {}).get(ANNOTATION_FAULTS, "")


def _find_agent(node: str) -> int:
    wanted = f"SICKBAY_NODE_NAME={node}".encode()
    for process in _processes():
        with suppress(OSError):
            words = Path(f"/proc/{process}/cmdline").read_bytes().split(b"\0")
            settings = Path(f"/proc/{process}/environ").read_bytes().split(b"\0")
            # `machine-init` has the same words behind its own.
            if words[:-1] == [sys.executable.encode(), b"-m", b"console", b"node"] and wanted in settings:
                return process
    raise RuntimeError(f"the agent of {node} does not run")


def _processes() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _stat(process: int) -> list[str]:
    """The fields of /proc/PID/stat from the state on (proc(5)); a name may hold spaces and brackets."""
    return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()


def main() -> int:
    """Measure, print, and judge against the bounds."""
    parser = argparse.ArgumentParser(description="Measure the node agent at rest.")
    parser.add_argument("--seconds", type=float, default=300, help="length of the measured window (default: 300)")
    seconds = parser.parse_args().seconds
    with tempfile.TemporaryDirectory(prefix="sickbay-benchmark-") as folder:
        taken = asyncio.run(measure(seconds, Path(folder)))
    print(f"memory     {taken.megabytes:6.1f} MB           (bound {MEMORY_BOUND:g})")  # noqa: T201
    print(f"processor  {taken.core_per_cent:6.2f} % of a core  (bound {CORE_BOUND:g})")  # noqa: T201
    print(f"writes     {taken.writes_a_minute:6.2f} a minute     (bound {WRITES_BOUND:g})")  # noqa: T201
    print(f"children   {taken.processes:6d} seen in {seconds:g} s")  # noqa: T201
    bounds = ((taken.megabytes, MEMORY_BOUND), (taken.core_per_cent, CORE_BOUND), (taken.writes_a_minute, WRITES_BOUND))
    return 0 if all(value <= bound for value, bound in bounds) else 1


if __name__ == "__main__":
    sys.exit(main())
