"""What a look at a node means for its incident: open one, tell it more, or undo a mark that nobody owns.

Called by `workers.triage` for every node that its watch shows and again by level every few minutes, so that a lost
event, a restart or a change of leader costs nothing but time. It decides from three things alone: the node as it
stands, the incident as Temporal knows it, and the policy. What an incident then does is `sickbay.ladder`'s affair;
whether one more cordon is within the cap is `sickbay.containment`'s.

The answers to the usual failures of such controllers (facts: peer-nvsentinel, 4): a restart replays nothing, since what
was told is read back from the incident itself (2, 3, 33); a late event of a closed incident opens a new one only if
the fault is live (4); a fault of a new boot is told even if its code was told before (6); a mark without an incident
is removed (29); a person's word stands until something new happens (27).
"""

from collections.abc import Iterable
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

from sickbay import cloud_words, suspicions
from sickbay.admission import TOLD_BY_ADMISSION, is_ours_to_admit
from sickbay.catalogue import lookup
from sickbay.diagnosis import diagnose
from sickbay.faults import Fault, Rung
from sickbay.incident import Outcome
from sickbay.kube_objects import Node
from sickbay.model import Frozen
from sickbay.names import ANNOTATION_INCIDENT
from sickbay.node_faults import MONITOR_SILENT, NODE_NOT_READY
from sickbay.node_reading import awaits_admission, is_gpu_node
from sickbay.nodes import NodeSnapshot, Readiness
from sickbay.other_agents.judgement import is_reported
from sickbay.policy.model import IncidentPolicy
from sickbay.watch_faults import AGENT_MISSING

SETTLING: Final = frozenset({NODE_NOT_READY, MONITOR_SILENT})
"""Faults that come and go with a restart of the kubelet or the node."""

STARTING: Final = frozenset({NODE_NOT_READY, MONITOR_SILENT, AGENT_MISSING})
"""What only says that a node is not up yet. Where it waits for its admission, that one waits for it, with a deadline of
its own: a machine that still boots must not be cordoned, let alone rebooted, for it."""

LEFT_TO_PEOPLE: Final = frozenset({Outcome.HANDED_OVER, Outcome.WITHDRAWN})
"""Outcomes after which the same faults open nothing: a person has them, or said that they do not matter. An incident
that was withdrawn because its faults went knows none at its end, so that their return is something new."""


class Standing(StrEnum):
    """What Temporal says of the incident of one machine."""

    UNKNOWN = "unknown"
    """It did not answer in time."""
    ABSENT = "absent"
    OPEN = "open"
    CLOSED = "closed"


class KnownIncident(Frozen):
    """The latest incident of one machine, as far as we know it."""

    standing: Standing
    faults: tuple[Fault, ...] | None = None
    """What it knows, or knew at its end; None where that could not be asked."""
    outcome: Outcome | None = None
    closed_at: datetime | None = None


class TriageRules(Frozen):
    """The watch's own patience."""

    settle: timedelta = timedelta(minutes=1)
    """How long a fault of `SETTLING` must last before an incident opens: a kubelet's restart takes seconds. The
    incident then observes for the rest of the policy's tolerance."""
    cooldown: timedelta = timedelta(minutes=1)
    """From one incident's end to the next one's start on a machine: a flapping node must not restart its incident each
    second, which Temporal Cloud refuses besides (facts: Temporal, 1.4)."""


class Plan(Frozen):
    """What to do about one node now; nothing, by default."""

    contain: bool = False
    """Block new work at once, asking nobody but the containment cap."""
    opens: bool = False
    """Start the incident, with `report` as its first signal."""
    report: tuple[Fault, ...] = ()
    clear: tuple[str, ...] | None = None
    """Codes that are gone; empty means all, None that nothing is known to be gone."""
    release: bool = False
    """Undo the mark on the node: its incident is over."""
    notice: tuple[Fault, ...] = ()
    """Faults that open no incident and that people should know of, to be told by an Event on the node."""
    again_in: timedelta | None = None
    """Look again after this time, whatever happens until then."""
    why: str = ""

    @property
    def acts(self) -> bool:
        """Whether anything is to be done or said now."""
        return self.contain or self.opens or self.release or bool(self.report) or self.clear is not None


