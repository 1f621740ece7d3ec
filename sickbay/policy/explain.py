"""The ladder that a fault would climb under a policy, with its timers, as text for people.

Called by `sickbay policy explain`. Pure; the order of rungs is `sickbay.ladder`'s, the order inside a rung that of the
incident workflow: tolerance, approval, permit, drain, the act and its proof, verification, soak.
"""

from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Final

from sickbay.catalogue import CATALOGUE_VERSION, Row, codes, lookup
from sickbay.checks import ActiveDepth
from sickbay.faults import Rung
from sickbay.ladder import rungs_from
from sickbay.policy.durations import format_duration
from sickbay.policy.file import Policy
from sickbay.policy.model import ApprovalNeed, IncidentPolicy, Limit
from sickbay.policy.problems import nearest

_PROOFS: Final = {
    Rung.STOP_WORKLOAD: "no process holds a GPU",
    Rung.RESET_GPU: "the same GPUs answer, and the driver asks for nothing more",
    Rung.REBOOT: "a new boot id, Ready, with its GPUs",
    Rung.REPLACE: "the old instance is gone, and a new node is Ready with its GPUs",
}
_DEPTHS: Final = {
    ActiveDepth.NONE: "",
    ActiveDepth.QUICK: ", idle GPUs tried out,",
    ActiveDepth.BURN_IN: ", idle GPUs under load for {burn_in},",
}
_WIDTH: Final = 14
"""Of the first column."""


def explain(policy: Policy, code: str, pool: str) -> str:
    """What would happen on a node of `pool` that shows one fault of this code and nothing else."""
    incident, row = policy.for_pool(pool), lookup(code)
    start = incident.for_fault(code).rung or row.rung
    rungs = rungs_from(start, incident, row.fault_class)
    lines = [*_heading(policy, pool), *_fault(row, incident), ""]
    if not rungs:
        return "\n".join([*lines, "Nothing is blocked and nothing is disrupted; the fault is only told."])
    lines.append(_row("at once", f"new work is blocked{_taint(incident)}"))
    if not rungs[0].disrupts:
        lines += _without_repair(rungs, incident)
    else:
        lines += _climb(rungs, incident, code)
    return "\n".join([*lines, *_person(incident)])


def _heading(policy: Policy, pool: str) -> Iterator[str]:
    section = policy.section_of(pool)
    stands = f"section pools.{section.pattern}" if section else "no section of its own, hence the defaults"
    yield f"Policy {policy.version} ({policy.digest}); pool {pool or 'of no name'}: {stands}"


def _fault(row: Row, policy: IncidentPolicy) -> Iterator[str]:
    if row.known:
        yield f"Fault {row.code}, {row.mnemonic}: {row.meaning}"
    else:
        cure = nearest(row.code, codes(), otherwise="`sickbay diagnose` prints the codes of a log")
        yield f"Fault {row.code} is not in the catalogue; {cure}"
    instead = policy.for_fault(row.code).rung
    start = f"starts at {row.rung}" if instead is None else f"starts at {instead} by the policy, instead of {row.rung}"
    yield f"Catalogue {CATALOGUE_VERSION}: class {row.fault_class}, {start}"


def _climb(rungs: Sequence[Rung], policy: IncidentPolicy, code: str) -> Iterator[str]:
    """The rungs that disrupt, and how long they take together when nothing helps."""
    tolerance = policy.tolerance_of(code)
    yield _row("tolerance", f"{format_duration(tolerance)} for the fault to pass by itself; then")
    steps = [rung for rung in rungs if rung.disrupts]
    longest = tolerance
    for number, rung in enumerate(steps, start=1):
        yield ""
        yield from _rung(number, rung, policy, first=number == 1)
        longest += _longest(rung, policy, first=number == 1)
    yield ""
    yield _row("at worst", f"{format_duration(longest)} until a person is asked, if no rung helps")
    lemon = policy.lemon
    yield _row(
        "lemon",
        f"a machine repaired {lemon.incidents} times within {format_duration(lemon.window)} starts at {lemon.start_at}",
    )


