"""What the numbers of dcgm-exporter's families mean for one GPU: the table behind `sickbay.dcgm.exporter`.

Limits are DCGM's own (facts: detection, 3a and 3b). A family that is not here judges nothing; temperatures, clocks and
uses of a well GPU and of a sick one look alike.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from sickbay.dcgm.diagnostic import Finding
from sickbay.dcgm.errors import NO_MEASUREMENT, code_of
from sickbay.dcgm.exporter_page import Sample
from sickbay.dcgm.reported import xid_code
from sickbay.faults import Rung
from sickbay.gpu_readings import RECOVERY_ACTIONS

XID: Final = "DCGM_FI_DEV_XID_ERRORS"
XID_COUNTS: Final = "DCGM_EXP_XID_ERRORS_COUNT"
REMAP_FAILURE: Final = "DCGM_FI_DEV_ROW_REMAP_FAILURE"
_HEALTH: Final = "DCGM_EXP_GPU_HEALTH_STATUS"
_MANAGER: Final = "DCGM_FI_DEV_FABRIC_MANAGER_STATUS"
_ACTION: Final = "DCGM_FI_DEV_GPU_RECOVERY_ACTION"


class Limit(NamedTuple):
    """From which value on a number is trouble, and which."""

    least: int
    code: str


LIMITS: Final = {
    REMAP_FAILURE: Limit(1, "row-remap-failed"),
    "DCGM_FI_DEV_ROW_REMAP_PENDING": Limit(1, "row-remap-pending"),
    "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS": Limit(512, "row-remap-exhausted"),
    "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL": Limit(1, "ecc-uncorrected"),
    "DCGM_FI_DEV_RETIRED_PENDING": Limit(1, "page-retirement-pending"),
    "DCGM_FI_DEV_RETIRED_DBE": Limit(63, "page-retirement-exhausted"),
    "DCGM_FI_DEV_RETIRED_SBE": Limit(63, "page-retirement-exhausted"),
    "DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL": Limit(1, "dcgm-nvlink-counts"),
    "DCGM_FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL": Limit(1, "dcgm-nvlink-counts"),
    "DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL": Limit(1, "dcgm-nvlink-counts"),
    "DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL": Limit(1, "dcgm-nvlink-counts"),
}

JUDGED: Final = frozenset((*LIMITS, XID, _HEALTH, _MANAGER, _ACTION))
"""Families whose blanks leave a GPU unjudged."""

_MANAGER_WELL: Final = (0, 3)
"""Not supported, and success; 1 is not started, 2 in progress, 4 a failure, and the rest are words of DCGM's own."""
_MANAGER_CODES: Final = {1: "fabric-manager-down", 4: "dcgm-fabric"}
_HEALTH_CODES: Final = {10: "dcgm-advice", 20: "dcgm-triage"}


class Meaning(NamedTuple):
    """What a sample says: a code, or why it says nothing; neither of a good one."""

    code: str = ""
    rung: Rung | None = None
    """Where the number itself names it."""
    unjudged: str = ""


def meaning_of(sample: Sample) -> Meaning:
    """What a sample of one GPU says by itself. The last Xid is not judged here: its level tells no time."""
    if sample.family == XID_COUNTS:
        return _of_xid_count(sample)
    if sample.family not in JUDGED:
        return Meaning()
    if sample.value is None:
        return Meaning(unjudged=f"{sample.family} is blank")
    number = int(sample.value)
    if sample.family in LIMITS:
        limit = LIMITS[sample.family]
        return Meaning(limit.code if number >= limit.least else "")
    match sample.family:
        case name if name == _HEALTH:
            return _of_health(number, sample)
        case name if name == _MANAGER:
            return _of_manager(number)
        case name if name == _ACTION:
            return _of_action(number)
    return Meaning()


def _of_xid_count(sample: Sample) -> Meaning:
    """Xids within the exporter's window, which is minutes."""
    xid = sample.labels.get("xid", "")
    if not sample.value or not xid.isdigit() or len(xid) > 3 or int(xid) == 0:
        return Meaning()
    return Meaning(xid_code(int(xid)))


def _of_health(number: int, sample: Sample) -> Meaning:
    if number == 0:
        return Meaning()
    if number not in _HEALTH_CODES:
        return Meaning(unjudged=f"{_HEALTH} is {number}, which DCGM does not have")
    words = " ".join(_labels_of_health(sample))
    code = code_of(Finding(text=words.replace("DCGM_FR_", "").replace("_", " ")), test=words)
    known = number == 20 and code not in (NO_MEASUREMENT, "dcgm-triage")
    return Meaning(code if known else _HEALTH_CODES[number])


def _labels_of_health(sample: Sample) -> Iterator[str]:
    for name in ("health_watch", "health_error_code", "health_error"):
        if sample.labels.get(name):
            yield sample.labels[name]


def _of_manager(number: int) -> Meaning:
    if number in _MANAGER_WELL:
        return Meaning()
    if number in _MANAGER_CODES:
        return Meaning(_MANAGER_CODES[number])
    return Meaning(unjudged="the fabric manager is at work" if number == 2 else f"{_MANAGER} is {number}")


def _of_action(number: int) -> Meaning:
    if number not in RECOVERY_ACTIONS:
        return Meaning(unjudged=f"{_ACTION} is {number}, which NVML does not have")
    rung = RECOVERY_ACTIONS[number][1]
    return Meaning("gpu-recovery-action" if rung is not Rung.NONE else "", rung)
