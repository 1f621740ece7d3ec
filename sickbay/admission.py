"""Admission: whether a new, replaced, rebooted or returned node may have work, and what to do with one that may not.

Called by `workflows.node_admission`, which only orders things, by the controller's watch, which starts admissions and
puts our taint back after a foreign reboot, and by the console. The node is judged by `sickbay.proof.verification`, the
same rule as an incident's. A node without work costs money, one with faulty work costs more: whatever is not known
keeps the taint (design, 3.1), and no deadline leaves a node tainted in silence (facts: peer-nvsentinel, 4.30).
"""

from collections.abc import Iterable
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

from sickbay.catalogue import fault_of
from sickbay.faults import Component, ComponentKind, Fault, Rung, merge_faults
from sickbay.incident import TimelineEntry
from sickbay.model import Frozen
from sickbay.nodes import HostProbe, NodeRef, NodeSnapshot, Readiness
from sickbay.policy.model import AdmissionPolicy, IncidentPolicy
from sickbay.proof import missing_in_look, verification

OVERDUE: Final = "admission-overdue"
MIG_FAILED: Final = "mig-layout-failed"
TOLD_BY_ADMISSION: Final = frozenset({OVERDUE, MIG_FAILED})
"""Codes that no agent reports: that one does not see them says nothing."""
COOLDOWN: Final = timedelta(minutes=1)
"""From one admission's end to the next one's start on a machine (facts: Temporal, 1.4)."""
ROUNDS: Final = 5
"""Incidents after which an admission leaves the node to people: whatever keeps failing, it is not going to pass."""


class AdmissionStage(StrEnum):
    """Where an admission stands, as its search attribute says."""

    WAITING = "waiting"
    VALIDATING = "validating"
    REPAIRING = "repairing"
    """An incident has the node."""
    CLOSED = "closed"


class AdmissionOutcome(StrEnum):
    """How an admission ended."""

    ADMITTED = "admitted"
    TAINT_GONE = "taint_gone"
    """Somebody else took the taint away: an order to let the node work."""
    GONE = "gone"
    """The node is gone, or somebody is deleting it."""
    LEFT_TO_PEOPLE = "left_to_people"
    """The taint stays."""


class AdmissionState(Frozen):
    """Everything that a continued admission must still know."""

    stage: AdmissionStage = AdmissionStage.WAITING
    round_began: datetime
    """The deadline counts from here: from the start, and anew from the end of each incident."""
    rounds: int = 0
    """Incidents that the admission has opened."""
    faults: tuple[Fault, ...] = ()
    """What the newest of them was opened for."""
    repair_began: datetime | None = None
    timeline: tuple[TimelineEntry, ...] = ()


class AdmissionInput(Frozen):
    """What starts an admission."""

    node: NodeRef
    policy: IncidentPolicy
    catalogue_version: str
    started_at: datetime
    expected_gpus: int | None = None
    """As the node's own agent was told; the policy's and the label's word go before it."""
    attributes_missing: tuple[str, ...] = ()
    """Search attributes that the namespace lacks; see `sickbay.incident.IncidentInput`."""
    carried: AdmissionState | None = None
    """State carried over a continue-as-new; never given by a starter."""


class AdmissionView(Frozen):
    """Query `view`: the admission as people see it."""

    admission_id: str
    node: NodeRef
    stage: AdmissionStage
    outcome: AdmissionOutcome | None = None
    waiting_for: str = ""
    waiting_until: datetime | None = None
    rounds: int = 0
    faults: tuple[Fault, ...] = ()
    policy_version: str
    started_at: datetime
    timeline: tuple[TimelineEntry, ...] = ()


class AdmissionResult(Frozen):
    """How it ended; the workflow's result."""

    outcome: AdmissionOutcome
    reason: str
    boot_id: str = ""
    """The boot in which the node was admitted."""
    closed_at: datetime
    view: AdmissionView


class KnownAdmission(Frozen):
    """The latest admission of one machine, as Temporal knows it; by default there was none."""

    open: bool = False
    closed_at: datetime | None = None
    left_to_people: bool = False
    """It ended without a word on the node: so by its rules, or because somebody cancelled or terminated it."""


class Finding(Frozen):
    """What one pass means for an admission: faults to repair, or what is still missing, or neither: it passed."""

    faults: tuple[Fault, ...] = ()
    missing: tuple[str, ...] = ()

    @property
    def passed(self) -> bool:
        """The node may have work, as far as this pass went."""
        return not (self.faults or self.missing)


def wants_admission(look: NodeSnapshot) -> bool:
    """Whether the node bears our startup taint, and stays."""
    return look.exists and look.admission_taint and not look.deleting


def is_ours_to_admit(look: NodeSnapshot, policy: AdmissionPolicy) -> bool:
    """Whether we see to a tainted node: by the policy, or since we put the taint back before the policy changed."""
    return look.admission_taint and (policy.enabled or bool(look.admitted_boot))


