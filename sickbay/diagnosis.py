"""From all open faults of a node to one verdict: whose trouble it is, which parts, and the first rung worth trying.

Called by the incident workflow, by the console and by the node agent. Pure: the order of faults does not matter, and
more faults never lower the rung.

The rules (design, 3.2 and 3.3): the strongest rung wins; a consequence follows its cause; an application's fault stays
the job's, unless it follows the GPU from one workload to another; an unknown code is told to a human and disturbs
nobody. What a line's own words or the driver's recovery action say is in the faults already (`sickbay.kernel_log`).
"""

from collections.abc import Iterable
from typing import Final

from sickbay.catalogue import lookup
from sickbay.faults import (
    NOTHING_WRONG,
    Component,
    ComponentKind,
    Fault,
    FaultClass,
    Rung,
    Severity,
    Verdict,
    strongest,
)

_LOST_GPU: Final = ("xid-79", "gpu-lost")
_CLEANUP: Final = "xid-45"
_RECOVERY_ACTION: Final = "gpu-recovery-action"

NAMES_OF_A_SUSPECT: Final = 2
WORKLOADS_OF_A_SUSPECT: Final = 3
"""A GPU is suspect when one application fault hit this many workloads on it: two of different names, or three of one,
since a job that is restarted once meets its own bug again (case: two pids of one name, and the GPU was well)."""


def diagnose(faults: Iterable[Fault]) -> Verdict:
    """The verdict on a node with these open faults; `NOTHING_WRONG` of none."""
    judged = [_suspected(fault) for fault in faults]
    causes = [fault for fault in judged if not _is_consequence(fault, judged)]
    if not causes:
        return NOTHING_WRONG
    rung = strongest(fault.rung for fault in causes)
    deciding = max((fault for fault in causes if fault.rung is rung), key=_weight)
    fault_class = _class_of(deciding, causes)
    return Verdict(
        fault_class=fault_class,
        rung=rung,
        components=_components(causes, rung, fault_class),
        reason=_reason(deciding, causes),
    )


def _suspected(fault: Fault) -> Fault:
    """An application fault that met several workloads on one GPU is the GPU's; any other fault as it is."""
    if fault.fault_class is not FaultClass.APPLICATION or fault.component.kind is not ComponentKind.GPU:
        return fault
    names = {workload.name for workload in fault.workloads}
    if len(names) < NAMES_OF_A_SUSPECT and len(fault.workloads) < WORKLOADS_OF_A_SUSPECT:
        return fault
    if fault.code == _CLEANUP or fault.rung.strength > Rung.RESET_GPU.strength:
        return fault
    return fault.model_copy(update={"fault_class": FaultClass.GPU, "rung": Rung.RESET_GPU})


def _is_consequence(fault: Fault, faults: list[Fault]) -> bool:
    """Whether another fault of this node explains this one. A consequence is never stronger than its cause."""
    return any(_explains(cause, fault) for cause in faults if cause.rung.strength >= fault.rung.strength)


def _explains(cause: Fault, fault: Fault) -> bool:
    lost_gpu = cause.component.kind is ComponentKind.GPU and cause.code in _LOST_GPU
    if fault.component.kind is ComponentKind.NVSWITCH:
        return lost_gpu  # its links go down with it
    if fault.component.kind is ComponentKind.PCIE:
        return lost_gpu or (cause.component.kind is ComponentKind.GPU and cause.code == fault.code)
    if fault.code == _CLEANUP:
        return cause.component == fault.component and cause.code != _CLEANUP
    if fault.code == "gpu-missing" and fault.component.id == "unknown":
        return lost_gpu or cause.code == "gpu-init-failed"
    return False


def _weight(fault: Fault) -> tuple[int, int, bool, int, str, str]:
    """What decides between faults: rung, severity, a fault before a bare recovery action, class; then a fixed order."""
    return (
        fault.rung.strength,
        list(Severity).index(fault.severity),
        fault.code != _RECOVERY_ACTION,
        list(FaultClass).index(fault.fault_class),
        fault.code,
        fault.component.id,
    )


def _class_of(deciding: Fault, causes: list[Fault]) -> FaultClass:
    """The class of the deciding fault. A bare recovery action takes the class of the trouble that it stands beside."""
    if deciding.code != _RECOVERY_ACTION:
        return deciding.fault_class
    beside = [fault for fault in causes if fault.code != _RECOVERY_ACTION and fault.fault_class in _OF_GPUS]
    troubled = [fault for fault in beside if fault.rung.disrupts]
    return max(troubled, key=_weight).fault_class if troubled else deciding.fault_class


_OF_GPUS: Final = (FaultClass.GPU, FaultClass.FABRIC)


def _components(causes: list[Fault], rung: Rung, fault_class: FaultClass) -> tuple[Component, ...]:
    """The parts that the verdict is on: those of its class or rung, and all that need a disrupting rung themselves.

    A part that a line could not name is left out beside named ones of its kind: it is most likely one of them.
    """
    concerned = {fault.component for fault in causes if _is_concerned(fault, rung, fault_class)}
    named = {component.kind for component in concerned if component.id != "unknown"}
    return tuple(
        sorted(
            (component for component in concerned if component.id != "unknown" or component.kind not in named),
            key=lambda component: (component.kind, component.id),
        )
    )


def _is_concerned(fault: Fault, rung: Rung, fault_class: FaultClass) -> bool:
    if rung is Rung.NONE:
        return fault.fault_class is fault_class
    if fault.rung is rung or (fault.rung.disrupts and rung.disrupts):
        return True
    return fault.fault_class is fault_class and fault.severity is not Severity.INFO


def _reason(deciding: Fault, causes: list[Fault]) -> str:
    """One sentence on the fault that decided, and one on codes that nobody has judged yet."""
    row = lookup(deciding.code)
    reason = f"{deciding.code} on {deciding.component.kind} {deciding.component.id}: {row.meaning}"
    if deciding.fault_class is FaultClass.GPU and row.fault_class is FaultClass.APPLICATION:
        reason += f"; it hit {len(deciding.workloads)} workloads, or the driver asks for more, so the GPU is suspect"
    others = len(causes) - 1
    if others:
        reason += f" ({others} more {'fault' if others == 1 else 'faults'})"
    unknown = sorted({fault.code for fault in causes if not lookup(fault.code).known} - {deciding.code})
    if unknown:
        reason += f"; unknown to catalogue, for a human to look up: {', '.join(unknown)}"
    return reason
