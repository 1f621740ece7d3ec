"""The budget's ledger as Markdown: who holds, who waits, for what and until when.

Shown by `workflows.disruption_budget` as its current details in Temporal's UI.
"""

from datetime import datetime

from sickbay.budget import Held, Ledger, Waiting

ROWS_SHOWN = 40
"""Per table: Temporal shows no more than 20 KB of details (facts: Temporal, 1.5)."""

_HELD = ("### Permits held", "", "| node | pool | rung | holder | since | lease ends |", "|---|---|---|---|---|---|")
_WAITING = (
    "### Waiting, first come first",
    "",
    "| node | pool | rung | since | gives up | waits for |",
    "|---|---|---|---|---|---|",
)


def account(ledger: Ledger, now: datetime) -> str:
    """A short Markdown account of the ledger at `now`."""
    if not ledger.held and not ledger.waiting:
        return "No permit is held, and nobody waits for one."
    lines: list[str] = []
    if ledger.held:
        lines += [*_HELD, *_first([_held_row(held, now) for held in ledger.held]), ""]
    if ledger.waiting:
        lines += [*_WAITING, *_first([_waiting_row(entry) for entry in ledger.waiting]), ""]
    return "\n".join(lines)


def _held_row(held: Held, now: datetime) -> str:
    permit, asked = held.permit, held.request
    overdue = " (overdue: its holder is looked for)" if permit.expires_at < now else ""
    return _row(
        asked.node.name,
        asked.node.pool,
        asked.rung,
        permit.holder,
        _moment(permit.granted_at),
        _moment(permit.expires_at) + overdue,
    )


def _waiting_row(entry: Waiting) -> str:
    asked = entry.request
    gives_up = _moment(asked.wait_until) if asked.wait_until else "by its policy"
    reason = entry.reason or "a first look at its pool"
    return _row(asked.node.name, asked.node.pool, asked.rung, _moment(asked.requested_at), gives_up, reason)


def _first(rows: list[str]) -> list[str]:
    rest = len(rows) - ROWS_SHOWN
    return rows[:ROWS_SHOWN] + ([f"\nand {rest} more"] if rest > 0 else [])


def _moment(at: datetime) -> str:
    return at.strftime("%Y-%m-%d %H:%M:%S UTC")


def _row(*cells: str) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") or "-" for cell in cells) + " |"
