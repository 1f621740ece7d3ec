"""The short Markdown account of an admission that the Temporal UI shows at all times."""

from sickbay.account import TIMELINE_SHOWN
from sickbay.admission import AdmissionStage, AdmissionView
from sickbay.names import TAINT_ADMISSION, incident_id

_BY_HAND = "kubectl taint node {node} {taint}-"


def account(view: AdmissionView) -> str:
    """What stands where, what it waits for and until when, what a person can do, and what happened."""
    node = view.node
    lines = [f"**{node.name}** ({node.machine}, pool {node.pool or '-'}): **{view.stage}**", ""]
    if view.waiting_for:
        until = "" if view.waiting_until is None else f", until {view.waiting_until:%Y-%m-%d %H:%M:%S %Z}"
        lines.append(f"- waits for {view.waiting_for}{until}")
    if view.stage is AdmissionStage.REPAIRING:
        lines.append(f"- its incident decides: `sickbay incidents show {incident_id(node.cluster, node.machine)}`")
    if view.faults:
        lines.append(f"- failed for: {', '.join(dict.fromkeys(fault.code for fault in view.faults))}")
    if view.outcome is not None:
        lines.append(f"- outcome: {view.outcome}")
    else:
        lines.append(f"- to let it work all the same: `{_BY_HAND.format(node=node.name, taint=TAINT_ADMISSION)}`")
    lines += ["", f"Policy {view.policy_version}.", ""]
    lines += [f"- {entry.at:%H:%M:%S} {entry.text}" for entry in view.timeline[-TIMELINE_SHOWN:]]
    return "\n".join(lines)
