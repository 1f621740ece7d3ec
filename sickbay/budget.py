"""The disruption budget as a pure reducer: what the ledger becomes, and what holders are told.

Called by `workflows.disruption_budget`, which keeps one `Ledger` per cluster and delivers the notices. Nothing here
knows a clock or a server; times come in as `now`.

What counts against a pool's ceiling, and why:

- A *permit* counts until it is released or its holder is gone, however its node looks meanwhile. A holder and its node
  are one, and so are a holder whose node is gone and the successor that is still coming up.
- A node that is *out for another reason* counts: not Ready, cordoned by a person, being deleted, or contained by an
  incident that asks for no permit (it observes, or waits for a person). It serves nobody, and its return is uncertain.
- The *asking* node never counts against itself: it is cordoned by us, and sick; else no node could ever be repaired.
- Other *waiting* nodes that are out do not count against an asking node that is out. They are sick already, and a
  permit takes no further node from new work; if they counted, a few waiting nodes would fill the ceiling and none
  would ever get its turn. Their number is bounded by containment's own cap. Permits stay bounded by the ceiling all the
  same, since the work that still runs on a contained node is lost by its disruption.
- They do count against an asking node that still *takes work* (containment's cap was reached): its permit would take
  one more node out. What passes it in the queue is exactly what it waits for.

First come is first served, whatever the rung, but for that one exception.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from sickbay.limits import ceiling
from sickbay.model import Frozen
from sickbay.nodes import NodeRef
from sickbay.permits import Permit, PermitRefusal, PermitRenewal, PermitRequest, PermitWaiting

NAMES_TOLD = 5
"""Nodes named in a reason; a reason is a sentence, not a list."""


class Member(Frozen):
    """One node of a pool."""

    node: NodeRef
    created_at: datetime
    available: bool
    why_not: str = ""


class PoolLook(Frozen):
    """All nodes of one pool, as one look showed them."""

    pool: str
    members: tuple[Member, ...]


class Held(Frozen):
    """A permit and what it was asked for."""

    permit: Permit
    request: PermitRequest


class Waiting(Frozen):
    """A request in the queue, and why it is there still, as its holder was told."""

    request: PermitRequest
    reason: str = ""


class Ledger(Frozen):
    """Who holds, and who waits, first come first."""

    epoch: int = 0
    """Of the newest grant; never falls."""
    held: tuple[Held, ...] = ()
    waiting: tuple[Waiting, ...] = ()

    @property
    def holders(self) -> tuple[str, ...]:
        """Workflow ids of all that hold or wait."""
        return tuple(held.permit.holder for held in self.held) + tuple(entry.request.holder for entry in self.waiting)

    @property
    def pools_awaited(self) -> tuple[str, ...]:
        """Pools that somebody waits for, each once, in the order of the queue."""
        return tuple(dict.fromkeys(entry.request.node.pool for entry in self.waiting))


Notice = Permit | PermitRefusal | PermitWaiting


@dataclass(frozen=True)
class Decision:
    """The ledger after an event, and what to tell to whom."""

    ledger: Ledger
    notices: tuple[Notice, ...] = ()


def request(ledger: Ledger, asked: PermitRequest, now: datetime) -> Decision:
    """Queue a request. A repeated one keeps its place, or its permit with a fresh lease, and is told how it stands."""
    if asked.limit.count == 0 or asked.limit.percent == 0:
        reason = f"the policy lets no node of pool {asked.node.pool or 'none'} be out (budget.max_unavailable is 0)"
        return Decision(release(ledger, asked.holder), (PermitRefusal(holder=asked.holder, reason=reason),))
    held = next((held for held in ledger.held if held.permit.holder == asked.holder), None)
    if held:
        permit = held.permit.model_copy(update={"expires_at": now + asked.lease})
        return Decision(_with_held(ledger, held, Held(permit=permit, request=asked)), (permit,))
    queued = next((entry for entry in ledger.waiting if entry.request.holder == asked.holder), None)
    if queued:
        again = queued.model_copy(update={"request": asked})
        waiting = tuple(again if entry is queued else entry for entry in ledger.waiting)
        told = (PermitWaiting(holder=asked.holder, reason=queued.reason),) if queued.reason else ()
        return Decision(ledger.model_copy(update={"waiting": waiting}), told)
    return Decision(ledger.model_copy(update={"waiting": (*ledger.waiting, Waiting(request=asked))}))


def renew(ledger: Ledger, renewal: PermitRenewal, now: datetime) -> Decision:
    """Extend a lease. A holder whose epoch is not the held one has lost its permit, and is told so."""
    held = next((held for held in ledger.held if held.permit.holder == renewal.holder), None)
    if held is None or held.permit.epoch != renewal.epoch:
        reason = f"permit {renewal.epoch} is no longer held: ask again before anything is disrupted"
        return Decision(ledger, (PermitRefusal(holder=renewal.holder, reason=reason),))
    permit = held.permit.model_copy(update={"expires_at": now + held.request.lease})
    return Decision(_with_held(ledger, held, held.model_copy(update={"permit": permit})))


def release(ledger: Ledger, *holders: str) -> Ledger:
    """Take back the permits and requests of holders that are done or gone; of unknown ones nothing."""
    return ledger.model_copy(
        update={
            "held": tuple(held for held in ledger.held if held.permit.holder not in holders),
            "waiting": tuple(entry for entry in ledger.waiting if entry.request.holder not in holders),
        }
    )


def observe(ledger: Ledger, look: PoolLook, now: datetime) -> Decision:
    """Grant what the pool allows now, first come first, and tell the others why they wait, if that has changed."""
    notices: list[Notice] = []
    blocked: list[Waiting] = []
    for entry in ledger.waiting:
        if entry.request.node.pool != look.pool:
            continue
        ahead = [other for other in blocked if _is_out(look, other.request) or not _is_out(look, entry.request)]
        reason = _queue(ahead) if ahead else _obstacle(ledger, look, entry.request)
        if not reason:
            ledger, permit = _grant(ledger, entry, now)
            notices.append(permit)
            continue
        blocked.append(Waiting(request=entry.request, reason=reason))
        if reason != entry.reason:
            ledger = _with_reason(ledger, blocked[-1])
            notices.append(PermitWaiting(holder=entry.request.holder, reason=reason))
    return Decision(ledger, tuple(notices))


def unobservable(ledger: Ledger, pool: str, reason: str) -> Decision:
    """Nothing is granted on a pool that nobody can see; whoever waits for it is told, once."""
    notices: list[Notice] = []
    for entry in ledger.waiting:
        if entry.request.node.pool == pool and entry.reason != reason:
            ledger = _with_reason(ledger, entry.model_copy(update={"reason": reason}))
            notices.append(PermitWaiting(holder=entry.request.holder, reason=reason))
    return Decision(ledger, tuple(notices))


def _queue(ahead: list[Waiting]) -> str:
    """Why one waits behind others: for what the first of them waits."""
    return f"behind {_named(other.request.node.name for other in ahead)}; {ahead[0].reason}"


def _obstacle(ledger: Ledger, look: PoolLook, asked: PermitRequest) -> str:
    """Why this request cannot be granted now; empty if it can."""
    uids = {member.node.uid for member in look.members}
    held = [one for one in ledger.held if one.request.node.pool == look.pool or one.request.node.uid in uids]
    out = _out_besides(ledger, look, asked, held)
    allowed = ceiling(asked.limit, len(look.members))
    taken = len(held) + len(out)
    if taken < allowed:
        return ""
    names = [f"{one.request.node.name} ({one.request.rung} by {one.permit.holder})" for one in held]
    names += [f"{member.node.name} ({member.why_not or 'unavailable'})" for member in out]
    return f"{allowed} of {len(look.members)} nodes of pool {look.pool or 'none'} may be out, and {taken} are: " + (
        _named(names) or "the pool has no nodes"
    )


def _out_besides(ledger: Ledger, look: PoolLook, asked: PermitRequest, held: list[Held]) -> list[Member]:
    """Nodes that are out and count against `asked`, beside those under a permit; the rules are the module's."""
    uncounted = {asked.node.uid} | {one.request.node.uid for one in held}
    if _is_out(look, asked):
        uncounted |= {entry.request.node.uid for entry in ledger.waiting}
    out = [member for member in look.members if not member.available and member.node.uid not in uncounted]
    present = {member.node.uid for member in look.members}
    for replaced in (one for one in held if one.request.node.uid not in present):
        successor = next((member for member in out if member.created_at >= replaced.permit.granted_at), None)
        if successor:
            out.remove(successor)
    return out


