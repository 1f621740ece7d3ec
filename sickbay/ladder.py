"""Which rung comes next: the lowest one that can still cure the worst open fault, and never a weaker one than tried.

Called by the incident workflow before each turn, and by `sickbay policy explain`. It decides order only; whether a rung
may be taken at this moment is `sickbay.safety`, whether it helped is `sickbay.proof`.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime

from sickbay.faults import Fault, FaultClass, Rung, strongest
from sickbay.incident import Intent
from sickbay.model import Frozen
from sickbay.policy.model import IncidentPolicy, LemonPolicy

_REACH = {
    FaultClass.NONE: Rung.NONE,
    FaultClass.APPLICATION: Rung.REPLACE,
    FaultClass.WATCH: Rung.REPLACE,
    FaultClass.MONITOR_UNAVAILABLE: Rung.BLOCK_NEW_WORK,
    FaultClass.DRIVER: Rung.REPLACE,
    FaultClass.STORAGE: Rung.REPLACE,
    FaultClass.NETWORK: Rung.REPLACE,
    FaultClass.HOST: Rung.REPLACE,
    FaultClass.FABRIC: Rung.REPLACE,
    FaultClass.GPU: Rung.REPLACE,
}
"""The strongest rung that a class may lead to. Monitor trouble blocks new work; it never kills a node (design, 3.1)."""

_GPU_RESET_HELPS = (FaultClass.APPLICATION, FaultClass.WATCH, FaultClass.GPU, FaultClass.FABRIC, FaultClass.DRIVER)
"""Classes that a GPU reset can cure. Others climb past it."""


class Step(Frozen):
    """The next rung to try; `attempt` counts from 1 per rung and incident."""

    rung: Rung
    attempt: int = 1


def rungs_from(start: Rung, policy: IncidentPolicy, fault_class: FaultClass = FaultClass.GPU) -> tuple[Rung, ...]:
    """The rungs that an incident starting at `start` climbs, in order; a person stands at the end of every ladder."""
    reach = _REACH[fault_class]
    if start is Rung.NONE or reach is Rung.NONE:
        return ()
    if start is Rung.HUMAN:
        return (Rung.HUMAN,)
    if not start.disrupts or not reach.disrupts:
        return (Rung.BLOCK_NEW_WORK, Rung.HUMAN)
    climbed = (
        rung
        for rung in Rung
        if rung.disrupts
        and rung.strength >= start.strength
        and policy.for_rung(rung).enabled
        and (rung is not Rung.RESET_GPU or fault_class in _GPU_RESET_HELPS)
    )
    return (*climbed, Rung.HUMAN)


def next_step(
    start: Rung,
    fault_class: FaultClass,
    tried: Sequence[Intent],
    policy: IncidentPolicy,
    *,
    floor: Rung = Rung.NONE,
    chosen: Rung | None = None,
) -> Step:
    """The next step for a verdict that starts at `start`, after the rungs already tried.

    `floor` raises the start of a machine that keeps coming back. `chosen` is a person's choice, which is obeyed once,
    whatever was tried. A rung weaker than the strongest one tried is never gone back to.
    """
    if chosen is not None:
        return Step(rung=chosen, attempt=_attempts(tried, chosen) + 1)
    lowest = strongest((start, floor)) if start.disrupts else start
    reached = strongest(intent.rung for intent in tried)
    if lowest.disrupts:
        lowest = strongest((lowest, reached))
    for rung in rungs_from(lowest, policy, fault_class):
        if not rung.disrupts:
            return Step(rung=rung)
        attempts = _attempts(tried, rung)
        if attempts < policy.for_rung(rung).attempts:
            return Step(rung=rung, attempt=attempts + 1)
    return Step(rung=Rung.NONE)


def _attempts(tried: Iterable[Intent], rung: Rung) -> int:
    return sum(intent.rung is rung for intent in tried)


def lemon_floor(repaired_at: Iterable[datetime], lemon: LemonPolicy, now: datetime) -> Rung:
    """Where the ladder starts for a machine that was repaired at these moments: higher, if it keeps coming back."""
    recent = sum(now - at <= lemon.window for at in repaired_at)
    return lemon.start_at if recent >= lemon.incidents else Rung.NONE


def under_policy(faults: Iterable[Fault], policy: IncidentPolicy) -> tuple[Fault, ...]:
    """The faults with the rungs that this pool's policy gives them instead of the catalogue's."""
    return tuple(
        fault if (rung := policy.for_fault(fault.code).rung) is None else fault.model_copy(update={"rung": rung})
        for fault in faults
    )


def tolerated_until(
    faults: Iterable[Fault], policy: IncidentPolicy, opened_at: datetime, now: datetime
) -> datetime | None:
    """Until when nothing disrupts the node yet: the earliest end of tolerance of the faults that ask for disruption.

    None if no fault asks for any. A fault without a wall-clock time counts from the incident's opening, and one of the
    future, which a host's clock that runs ahead makes, from `now`.
    """
    ends = (
        (min(fault.first_seen, now) if isinstance(fault.first_seen, datetime) else opened_at)
        + policy.tolerance_of(fault.code)
        for fault in faults
        if fault.rung.disrupts
    )
    return min(ends, default=None)
