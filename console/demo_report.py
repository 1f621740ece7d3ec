"""The demo's account in Markdown: what became of each node and of the job, with times and proofs; and the timeline."""

from collections.abc import Sequence
from datetime import datetime, timedelta

from sickbay.goodput.account import account_for
from sickbay.incident import IncidentView
from sickbay.training.job import JobOutcome, JobView


def markdown(
    views: Sequence[IncidentView], wrong: Sequence[str], began_at: datetime, job: JobView | None = None
) -> str:
    """The report. Times of the timeline count from `began_at`."""
    lines = ["# Sickbay demo", "", "All ended as they must." if not wrong else "Not all ended as they must:", ""]
    lines += [f"- {each}" for each in wrong] + ([""] if wrong else [])
    lines += [
        "| node | faults | outcome | rung | blocked after | open for | proof |",
        "|---|---|---|---|---|---|---|",
        *(_row(view) for view in views),
    ]
    for view in views:
        lines += ["", f"## {view.node.name} ({view.node.machine})", "", f"Verdict: {view.verdict.reason}", ""]
        lines += [f"- evidence: `{line}`" for fault in (*view.faults, *view.cleared) for line in fault.evidence[:1]]
        lines += [f"- {yes.rung} approved by {yes.by}: {yes.reason}" for yes in view.approvals]
    told = [(entry.at, view.node.name, entry.text) for view in views for entry in view.timeline]
    if job is not None:
        lines += ["", f"## {job.name}", "", *(f"- {line}" for line in survived(job))]
        told += [(line.at, job.name, line.text) for line in job.timeline]
    lines += ["", "## Timeline", ""]
    entries = sorted(told)
    lines += [f"- {seconds(at - began_at)} **{node}** {text}" for at, node, text in entries]
    return "\n".join(lines) + "\n"


def survived(job: JobView) -> list[str]:
    """What became of the job, attempt by attempt, and of its time."""
    lines = []
    for record in job.history.attempts:
        resumed = f"from step {record.resume_step}" if record.resume_step else "from the beginning"
        cause = f" ({record.verdict.failure_class} by {record.verdict.rule})" if record.verdict else ""
        lines.append(f"attempt {record.attempt} on {', '.join(record.node_names)} {resumed}: {record.why}{cause}")
    closed, succeeded = job.closed_at, job.outcome is JobOutcome.SUCCEEDED
    made = account_for(job.history, job.submitted_at, closed or job.submitted_at, closed, succeeded=succeeded)
    parts = [f"{each.bucket} {seconds(each.time)}" for each in made.buckets if each.time]
    return [*lines, f"{job.outcome or job.stage} at step {job.step} after {seconds(made.wall)}: {', '.join(parts)}"]


def proof_of(view: IncidentView) -> str:
    """The proof of the rung that cured it; for a node that nobody touched, that it was not."""
    proofs = [intent.proof for intent in view.intents if intent.proof]
    return proofs[-1] if proofs else "nothing was done to it"


def faults_of(view: IncidentView) -> str:
    """The codes of all its faults."""
    return ", ".join(sorted({fault.code for fault in (*view.faults, *view.cleared)}))


def seconds(duration: timedelta) -> str:
    """A short duration for people."""
    return f"{duration.total_seconds():.1f} s"


def contained_in(view: IncidentView) -> str:
    """From the incident's opening to the block on new work."""
    return seconds(view.contained_at - view.opened_at) if view.contained_at else "-"


def open_for(view: IncidentView) -> str:
    """From the incident's opening to its close."""
    return seconds(view.closed_at - view.opened_at) if view.closed_at else "still open"


def _row(view: IncidentView) -> str:
    rung = view.intents[-1].rung if view.intents else "none"
    cells = (
        view.node.name,
        faults_of(view),
        view.outcome or view.stage,
        rung,
        contained_in(view),
        open_for(view),
        proof_of(view),
    )
    return "| " + " | ".join(cells) + " |"