def _is_out(look: PoolLook, asked: PermitRequest) -> bool:
    """Whether the asking node serves nobody already; a node that left its pool does not."""
    return not any(member.available for member in look.members if member.node.uid == asked.node.uid)


def _grant(ledger: Ledger, entry: Waiting, now: datetime) -> tuple[Ledger, Permit]:
    epoch = ledger.epoch + 1
    asked = entry.request
    permit = Permit(holder=asked.holder, epoch=epoch, granted_at=now, expires_at=now + asked.lease)
    granted = ledger.model_copy(
        update={
            "epoch": epoch,
            "held": (*ledger.held, Held(permit=permit, request=asked)),
            "waiting": tuple(other for other in ledger.waiting if other.request.holder != asked.holder),
        }
    )
    return granted, permit


def _with_held(ledger: Ledger, old: Held, new: Held) -> Ledger:
    return ledger.model_copy(update={"held": tuple(new if held is old else held for held in ledger.held)})


def _with_reason(ledger: Ledger, told: Waiting) -> Ledger:
    waiting = tuple(told if entry.request.holder == told.request.holder else entry for entry in ledger.waiting)
    return ledger.model_copy(update={"waiting": waiting})


def _named(names: Iterable[str]) -> str:
    """Names in a sentence, the first few of them."""
    told = list(names)
    rest = len(told) - NAMES_TOLD
    return ", ".join(told[:NAMES_TOLD]) + (f" and {rest} more" if rest > 0 else "")