def _rung(number: int, rung: Rung, policy: IncidentPolicy, *, first: bool) -> Iterator[str]:
    rules, look = policy.for_rung(rung), format_duration(policy.verify_every)
    yield f"{number}. {rung}, {_times(rules.attempts)}"
    if rules.approval is ApprovalNeed.ALWAYS:
        yield _row("approval", f"{_within(policy.approval_deadline)}, else handed over")
    else:
        yield _row("approval", "not needed")
    if _asks_permit(rung, policy, first=first):
        limit = _limit(policy.budget.max_unavailable)
        yield _row("permit", f"{_within(policy.budget.permit_deadline)}, else handed over; {limit}")
    else:
        yield _row("permit", "the one it holds")
    yield _row("drain", f"{_within(policy.drain.deadline)}, else handed over")
    yield _row("foreign lock", f"respected for {format_duration(policy.foreign_lock_deadline)}, then handed over")
    if rung is Rung.RESET_GPU:
        clients = _within(policy.gpu_clients.deadline)
        yield _row("GPU pods", f"out of the way {clients}, else the reset failed; put back {clients} after it")
    yield _row("proof", f"{_within(rules.deadline)} of the act, else it failed: {_PROOFS[rung]}")
    depth = _DEPTHS[policy.verification.after(rung)].format(burn_in=format_duration(policy.verification.burn_in))
    yield _row("verification", f"a full healthy pass{depth} {_within(policy.verify_deadline)}, looked for every {look}")
    if rung is not Rung.REPLACE:
        yield _row("soak", f"{format_duration(policy.soak)} without a fault, then the node is returned")
    yield _row("at most", format_duration(_longest(rung, policy, first=first)))


def _longest(rung: Rung, policy: IncidentPolicy, *, first: bool) -> timedelta:
    """How long all attempts of a rung take if each wait goes to its deadline and none helps."""
    rules = policy.for_rung(rung)
    attempt = policy.drain.deadline + policy.foreign_lock_deadline + rules.deadline + policy.verify_deadline
    if policy.verification.after(rung) is ActiveDepth.BURN_IN:
        # The last pass may begin right before the deadline.
        attempt += policy.verification.burn_in
    if rung is not Rung.REPLACE:
        attempt += policy.soak
    if rung is Rung.RESET_GPU:
        # Clients leave, come back, and those that latch are restarted after the proof.
        attempt += 3 * policy.gpu_clients.deadline
    if rules.approval is ApprovalNeed.ALWAYS:
        attempt += policy.approval_deadline + policy.budget.permit_deadline
        return attempt * rules.attempts
    return attempt * rules.attempts + (policy.budget.permit_deadline if first else timedelta(0))


def _asks_permit(rung: Rung, policy: IncidentPolicy, *, first: bool) -> bool:
    """A permit is kept from rung to rung, but given back while a person is asked."""
    return first or policy.for_rung(rung).approval is ApprovalNeed.ALWAYS


def _without_repair(rungs: Sequence[Rung], policy: IncidentPolicy) -> Iterator[str]:
    if rungs[0] is Rung.HUMAN:
        yield _row("then", "a person is asked: no repair of ours is meant for this fault")
    else:
        yield _row(
            "then", f"nothing is disrupted; a person is asked if it lasts {format_duration(policy.watch_deadline)}"
        )


def _person(policy: IncidentPolicy) -> Iterator[str]:
    reminder, deadline = format_duration(policy.handover_reminder), format_duration(policy.handover_deadline)
    soak = format_duration(policy.recovery_soak)
    yield _row("handed over", f"reminded every {reminder}; closed after {deadline}, the node left cordoned")
    yield _row("passes by", f"withdrawn once the fault stayed away for {soak}")


def _limit(limit: Limit) -> str:
    return f"at most {limit.count} nodes and {limit.percent:g} per cent of the pool are out"


def _taint(policy: IncidentPolicy) -> str:
    return f", with a taint {policy.taint.effect}" if policy.taint.enabled else ""


def _times(attempts: int) -> str:
    return "one attempt" if attempts == 1 else f"up to {attempts} attempts"


def _within(deadline: timedelta) -> str:
    return f"within {format_duration(deadline)}"


def _row(name: str, text: str) -> str:
    return f"   {name:<{_WIDTH}}{text}"
