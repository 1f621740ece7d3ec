"""What the demo shows while it runs: a live table where there is a terminal, and a line for each event everywhere."""

from collections.abc import Sequence

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from console.demo_report import contained_in, faults_of, open_for, proof_of
from sickbay.faults import Rung
from sickbay.incident import IncidentView, Stage
from sickbay.training.job import JobView

_STYLES = {
    Stage.AWAITING_APPROVAL: "bold yellow",
    Stage.HANDED_OVER: "bold yellow",
    Stage.HELD: "bold yellow",
    Stage.CLOSED: "green",
}


class DemoDisplay:
    """Prints each incident's timeline as it grows, above a table of how all stand; a context manager."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = Live(console=console, refresh_per_second=4, transient=True) if console.is_terminal else None
        self._told: dict[str, int] = {}

    def __enter__(self) -> "DemoDisplay":
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def say(self, text: str, style: str = "") -> None:
        """One line."""
        self._console.print(Text(text, style=style), soft_wrap=True)

    def show(self, views: Sequence[IncidentView], job: JobView | None = None) -> None:
        """Bring everything up to date."""
        for view in views:
            for entry in view.timeline[self._told.get(view.incident_id, 0) :]:
                self.say(f"{entry.at:%H:%M:%S}  {view.node.name:<14} {entry.text}")
            self._told[view.incident_id] = len(view.timeline)
        if job is not None:
            for line in job.timeline[self._told.get(job.job_id, 0) :]:
                self.say(f"{line.at:%H:%M:%S}  {job.name:<14} {line.text}", "cyan")
            self._told[job.job_id] = len(job.timeline)
        if self._live is not None:
            self._live.update(Group(Text(), _standing(views), *([_at_work(job)] if job is not None else [])))


def _standing(views: Sequence[IncidentView]) -> Table:
    table = Table(title="incidents", title_justify="left", expand=True)
    for heading in ("node", "faults", "stage", "rung", "waits for"):
        table.add_column(heading, overflow="fold")
    for view in views:
        table.add_row(
            view.node.name,
            faults_of(view),
            Text(view.outcome or view.stage, style=_STYLES.get(view.stage, "cyan")),
            "" if view.rung is Rung.NONE else view.rung,
            view.waiting_for,
        )
    return table


def _at_work(job: JobView) -> Table:
    table = Table(title="training job", title_justify="left", expand=True)
    for heading in ("job", "stage", "attempt", "nodes", "step", "waits for"):
        table.add_column(heading, overflow="fold")
    nodes = ", ".join(sorted({place.node for place in job.placements if place.node}))
    step = f"{job.step or 0} of {job.target_step}"
    table.add_row(job.name, job.outcome or job.stage, str(job.attempt), nodes, step, job.waiting_for)
    return table


def ends(views: Sequence[IncidentView]) -> Table:
    """The table at the end."""
    table = Table(title="how it ended", title_justify="left", expand=True)
    for heading in ("node", "faults", "outcome", "rung", "blocked after", "open for", "proof"):
        table.add_column(heading, overflow="fold")
    for view in views:
        rung = view.intents[-1].rung if view.intents else "none"
        outcome = view.outcome or view.stage
        table.add_row(
            view.node.name, faults_of(view), outcome, rung, contained_in(view), open_for(view), proof_of(view)
        )
    return table