class Look(Frozen):
    """Everything that one decision rests on."""

    snapshot: NodeSnapshot
    incident_id: str
    incident: KnownIncident
    """The incident of this machine."""
    marked: Standing = Standing.ABSENT
    """How the incident stands whose id the node's mark bears, if that is another one than this machine's."""
    policy: IncidentPolicy
    rules: TriageRules = TriageRules()
    now: datetime


def concerns_us(node: Node) -> bool:
    """Whether a node is ours to look after. One without GPUs that is not ready is its owner's affair.

    One that waits for its admission is ours before its GPUs can be seen: nobody else takes that taint away.
    """
    return is_gpu_node(node) or awaits_admission(node) or ANNOTATION_INCIDENT in node.metadata.annotations


def needs_temporal(snapshot: NodeSnapshot) -> bool:
    """Whether a look at this node must know how its incident stands. Most nodes of a fleet are well and unmarked."""
    return bool(snapshot.faults) or snapshot.incident_mark is not None


def plan(look: Look) -> Plan:
    """What to do about one node now."""
    snapshot = look.snapshot
    if not snapshot.exists or snapshot.deleting:
        return Plan(why="the node is going")
    if _anothers(look) and look.marked in (Standing.OPEN, Standing.UNKNOWN):
        return Plan(why=f"{snapshot.incident_mark} has this node")
    if look.incident.standing is Standing.OPEN:
        return _join(look)
    faults, settles_in = settled_faults(look)
    verdict = diagnose(faults)
    if verdict.rung is Rung.NONE:
        return Plan(
            release=_orphaned(look),
            notice=_for_people(faults),
            again_in=settles_in,
            why=f"no incident: {verdict.reason}",
        )
    if _left_to_people(look.incident, faults):
        return Plan(release=_orphaned(look), again_in=settles_in, why="a person has decided on these faults")
    contain = snapshot.incident_mark is None or _orphaned_by_another(look)
    if look.incident.standing is Standing.UNKNOWN:
        return Plan(contain=contain, why=f"{verdict.reason}; Temporal does not answer")
    cooling = _cooling(look)
    if cooling:
        return Plan(contain=contain, again_in=cooling, why=f"{verdict.reason}; the last incident has only just ended")
    return Plan(
        contain=contain,
        opens=True,
        report=faults,
        release=_orphaned_by_another(look),
        again_in=settles_in,
        why=verdict.reason,
    )


def settled_faults(look: Look) -> tuple[tuple[Fault, ...], timedelta | None]:
    """The faults to act on, and when the first of those that must last will have lasted long enough.

    A kubelet that has just gone silent may only restart, and an agent that is silent on a node that has just come back
    has only not begun. Both count from the last change of Ready; one in the future is the word of a clock that runs
    ahead, and holds nothing up.
    """
    since = look.snapshot.ready_since or look.now
    settle = look.rules.settle if since <= look.now else timedelta(0)
    acted_on: list[Fault] = []
    remaining: list[timedelta] = []
    admitting = is_ours_to_admit(look.snapshot, look.policy.admission)
    for fault in look.snapshot.faults:
        if admitting and fault.code in STARTING:
            continue
        left = min(since, look.now) + min(settle, look.policy.tolerance_of(fault.code)) - look.now
        if fault.code in SETTLING and left > timedelta(0):
            remaining.append(left)
        else:
            acted_on.append(fault)
    return tuple(acted_on), min(remaining, default=None)


def gone_codes(known: Iterable[Fault], snapshot: NodeSnapshot) -> tuple[str, ...]:
    """Codes that the incident knows and the node no longer shows, each by one who can tell.

    An absent fault is no recovery while its detector is silent (design, 3.1).
    """
    open_now = {fault.code for fault in snapshot.faults}
    return tuple(sorted({fault.code for fault in known if fault.code not in open_now and _can_tell(fault, snapshot)}))


