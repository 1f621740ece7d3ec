"""A short account of a training job in Markdown, for the Temporal UI. Called by the workflow whenever it changes."""

from typing import Final

from sickbay.training.job import JobStage, JobView

LINES_SHOWN: Final = 12
"""Newest lines of the timeline; the rest is in the workflow's history."""


def account(view: JobView) -> str:
    """The job as a person wants to see it at a glance: what it does, what it waits for, what was last."""
    lines = [f"**{view.namespace}/{view.name}**: {view.outcome or view.stage}", ""]
    if view.attempt:
        lines.append(f"- attempt {view.attempt} on {view.nodes} node(s)")
    if view.step is not None:
        of = f" of {view.target_step}" if view.target_step else ""
        lines.append(f"- step {view.step}{of}")
    if view.resume is not None and view.resume.why:
        lines.append(f"- resumed: {view.resume.why}")
    if view.waiting_for:
        until = f", until {view.waiting_until:%Y-%m-%d %H:%M:%S}Z" if view.waiting_until else ""
        lines.append(f"- waits for {view.waiting_for}{until}")
    if view.verdict is not None:
        lines.append(f"- last failure: {view.verdict.failure_class} by {view.verdict.rule}: {view.verdict.reason}")
    lines += [f"- slow: {words}" for words in view.slow]
    if view.stage is JobStage.HELD:
        lines.append(f"- to decide: `sickbay train retry|from-step|cancel {view.namespace}/{view.name}`")
    lines += ["", *(f"- {entry.at:%m-%d %H:%M:%S} {entry.text}" for entry in view.timeline[-LINES_SHOWN:])]
    return "\n".join(lines)
