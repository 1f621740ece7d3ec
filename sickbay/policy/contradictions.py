"""What a policy says against itself: values that are each fine and cannot both be meant.

Called by `sickbay.policy.file` on each resolved policy. Pure; every rule is one row or one small function.
"""

from collections.abc import Iterator
from datetime import timedelta
from typing import Final, NamedTuple

from sickbay.faults import Rung
from sickbay.policy.durations import format_duration
from sickbay.policy.model import IncidentPolicy, Limit


class Contradiction(NamedTuple):
    """Paths that contradict each other, the one to mend first, and what is wrong with the cure."""

    paths: tuple[str, ...]
    text: str


_NOT_LONGER: Final = (
    ("handover_reminder", "handover_deadline", "nobody would ever be reminded"),
    ("verify_every", "verify_deadline", "the repaired node would be looked at once at most"),
    ("admission.burn_in", "admission.deadline", "no node would ever be admitted in time"),
    ("admission.look_every", "admission.deadline", "a new node would be looked at once at most"),
    ("drain.dead_kubelet_grace", "drain.deadline", "the drain would end before the grace does"),
    ("host_pickup", "reset_gpu.deadline", "a dead node would be taken for a failed reset"),
    ("soak", "lemon.window", "an incident would outlast the memory of the one before"),
    ("recovery_soak", "lemon.window", "an incident would outlast the memory of the one before"),
)
"""(shorter, longer, what would happen otherwise)."""


def contradictions(policy: IncidentPolicy) -> Iterator[Contradiction]:
    """Everything in a pool's policy that cannot be meant."""
    for shorter, longer, otherwise in _NOT_LONGER:
        short, long = _duration(policy, shorter), _duration(policy, longer)
        if short > long:
            text = f"{format_duration(short)} is longer than {longer}, {format_duration(long)}: {otherwise}; shorten it"
            yield Contradiction((shorter, longer), text)
    if not policy.lemon.start_at.disrupts:
        rungs = ", ".join(rung for rung in Rung if rung.disrupts)
        text = f"'{policy.lemon.start_at}' repairs nothing, so that a lemon would start nowhere; write one of {rungs}"
        yield Contradiction(("lemon.start_at",), text)
    yield from limit_contradictions(policy.budget.max_unavailable, "budget.max_unavailable")


def limit_contradictions(limit: Limit, path: str) -> Iterator[Contradiction]:
    """A ceiling that is none in one half and some in the other."""
    if (limit.count == 0) != (limit.percent == 0):
        none, some = ("count", "percent") if limit.count == 0 else ("percent", "count")
        text = f"0 forbids all, whatever {some} says; write 0 for both if that is meant, else 1 or more"
        yield Contradiction((f"{path}.{none}", f"{path}.{some}"), text)


def _duration(policy: IncidentPolicy, path: str) -> timedelta:
    value: object = policy
    for name in path.split("."):
        value = getattr(value, name)
    assert isinstance(value, timedelta), path
    return value
