"""The short Markdown account of an incident that the Temporal UI shows at all times."""

from datetime import datetime

from sickbay.faults import Fault, Rung
from sickbay.incident import IncidentView, Stage

TIMELINE_SHOWN = 20

_NEXT_STEP = {
    Stage.AWAITING_APPROVAL: "Approve or reject: `sickbay incidents approve {id} --rung {rung} --reason ...`",
    Stage.HANDED_OVER: "Choose a rung or close it: `sickbay incidents choose-rung|close {id} --reason ...`",
    Stage.HELD: "Let it go on: `sickbay incidents release {id} --reason ...`",
}


def account(view: IncidentView) -> str:
    """What stands where, what it waits for and until when, what a person can do, and what happened."""
    lines = [
        f"**{view.node.name}** ({view.node.machine}, pool {view.node.pool or '-'}): **{view.stage}**",
        "",
        f"- verdict: {view.verdict.fault_class}, first rung {view.verdict.rung}: {view.verdict.reason}",
    ]
    if view.rung is not Rung.NONE:
        lines.append(f"- rung: {view.rung}, attempt {view.attempt}")
    if view.waiting_for:
        lines.append(f"- waits for {view.waiting_for}{_until(view.waiting_until)}")
    if view.handover is not None:
        lines.append(f"- handed over: {view.handover}")
    if view.outcome is not None:
        lines.append(f"- outcome: {view.outcome}")
    if hint := _NEXT_STEP.get(view.stage):
        lines.append(f"- {hint.format(id=view.incident_id, rung=view.rung)}")
    lines += _faults("open faults", view.faults) + _faults("cleared faults", view.cleared)
    lines += ["", f"Policy {view.policy_version}, catalogue {view.catalogue_version}.", ""]
    lines += [f"- {entry.at:%H:%M:%S} {entry.text}" for entry in view.timeline[-TIMELINE_SHOWN:]]
    return "\n".join(lines)


def _until(moment: datetime | None) -> str:
    return "" if moment is None else f", until {moment:%Y-%m-%d %H:%M:%S %Z}"


def _faults(title: str, faults: tuple[Fault, ...]) -> list[str]:
    if not faults:
        return []
    return [
        f"- {title}: "
        + "; ".join(f"{fault.code} on {fault.component.kind} {fault.component.id} (x{fault.count})" for fault in faults)
    ]
