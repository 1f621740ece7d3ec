"""Adds sightings up to faults, in bounded memory.

Here are the rules that need more than one line: a repeat counts up, 45 follows its cause, 162 cancels 163, and the
latest recovery action of a GPU raises its faults or, changed back to None, clears them. What follows from several
faults together is `sickbay.diagnosis`.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from sickbay.catalogue import lookup
from sickbay.faults import (
    EVIDENCE_LINES_KEPT,
    Component,
    ComponentKind,
    Fault,
    FaultClass,
    Rung,
    Severity,
)
from sickbay.kernel_log.entry import Entry
from sickbay.kernel_log.lines import Line
from sickbay.kernel_log.recovery import RecoveryAction
from sickbay.kernel_log.sighting import Judgement, Memory, Sighting

FAULTS_KEPT: Final = 512
"""Distinct faults kept; a node has fewer parts that can fail. Past it a stronger fault takes the place of a weaker."""

_CLEANUP: Final = "xid-45"
_RECOVERY_ACTION: Final = "xid-154"
_NVLINK5: Final = frozenset(f"xid-{number}" for number in range(144, 151))

_UNSEEN_NVLINK_FAULT: Final = Judgement(FaultClass.FABRIC, Rung.REBOOT, Severity.FATAL)
"""An NVLink error known only by the channels it killed: neither its word nor a recovery action is there to soften it,
and where this was seen only a reboot brought the links back (ogkm#1150)."""

_CLEARED_BY_NONE: Final = (Rung.STOP_WORKLOAD, Rung.RESET_GPU, Rung.REBOOT)
"""Rungs that the driver could ask for: a fault of one of these is over when the driver asks for nothing any more."""


class _Key(NamedTuple):
    component: Component
    code: str


class _Recovery(NamedTuple):
    action: RecoveryAction
    line: Line


class Ledger:
    """The open faults of one kernel log."""

    def __init__(self) -> None:
        self._entries: dict[_Key, Entry] = {}
        self._unseen_causes: dict[_Key, Entry] = {}
        """Faults that only an Xid 45 names as its cause."""
        self._recoveries: dict[Component, _Recovery] = {}
        self._weakest = Rung.NONE.strength
        self.dropped = 0
        """Sightings of distinct faults that had no room."""

    def add(self, sighting: Sighting) -> None:
        """Counts one sighting."""
        if sighting.code == _RECOVERY_ACTION and sighting.recovery_action is not None:
            self._recovery_changed(sighting, sighting.recovery_action)
        elif sighting.code == _CLEANUP and sighting.caused_by not in (None, _CLEANUP, _RECOVERY_ACTION):
            self._count(self._unseen_causes, _Key(sighting.component, str(sighting.caused_by)), sighting)
        else:
            if sighting.code == "xid-162":
                self._entries.pop(_Key(sighting.component, "xid-163"), None)
            self._count(self._entries, _Key(sighting.component, sighting.code), sighting)

    def faults(self, memory: Memory, boot_id: str | None) -> tuple[Fault, ...]:
        """All open faults, in the order in which they were first seen."""
        faults = [entry.fault(key.component, key.code, boot_id) for key, entry in self._entries.items()]
        faults += self._faults_of_unseen_causes(boot_id)
        faults = [fault for fault in faults if not _is_followed_up(fault, faults)]
        for component, recovery in self._recoveries.items():
            faults = list(_with_recovery(faults, component, recovery, boot_id))
        return tuple(_with_identity(fault, memory) for fault in faults)

    def _count(self, entries: dict[_Key, Entry], key: _Key, sighting: Sighting) -> None:
        entry = entries.get(key)
        if entry is None:
            if not self._make_room(sighting):
                self.dropped += 1
                return
            entry = entries[key] = Entry()
        entry.add(sighting)

    def _make_room(self, sighting: Sighting) -> bool:
        """Whether a new fault may be kept, after a weaker one was forgotten where need be."""
        if len(self._entries) + len(self._unseen_causes) < FAULTS_KEPT:
            return True
        strength = (sighting.judgement.rung if sighting.judgement else lookup(sighting.code).rung).strength
        if strength <= self._weakest or not self._entries:
            return False
        key, entry = min(self._entries.items(), key=lambda item: item[1].judgement_of(item[0].code).rung.strength)
        self._weakest = entry.judgement_of(key.code).rung.strength
        if strength <= self._weakest:
            return False
        del self._entries[key]
        return True

    def _recovery_changed(self, sighting: Sighting, action: RecoveryAction) -> None:
        if action is RecoveryAction.NONE:
            self._recoveries.pop(sighting.component, None)
            self._clear(sighting.component)
        elif sighting.component in self._recoveries or len(self._recoveries) < FAULTS_KEPT:
            self._recoveries[sighting.component] = _Recovery(action, sighting.line)

    def _clear(self, component: Component) -> None:
        """Forgets what the driver no longer minds. Faults of the job stay, and so does what no recovery can cure."""
        for key, entry in list(self._entries.items()):
            if key.component == component and entry.judgement_of(key.code).rung in _CLEARED_BY_NONE:
                del self._entries[key]
        for key in [key for key in self._unseen_causes if key.component == component]:
            del self._unseen_causes[key]

    def _faults_of_unseen_causes(self, boot_id: str | None) -> Iterator[Fault]:
        for key, entry in self._unseen_causes.items():
            if key in self._entries:
                continue
            fault = entry.fault(key.component, key.code, boot_id)
            yield _judged(fault, _UNSEEN_NVLINK_FAULT) if key.code in _NVLINK5 else fault


def _judged(fault: Fault, judgement: Judgement) -> Fault:
    return fault.model_copy(
        update={
            "fault_class": judgement.fault_class,
            "rung": judgement.rung,
            "severity": judgement.severity,
        }
    )


def _is_followed_up(fault: Fault, faults: list[Fault]) -> bool:
    """Whether this is a channel's clean-up beside the fault that it cleans up after."""
    return fault.code == _CLEANUP and any(
        other.component == fault.component and other.code != _CLEANUP for other in faults
    )


def _with_recovery(
    faults: list[Fault], component: Component, recovery: _Recovery, boot_id: str | None
) -> Iterator[Fault]:
    """The faults, with a GPU's recovery action given to its worst fault; without one, the action is the fault."""
    own = [fault for fault in faults if fault.component == component and fault.code != _CLEANUP]
    cause = max(own, key=lambda fault: (fault.rung.strength, list(Severity).index(fault.severity)), default=None)
    for fault in faults:
        if fault is cause:
            yield _raised(fault, recovery)
        elif fault.component != component or fault.code != _CLEANUP:
            yield fault
    if cause is None:
        entry = Entry()
        entry.add(Sighting("gpu-recovery-action", component, recovery.line, _asked_for(recovery)))
        yield entry.fault(component, "gpu-recovery-action", boot_id)


def _asked_for(recovery: _Recovery) -> Judgement:
    imex = recovery.action is RecoveryAction.RECOVER_IMEX_DOMAIN
    return Judgement(FaultClass.FABRIC if imex else FaultClass.GPU, recovery.action.rung, Severity.FATAL)


def _raised(fault: Fault, recovery: _Recovery) -> Fault:
    """A fault with the rung that the driver asks for, where that is stronger. It is then the GPU's, not the job's."""
    asked = _asked_for(recovery)
    evidence = (*fault.evidence[: EVIDENCE_LINES_KEPT - 1], recovery.line.raw)
    fault = fault.model_copy(update={"evidence": evidence})
    if asked.rung.strength <= fault.rung.strength:
        return fault
    of_the_fabric = FaultClass.FABRIC in (fault.fault_class, lookup(fault.code).fault_class)
    return _judged(fault, asked._replace(fault_class=FaultClass.FABRIC) if of_the_fabric else asked)


def _with_identity(fault: Fault, memory: Memory) -> Fault:
    """A GPU's fatal fault, with the lines that tell its UUID and serial number where there is room."""
    if fault.component.kind is not ComponentKind.GPU or fault.severity is not Severity.FATAL:
        return fault
    lines = (*fault.evidence, *memory.identities.get(fault.component.id, ()))
    return fault.model_copy(update={"evidence": lines[:EVIDENCE_LINES_KEPT]})
