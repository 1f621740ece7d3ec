"""How each fault of a scenario must end, and whether it did. Called by the demo, which fails if any differs."""

from collections.abc import Iterable, Mapping

from sickbay.faults import Rung
from sickbay.incident import IncidentView, Outcome
from sickbay.model import Frozen


class End(Frozen):
    """How an incident ended, or must end."""

    outcome: Outcome
    rung: Rung

    def __str__(self) -> str:
        return self.outcome if self.rung is Rung.NONE else f"{self.outcome} by {self.rung}"


ENDS: Mapping[str, End] = {
    "itself": End(outcome=Outcome.WITHDRAWN, rung=Rung.NONE),
    "reset": End(outcome=Outcome.RETURNED, rung=Rung.RESET_GPU),
    "reboot": End(outcome=Outcome.RETURNED, rung=Rung.REBOOT),
    "replace": End(outcome=Outcome.REPLACED, rung=Rung.REPLACE),
}
"""By the scenario's word for what cures a fault."""


def end_of(view: IncidentView) -> End | None:
    """How the incident ended; None while it is open."""
    if view.outcome is None:
        return None
    return End(outcome=view.outcome, rung=max((i.rung for i in view.intents), key=_strength, default=Rung.NONE))


def _strength(rung: Rung) -> int:
    return rung.strength


def wrong_ends(expected: Mapping[str, End], views: Iterable[IncidentView]) -> tuple[str, ...]:
    """What did not end as it must, in words: one line for each node, and for each incident that nobody expected."""
    by_node: dict[str, list[IncidentView]] = {}
    for view in views:
        by_node.setdefault(view.node.name, []).append(view)
    wrong = []
    for node, end in expected.items():
        match by_node.pop(node, []):
            case []:
                wrong.append(f"{node}: no incident was opened, where {end} was due")
            case [only] if end_of(only) == end:
                continue
            case several:
                was = ", ".join(str(end_of(each) or f"not ended ({each.stage})") for each in several)
                wrong.append(f"{node}: {was}, where {end} was due")
    wrong += [f"{node}: an incident that nothing called for" for node in by_node]
    return tuple(wrong)