def needs_taint(look: NodeSnapshot, policy: AdmissionPolicy) -> bool:
    """Whether our taint is due again: an admitted node runs another boot, and no incident of ours has rebooted it.

    An incident that returns a node notes its boot in the same write that takes its mark away. A node that never was
    admitted is left alone: Sickbay must not block a fleet by being installed. An empty boot id tells of no reboot. A
    taint that was put back in this boot already, and is gone, was taken away by somebody: an order (design, 3.7).
    """
    if not (policy.enabled and look.exists) or look.deleting or look.admission_taint:
        return False
    if look.held_boot == look.boot_id:
        return False
    return look.incident_mark is None and bool(look.admitted_boot) and look.boot_id not in ("", look.admitted_boot)


def begins_in(known: KnownAdmission, policy: IncidentPolicy, look: NodeSnapshot, now: datetime) -> timedelta | None:
    """How long until the watch starts an admission on a tainted node; zero for at once, None while one runs.

    One that people have been left with, or have cancelled, begins anew once the node has come up anew, which is their
    repair, or once a reminder is due: not at once, which would make their word meaningless, and not never, which would
    leave the node tainted in silence.
    """
    if known.open:
        return None
    if known.closed_at is None:
        return timedelta(0)
    came_up = (
        look.ready is Readiness.TRUE and look.ready_since is not None and known.closed_at < look.ready_since <= now
    )
    pause = policy.handover_reminder if known.left_to_people and not came_up else COOLDOWN
    return max(known.closed_at + pause - now, timedelta(0))


def may_begin(policy: AdmissionPolicy, under_validation: int) -> bool:
    """Whether one more admission is within the batch; those whose node is in repair do not count."""
    return under_validation < policy.at_once


def expected_gpus(policy: AdmissionPolicy, look: NodeSnapshot, told: int | None) -> int:
    """How many GPUs the node must have: by the policy, its instance type, its agent, its kubelet; at least one.

    The kubelet comes last, since a device plugin that has not begun makes it say none.
    """
    return policy.gpus or look.gpus_promised or told or look.gpu_devices or look.gpu_capacity or 1


def missing_to_judge(look: NodeSnapshot, expected: int) -> tuple[str, ...]:
    """What the API server alone shows that the node still lacks, in words. No incident has it any more at this look."""
    mark = (f"the mark of {look.incident_mark} is still on the node",) if look.incident_mark else ()
    return (*missing_in_look(look, expected), *mark)


def layout_faults(node: NodeRef, look: NodeSnapshot) -> tuple[Fault, ...]:
    """The fault of a MIG layout that mig-manager has given up; pending and rebooting are waited for."""
    if not look.mig_config or look.mig_state != "failed":
        return ()
    return (_own_fault(MIG_FAILED, node, look, f"mig-manager could not apply the layout {look.mig_config}"),)


def judge(look: NodeSnapshot, probe: HostProbe, expected: int) -> Finding:
    """What a full pass means, by the rule of an incident's verification. A fault that only may pass is waited for."""
    judgement = verification(look, probe, expected)
    if judgement.final:
        return Finding(faults=_troubles(probe.faults))
    return Finding(missing=judgement.missing)


def overdue_faults(
    node: NodeRef, look: NodeSnapshot, probe: HostProbe | None, expected: int, missing: Iterable[str]
) -> tuple[Fault, ...]:
    """What an incident is opened for at the deadline: what the node shows, and a person's word if that decides nothing.

    `probe` is a pass at the deadline, None if the node's worker did not answer.
    """
    shown = merge_faults(look.faults, probe.faults if probe else ())
    troubles = _troubles(shown)
    if any(fault.rung.disrupts or fault.rung is Rung.HUMAN for fault in troubles):
        return troubles
    if probe is not None and probe.gpus_answered and len(probe.gpus) < expected:
        lost = Component(kind=ComponentKind.GPU, id="unknown")
        words = f"{len(probe.gpus)} of {expected} GPUs answer, long after the start"
        gone = fault_of("gpu-missing", lost, seen=look.observed_at, boot_id=look.boot_id, evidence=(words,))
        return (*troubles, gone)
    return (*troubles, _own_fault(OVERDUE, node, look, f"not validated in time: {'; '.join(missing)}"))


def passed_after_all(state: AdmissionState, look: NodeSnapshot, expected: int) -> tuple[str, ...]:
    """Codes of ours that are over, since the node has come by itself while a person was asked."""
    late = tuple(fault.code for fault in state.faults if fault.code in TOLD_BY_ADMISSION)
    return late if late and not missing_in_look(look, expected) else ()


def pause_in_repair(policy: IncidentPolicy, waited: timedelta) -> timedelta:
    """Between two looks whether the incident is over: soon at first; it may last for days."""
    return policy.admission.look_every if waited < policy.admission.deadline else policy.look_every


def _troubles(faults: Iterable[Fault]) -> tuple[Fault, ...]:
    return tuple(fault for fault in faults if fault.rung is not Rung.NONE)


def _own_fault(code: str, node: NodeRef, look: NodeSnapshot, words: str) -> Fault:
    component = Component(kind=ComponentKind.HOST, id=node.name)
    return fault_of(code, component, seen=look.observed_at, boot_id=look.boot_id or None, evidence=(words,))
