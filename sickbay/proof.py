"""Whether a rung really happened (proof), and whether the node is well after it (verification). Design, 3.6.

Pure comparisons of what was recorded before the act with what was observed after it. A condition that turned healthy
proves nothing, and neither does an API that answered; silence and `unknown` are never good.
"""

from collections.abc import Iterable
from datetime import datetime
from typing import Final

from sickbay import cloud_words
from sickbay.checks import ActiveDepth
from sickbay.faults import ComponentKind, Fault, Rung
from sickbay.incident import Intent
from sickbay.model import Frozen
from sickbay.nodes import HostProbe, NodeSnapshot, Readiness
from sickbay.other_agents.judgement import is_reported

MIG_APPLIED: Final = "success"
"""mig-manager's word for a layout that is as wished; a reset or a reboot undoes it (facts: remediation, 5)."""
_NO_ACTION = ("none", "unknown")
"""Recovery actions that do not contradict a reset: none, and that of a driver too old to say (facts: detection, 2)."""


class Judgement(Frozen):
    """Passed, or what is still missing. `final` says that waiting longer cannot change it."""

    missing: tuple[str, ...] = ()
    final: bool = False

    @property
    def passed(self) -> bool:
        """Nothing is missing."""
        return not self.missing

    def __str__(self) -> str:
        return "; ".join(self.missing)


def proof_of_stopped_workload(intent: Intent, probe: HostProbe) -> Judgement:
    """No process holds a GPU that the faults are in (any GPU, if they name none)."""
    wanted = gpus_of(intent)
    missing = [] if probe.gpus_answered else ["the GPUs do not answer"]
    missing += [
        f"{gpu.process_count} process(es) still hold GPU {gpu.pci}"
        for gpu in probe.gpus
        if gpu.process_count and (not wanted or gpu.pci in wanted)
    ]
    return Judgement(missing=tuple(missing))


def proof_of_reset(intent: Intent, probe: HostProbe) -> Judgement:
    """The same GPUs answer in the same boot, and the driver asks for nothing more."""
    missing = []
    if probe.boot_id != intent.boot_id:
        missing.append(f"the node runs boot {probe.boot_id} by now: somebody rebooted it")
    if not probe.gpus_answered:
        missing.append("the GPUs do not answer")
    seen = [gpu.uuid for gpu in probe.gpus]
    missing += [f"GPU {uuid} is missing" for uuid in intent.gpu_uuids if uuid not in seen]
    wanted = gpus_of(intent)
    missing += [f"GPU {pci} is missing" for pci in wanted if pci not in [gpu.pci for gpu in probe.gpus]]
    for gpu in probe.gpus:
        if wanted and gpu.pci not in wanted:
            continue
        if gpu.recovery_action not in _NO_ACTION:
            missing.append(f"the driver still asks for {gpu.recovery_action} on GPU {gpu.pci}")
        if gpu.remap_pending:
            missing.append(f"a row remap is still pending on GPU {gpu.pci}")
    return Judgement(missing=tuple(missing))


def proof_of_reboot(intent: Intent, look: NodeSnapshot) -> Judgement:
    """Another boot id, and Ready. An empty boot id differs from the old one but proves nothing (NVSentinel PR 1569)."""
    missing = []
    if not look.boot_id or look.boot_id == intent.boot_id:
        missing.append("no new boot id")
    if look.ready is not Readiness.TRUE:
        missing.append(f"Ready is {look.ready}")
    return Judgement(missing=tuple(missing))


def verification(look: NodeSnapshot, probe: HostProbe, expected_gpus: int | None) -> Judgement:
    """The node is well: all GPUs answer and are allocatable, every check judged, and no fault asks for a rung."""
    troubles = [fault for fault in probe.faults if fault.rung is not Rung.NONE]
    missing = [f"{fault.code} on {fault.component.id}" for fault in troubles]
    final = any(fault.rung.disrupts or fault.rung is Rung.HUMAN for fault in troubles)
    if not probe.gpus_answered:
        missing.append("the GPUs do not answer")
    if expected_gpus is not None and len(probe.gpus) < expected_gpus:
        missing.append(f"{len(probe.gpus)} of {expected_gpus} GPUs answer")
    missing += [f"check {name} cannot judge" for name in probe.checks_unknown]
    if probe.boot_id != look.boot_id:
        missing.append("the API server and the host tell different boot ids")
    return Judgement(missing=(*missing, *missing_in_look(look, expected_gpus)), final=final)


def missing_in_look(look: NodeSnapshot, expected_gpus: int | None) -> tuple[str, ...]:
    """What the API server alone shows that the node still lacks, in words."""
    missing = []
    if look.ready is not Readiness.TRUE:
        missing.append(f"Ready is {look.ready}")
    if look.gpu_allocatable < max(expected_gpus or 0, look.gpu_capacity):
        missing.append(f"{look.gpu_allocatable} of {max(expected_gpus or 0, look.gpu_capacity)} GPUs are allocatable")
    if look.mig_config and look.mig_state != MIG_APPLIED:
        missing.append(f"MIG layout {look.mig_config} is not there yet: {look.mig_state or 'mig-manager is silent'}")
    # One that only blocks new work is the next incident's: no stronger rung than the last would cure it either.
    standing = (fault for fault in cloud_words.standing(look.faults) if fault.rung.disrupts or fault.rung is Rung.HUMAN)
    missing += [f"EC2 still tells {fault.code}" for fault in standing]
    if not look.conditions_fresh:
        missing.append("the node agent has not reported since")
    elif not look.conditions_healthy:
        missing.append("a health condition of the node is not True")
    return tuple(missing)


def depth_due(wanted: ActiveDepth, look: NodeSnapshot, expected_gpus: int | None) -> ActiveDepth:
    """How far the active checks of a pass are to go now: a pass that cannot come to a yes loads no GPU for it."""
    return ActiveDepth.NONE if missing_in_look(look, expected_gpus) else wanted


def gpus_of(intent: Intent) -> tuple[str, ...]:
    """PCI addresses of the GPUs that the intent is about; empty means all of the node's."""
    kinds = [component.kind for component in intent.components]
    ids = [component.id for component in intent.components if component.kind is ComponentKind.GPU]
    known = all(kind is ComponentKind.GPU for kind in kinds) and "unknown" not in ids
    return tuple(ids) if known else ()


def relapses(intent: Intent, known: Iterable[Fault], reported: Iterable[Fault]) -> tuple[Fault, ...]:
    """Reported faults that arose after the intent's proof; the others are old news that arrived late.

    By the clock where the fault has one, else by its count, which only grows. A fault of the boot that a reboot ended
    is old whatever its clock says.
    """
    counts = {fault.identity: fault.count for fault in known}
    return tuple(
        fault
        for fault in reported
        if fault.rung is not Rung.NONE
        # Another agent's word condemns nothing alone; it is told again once the incident is over.
        and not is_reported(fault.code)
        and not (intent.rung is Rung.REBOOT and fault.boot_id and fault.boot_id == intent.boot_id)
        and (
            fault.last_seen > intent.proven_at
            if isinstance(fault.last_seen, datetime) and intent.proven_at is not None
            else fault.count > counts.get(fault.identity, 0)
        )
    )
