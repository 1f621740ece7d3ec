"""`sickbay demo`: Sickbay's main job on a simulated cluster, from kernel-log lines to proven repairs.

Called by people and by `make demo`. Everything that decides or repairs is the real thing (`console.stage`), and so is
the training job that loses its nodes; the demo only submits it and starts the faults, shows what happens, gives the
approval that a person would give, and checks how it ended.
"""

import asyncio
import uuid
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from importlib import resources
from pathlib import Path
from typing import Annotated, Final

import aiohttp
import typer
from rich.console import Console
from temporalio.client import Client

from console import demo_job, job_desk
from console.demo_display import DemoDisplay, ends
from console.demo_ends import ENDS, wrong_ends
from console.demo_report import markdown, survived
from console.errors import UserError
from console.incident_desk import handle_of, order, read
from console.incident_text import console_for_people
from console.processes import program
from console.stage import CLUSTER, Stage, controlled, staged, until_controlled, working_folder
from sickbay import names
from sickbay.diagnosis import diagnose
from sickbay.faults import Rung
from sickbay.incident import Command, CommandKind, IncidentView
from sickbay.incident import Stage as IncidentStage
from sickbay.kernel_log import scan
from sickbay.training.job import JobInput, JobView
from simulator.scenario import load
from workers.temporal_plugin import temporal_plugin

SCENARIO: Final = "demo"
LOG_SCENARIO: Final = "gpu-reset"
"""The cluster on which a user's own log is played; its own fault never begins."""
LONGEST_SECONDS: Final = 600.0
"""Past it the demo has failed; it takes two minutes."""
LONGEST_INTERACTIVE_SECONDS: Final = 3600.0
LOOK_SECONDS: Final = 0.5
JOB: Final = "llama-pretrain"
JOB_STEPS: Final = 600
"""A minute's work of its two nodes, of which the faults take both."""
THINKING_SECONDS: Final = 5.0
"""How long the demo shows the question before it answers as a person would."""
ENDED: Final = (IncidentStage.CLOSED, IncidentStage.HANDED_OVER)


def register(app: typer.Typer) -> None:
    """Add the command `demo`."""

    @app.command()
    def demo(
        interactive: Annotated[bool, typer.Option("--interactive", help="Leave the approval to you.")] = False,
        log: Annotated[Path | None, typer.Option("--log", help="Play your own kernel log on one node instead.")] = None,
        folder: Annotated[Path | None, typer.Option("--folder", help="Where logs and the report go.")] = None,
        keep: Annotated[bool, typer.Option("--keep", help="Leave it all running at the end, until Ctrl-C.")] = False,
    ) -> None:
        """Play real faults on a simulated GPU cluster, and watch them being repaired.

        Exit code 0 if every incident ended as it must, 1 if not.
        """
        try:
            raise typer.Exit(
                asyncio.run(_run(working_folder(folder, "demo"), interactive=interactive, log=log, keep=keep))
            )
        except KeyboardInterrupt:
            raise typer.Exit(130) from None


async def _run(folder: Path, *, interactive: bool, log: Path | None, keep: bool) -> int:
    console = console_for_people()
    lines = _lines(log) if log else []
    console.print(f"Starting a Temporal server and a simulated cluster; logs are in {folder}", soft_wrap=True)
    policy = resources.files("console") / "demo_policy.yaml"
    with resources.as_file(policy) as policy_file:
        async with staged(LOG_SCENARIO if log else SCENARIO, folder) as stage, controlled(stage, policy_file):
            console.print(f"Temporal's UI: {stage.temporal.ui}", style="bold", soft_wrap=True)
            await until_controlled(stage)
            demo = Demo(stage, await _client(stage), console, interactive=interactive)
            code = await (demo.play_log(lines) if log else demo.play())
            if keep:
                look = f"TEMPORAL_ADDRESS={stage.temporal.server} {program()} incidents list --all"
                console.print(f"Still running, until Ctrl-C: {look}", soft_wrap=True)
                await asyncio.Event().wait()
            return code


async def _client(stage: Stage) -> Client:
    """Of the stage's own server, whatever the user's environment says of others."""
    return await Client.connect(stage.temporal.server, plugins=[temporal_plugin()])


def _lines(log: Path) -> list[str]:
    try:
        text = log.read_bytes().decode(errors="replace")
    except OSError as error:
        raise UserError(f"--log {log}: {error.strerror}; name a file with a kernel log") from error
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    if not lines:
        raise UserError(f"--log {log}: the file is empty; name a file with a kernel log")
    return lines


