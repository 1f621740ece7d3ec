"""What an accepted order does to an incident. Called by the workflow's handlers, which have had the order checked.

A handler only changes the record; the workflow's loop sees the change and acts on it.
"""

from temporalio import workflow

from sickbay.faults import Rung
from sickbay.incident import Approval, Command, CommandKind, HandoverReason
from workflows.incident_record import IncidentRecord

REQUESTS_KEPT = 100


def obey(record: IncidentRecord, command: Command) -> str:
    """Carry out a command that was checked; what it leads to, in words."""
    if command.request_id:
        record.change(seen_requests=(*record.state.seen_requests, command.request_id)[-REQUESTS_KEPT:])
    answer = _obey(record, command)
    record.note(f"{command.by}: {command.kind} ({command.reason}). {answer}")
    return answer


def _obey(record: IncidentRecord, command: Command) -> str:
    match command.kind:
        case CommandKind.APPROVE if (asked := record.asked) is not None:
            approval = Approval(
                rung=asked.rung,
                attempt=asked.attempt,
                by=command.by,
                reason=command.reason,
                at=workflow.now(),
            )
            record.change(approvals=(*record.state.approvals, approval))
            return f"{approval.rung} is approved and goes on."
        case CommandKind.REJECT:
            record.hand_over(HandoverReason.REJECTED, f"{command.by} rejected it: {command.reason}")
            return "The incident is handed over to people."
        case CommandKind.HOLD:
            record.change(held_by=command.by, held_since=workflow.now())
            return "Nothing new begins until it is released."
        case CommandKind.RELEASE:
            record.change(held_by="", held_since=None)
            return "The incident goes on."
        case CommandKind.CHOOSE_RUNG if command.rung is Rung.HUMAN:
            record.hand_over(HandoverReason.VERDICT, f"{command.by} took it over: {command.reason}")
            return "The incident is handed over to people."
        case CommandKind.CHOOSE_RUNG:
            record.change(chosen_rung=command.rung, handover=None, handover_text="", handed_over_at=None)
            return f"{command.rung} is the next step."
        case CommandKind.WITHDRAW:
            record.withdrawn_by = command.by
            return "All our marks are undone and the incident closes."
        case _:
            record.closed_by, record.keep_cordon = command.by, command.keep_cordon
            return "The incident closes" + (" and leaves the cordon to you." if command.keep_cordon else ".")