def _join(look: Look) -> Plan:
    """What an open incident does not know yet."""
    faults, settles_in = settled_faults(look)
    if look.incident.faults is None:
        # Nothing is known of what it was told: tell all again, since repeats only count up.
        healthy = look.snapshot.conditions_healthy and look.snapshot.conditions_fresh and not look.snapshot.faults
        clear = () if healthy and look.snapshot.ready is Readiness.TRUE else None
        return Plan(report=faults, clear=clear, again_in=settles_in, why="the incident's own account is not known")
    told = {fault.identity: fault.rung.strength for fault in look.incident.faults}
    # A rung that has fallen is no news: to the incident it never falls, and it would be told again at each look.
    news = tuple(fault for fault in faults if fault.rung.strength > told.get(fault.identity, -1))
    gone = gone_codes(look.incident.faults, look.snapshot)
    return Plan(report=news, clear=gone or None, again_in=settles_in, why="the incident is open")


def _can_tell(fault: Fault, snapshot: NodeSnapshot) -> bool:
    """Whether the detector of a code has spoken: the kubelet for Ready, EC2 for its words, else our agent in this boot.

    Another agent's word that is gone may only mean that this agent restarted: our own must have passed the node. And
    what an admission has found, by its burn-in or by waiting in vain, our agent at rest need not see. What jobs suspect
    the incident's own active checks alone can clear.
    """
    code = fault.code
    if code == NODE_NOT_READY:
        return snapshot.ready is Readiness.TRUE
    if code in cloud_words.CODES:
        return snapshot.cloud_told
    if is_reported(code):
        return snapshot.conditions_fresh and snapshot.conditions_healthy
    if code in suspicions.CODES:
        return False
    of_this_boot = fault.boot_id in (None, snapshot.boot_id)
    if snapshot.admission_taint and of_this_boot and (fault.rung.disrupts or code in TOLD_BY_ADMISSION):
        return False
    return snapshot.conditions_fresh and code not in snapshot.undecided


def _left_to_people(incident: KnownIncident, faults: tuple[Fault, ...]) -> bool:
    """By its last incident's end, which is remembered while Temporal does not answer."""
    if incident.outcome not in LEFT_TO_PEOPLE:
        return False
    decided = {fault.identity: fault for fault in incident.faults or ()}
    deciding = tuple(fault for fault in faults if fault.rung is not Rung.NONE) or faults
    return all(_decided(fault, decided.get(fault.identity), incident.closed_at) for fault in deciding)


def _decided(fault: Fault, known: Fault | None, closed_at: datetime | None) -> bool:
    """Whether a person has decided on this very fault: it asks for no more now, and is no later event of its kind.

    Faults of a boot are told apart by it; of those that EC2 tells, which no boot ends, the time tells.
    """
    if known is None or fault.rung.strength > known.rung.strength:
        return False
    later = isinstance(fault.first_seen, datetime) and closed_at is not None and fault.first_seen > closed_at
    return not (later and fault.code in cloud_words.CODES)


def _cooling(look: Look) -> timedelta | None:
    """What is left of the cooldown, if anything is."""
    if look.incident.closed_at is None:
        return None
    remaining = look.incident.closed_at + look.rules.cooldown - look.now
    return remaining if remaining > timedelta(0) else None


def _anothers(look: Look) -> bool:
    """Whether the mark bears another id than this machine's: the cluster was renamed, or the provider id came late."""
    return look.snapshot.incident_mark not in (None, look.incident_id)


def _orphaned_by_another(look: Look) -> bool:
    return _anothers(look) and look.marked in (Standing.CLOSED, Standing.ABSENT)


def _orphaned(look: Look) -> bool:
    """Whether the node bears a mark whose incident is surely over."""
    if look.snapshot.incident_mark == look.incident_id:
        return look.incident.standing in (Standing.CLOSED, Standing.ABSENT)
    return _orphaned_by_another(look)


def _for_people(faults: tuple[Fault, ...]) -> tuple[Fault, ...]:
    """Codes that nobody knows, and what EC2 plans for a day that is still far."""
    return tuple(fault for fault in faults if not lookup(fault.code).known or fault.code in cloud_words.CODES)