class Demo:
    """One run of the demo on a stage that stands."""

    def __init__(self, stage: Stage, client: Client, console: Console, *, interactive: bool) -> None:
        self._stage = stage
        self._client = client
        self._console = console
        self._interactive = interactive
        self._asked: dict[str, datetime] = {}
        self._job: job_desk.Handle | None = None
        self._job_view: JobView | None = None
        self._began_at = datetime.now(UTC)

    async def play(self) -> int:
        """The four faults of the scenario, under a training job; the exit code."""
        nodes = await self._nodes()
        expected = {nodes[fault.node]: ENDS[fault.cured_by] for fault in load(SCENARIO).faults}
        self._console.print(f"{len(nodes)} nodes are up; a training job begins on two of them.")
        await self._submit()
        self._console.print("It has saved its first checkpoint; the faults begin.")
        await self._post("/play")
        views = await self._watch(lambda views: len(views) >= len(expected) and _all_ended(views) and self._job_over)
        wrong = wrong_ends(expected, views)
        if self._job_view is not None and (wrong_job := await demo_job.wrong_end(self._stage, self._job_view)):
            wrong = (*wrong, wrong_job)
        self._account(views, wrong)
        return 1 if wrong else 0

    async def _submit(self) -> None:
        """Submit the job as `sickbay train submit` would, and wait for its first checkpoint."""
        demo_job.make_bucket(self._stage)
        spec = demo_job.training_spec(self._stage, JOB, nodes=2, steps=JOB_STEPS, step_seconds=0.1)
        start = JobInput(cluster=CLUSTER, spec=spec, submitted_by="the demo", submitted_at=datetime.now(UTC))
        self._job = await job_desk.submit(self._client, start)
        async with asyncio.timeout(LONGEST_SECONDS):
            while self._job_view is None or self._job_view.history.durable_step is None:
                self._job_view = await job_desk.read(self._job)
                await asyncio.sleep(LOOK_SECONDS)

    @property
    def _job_over(self) -> bool:
        return self._job_view is not None and self._job_view.outcome is not None

    async def play_log(self, lines: Sequence[str]) -> int:
        """A user's own kernel log on one node; 0 once its incident has ended or waits for people."""
        verdict = diagnose(scan(lines))
        self._console.print(f"The log's verdict: {verdict.fault_class}, rung {verdict.rung}: {verdict.reason}")
        node = (await self._nodes())[0]
        await self._post(f"/machines/{node}/kernel-log", "\n".join(lines))
        if verdict.rung is Rung.NONE:
            self._console.print("Nothing is to be done about it: no incident is opened.")
            return 0
        views = await self._watch(lambda views: bool(views) and _all_ended(views))
        self._account(views, () if views else (f"{node}: no incident was opened",))
        return 0 if views else 1

    async def _watch(self, over: Callable[[Sequence[IncidentView]], bool]) -> list[IncidentView]:
        """Show all incidents, and answer for a person, until it is over or takes too long."""
        longest = LONGEST_INTERACTIVE_SECONDS if self._interactive else LONGEST_SECONDS
        views: list[IncidentView] = []
        with DemoDisplay(self._console) as display:
            try:
                async with asyncio.timeout(longest):
                    while not over(views):
                        views = await self._views()
                        if self._job is not None:
                            self._job_view = await job_desk.read(self._job)
                        display.show(views, self._job_view)
                        for view in views:
                            await self._answer(view, display)
                        await asyncio.sleep(LOOK_SECONDS)
            except TimeoutError:
                display.say(f"not over after {longest:g} s: see {self._stage.folder}", "bold red")
        return views

    async def _views(self) -> list[IncidentView]:
        query = f"WorkflowType = '{names.WORKFLOW_INCIDENT}'"
        ids = {execution.id async for execution in self._client.list_workflows(query)}
        views = []
        for incident_id in sorted(ids):
            try:
                views.append(await read(handle_of(self._client, incident_id)))
            except UserError:
                continue  # opened a moment ago, or between two workers: the next look shows it
        return sorted(views, key=lambda view: view.opened_at)

    async def _answer(self, view: IncidentView, display: DemoDisplay) -> None:
        """Show how a person approves; do it after a while, unless a person does."""
        if view.stage is not IncidentStage.AWAITING_APPROVAL:
            return
        now = datetime.now(UTC)
        if view.incident_id not in self._asked:
            self._asked[view.incident_id] = now
            typed = "Type, in another shell:" if self._interactive else "You would type:"
            display.say(f"{view.node.name} asks for a person's yes to {view.rung}. {typed}", "bold yellow")
            display.say(
                f"  TEMPORAL_ADDRESS={self._stage.temporal.server} {program()} incidents approve {view.incident_id} "
                f"--rung {view.rung} --reason 'the spare is there'",
                "yellow",
            )
        waited = (now - self._asked[view.incident_id]).total_seconds()
        if self._interactive or waited < THINKING_SECONDS:
            return
        self._asked[view.incident_id] = datetime.max.replace(tzinfo=UTC)
        command = Command(
            kind=CommandKind.APPROVE,
            by="the demo",
            reason="as a person would, having read the evidence",
            rung=view.rung,
            attempt=view.attempt,
            request_id=uuid.uuid4().hex,
        )
        reply = await order(handle_of(self._client, view.incident_id), command)
        display.say(f"the demo approves it: {reply.message}", "bold yellow")

    def _account(self, views: Sequence[IncidentView], wrong: Sequence[str]) -> None:
        self._console.print(ends(views))
        if self._job_view is not None:
            for line in survived(self._job_view):
                self._console.print(f"{self._job_view.name}: {line}", soft_wrap=True, highlight=False)
        for each in wrong:
            self._console.print(each, style="bold red")
        report = self._stage.folder / "report.md"
        report.write_text(markdown(views, wrong, self._began_at, self._job_view), encoding="utf-8")
        self._console.print(f"Report: {report}", soft_wrap=True)

    async def _nodes(self) -> list[str]:
        """Names of the first nodes, in the scenario's order, once all their agents run."""
        async with asyncio.timeout(LONGEST_SECONDS), aiohttp.ClientSession(self._stage.simulator.control) as session:
            while True:
                async with session.get("/machines") as answer:
                    machines = await answer.json()
                if machines and all(machine["agent_running"] for machine in machines):
                    return [machine["node"] for machine in machines]
                await asyncio.sleep(LOOK_SECONDS)

    async def _post(self, path: str, body: str = "") -> None:
        async with (
            aiohttp.ClientSession(self._stage.simulator.control) as session,
            session.post(path, data=body.encode()) as answer,
        ):
            answer.raise_for_status()


def _all_ended(views: Sequence[IncidentView]) -> bool:
    return all(view.stage in ENDED for view in views)
