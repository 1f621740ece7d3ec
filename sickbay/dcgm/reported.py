"""Faults of what DCGM says: which code, which part, and what a person reads of it.

Called by the judgements of this layer. An Xid that DCGM tells is judged as the kernel log's of the same number, except
for NVLink's 74 and 144 to 150: whether those are fatal stands in the kernel's line alone (NVSentinel#1357).
"""

import re
from collections.abc import Iterable
from typing import Final

from sickbay.catalogue import fault_of, lookup_xid
from sickbay.dcgm.diagnostic import Entity, Finding, Status, gpu
from sickbay.dcgm.errors import RECOVERY_ACTIONS, XID, code_of, error_number
from sickbay.dcgm.exit_codes import FAULTS, words_of_exit
from sickbay.faults import EVIDENCE_LINES_KEPT, Component, ComponentKind, Fault, FaultClass
from sickbay.gpu_readings import RECOVERY_ACTIONS as NVML_ACTIONS
from sickbay.gpu_readings.events import WEIGHT_IN_LINE

UNNAMED: Final = Component(kind=ComponentKind.GPU, id="unknown")
"""Where DCGM does not say which GPU, or means all of them."""

_GPU: Final = re.compile(r"\bGPU\s*(\d{1,4})\b", re.IGNORECASE)
_XID: Final = re.compile(r"\bxid\W{0,3}(\d{1,3})\b", re.IGNORECASE)
_FABRIC_CODES: Final = frozenset(("dcgm-nvlink-errors", "dcgm-nvlink-counts", "nvlink-down", "dcgm-nvlink-disabled"))


def named_gpus(text: str) -> tuple[Entity, ...]:
    """The GPUs that a text names, each once."""
    return tuple(gpu(number) for number in dict.fromkeys(int(found) for found in _GPU.findall(text)))


def xid_code(number: int) -> str:
    """The code of an Xid of which only DCGM tells."""
    return "dcgm-xid" if number in WEIGHT_IN_LINE or not lookup_xid(number).known else f"xid-{number}"


def xids_of(text: str) -> tuple[int, ...]:
    """The numbers of the Xids that a text names, each once."""
    return tuple(dict.fromkeys(int(found) for found in _XID.findall(text)))


def code_of_finding(finding: Finding, test: str = "", status: Status = Status.FAIL) -> str:
    """As `errors.code_of`, with the number of an Xid read from the finding's text."""
    xids = xids_of(finding.text)
    if error_number(finding) == XID and xids:
        return xid_code(xids[0])
    return code_of(finding, test, status)


def reported_fault(code: str, entity: Entity | None, evidence: str, finding: Finding | None = None) -> Fault:
    """One fault of DCGM's words; `finding` decides the rung of a recovery action."""
    fault = fault_of(code, _component(code, entity), evidence=(evidence,))
    action = RECOVERY_ACTIONS.get(error_number(finding) or 0) if finding else None
    if action is None or code != "gpu-recovery-action":
        return fault
    return fault.model_copy(update={"rung": NVML_ACTIONS[action][1], "fault_class": FaultClass.GPU})


def fault_of_exit(exit_code: int | None) -> tuple[Fault, ...]:
    """The fault of an exit code that only a sick GPU explains; nothing for any other."""
    if exit_code not in FAULTS or exit_code is None:
        return ()
    return (reported_fault(FAULTS[exit_code], None, f"dcgmi: {words_of_exit(exit_code)}"),)


def together(faults: Iterable[Fault]) -> tuple[Fault, ...]:
    """The faults with those of one part and code joined: DCGM tells one trouble in several tests."""
    joined: dict[tuple[str, str, str, str], Fault] = {}
    for fault in faults:
        first = joined.get(fault.identity)
        if first is None:
            joined[fault.identity] = fault
            continue
        evidence = tuple(dict.fromkeys((*first.evidence, *fault.evidence)))[:EVIDENCE_LINES_KEPT]
        joined[fault.identity] = first.model_copy(update={"evidence": evidence})
    return tuple(joined.values())


def _component(code: str, entity: Entity | None) -> Component:
    part = entity.component if entity else UNNAMED
    if code in _FABRIC_CODES and part.kind is ComponentKind.GPU:
        return Component(kind=ComponentKind.NVLINK, id=part.id)
    return part
