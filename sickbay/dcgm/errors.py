"""What DCGM's error numbers and severities mean: the fault of each, or that nothing was measured.

Called by the judgements of this layer. What NVML tells too has the code that it has there, so that one trouble is one
fault whoever tells it. Numbers and severities are those of DCGM's own header (dcgm_errors.h; facts:
detection, 3b and 3c); where an output tells a text alone, the number is found by its words. A severity decides only for
numbers of the header that are not in the table, and a number that is not in the header is told and condemns nothing.
"""

import re
from typing import Final

from sickbay.dcgm.diagnostic import Finding, Status

NO_MEASUREMENT: Final = ""
"""In place of a code: DCGM failed, and not what it looked at."""

XID: Final = 101
LAST_KNOWN: Final = 132
"""Numbers above it are of a newer DCGM than 4.5."""

_NUMBERS: Final[dict[str, tuple[int, ...]]] = {
    NO_MEASUREMENT: (19, 21, 26, 27, 32, 37, 44, 47, 49, 53, 67, 69, 77, 82, 91, 92, 93, 94, 97),
    "dcgm-setting": (18, 23, 25, 28, 29, 48, 55, 60, 61, 68, 72, 74, 78, 89, 90, 96, 117, 124),
    "dcgm-software": (20, 22, 24),
    "dcgm-advice": (5, 10, 11, 12, 16, 17, 34, 36, 38, 39, 40, 41, 42, 43, 50, 63, 75, 76, 102, 105, 110),
    "dcgm-triage": (51, 54, 56, 59, 62, 64, 65, 66, 73, 129),
    "dcgm-pcie": (3, 30, 31, 45, 46, 98, 104, 107, 113, 114),
    "dcgm-isolate": (8, 33, 35, 58, 86, 87, 111, 115, 116),
    "dcgm-hardware": (52, 79, 95),
    "dcgm-memory-error": (57, 81, 103, 106),
    "ecc-uncorrected": (4,),
    "ecc-sram-threshold": (118,),
    "inforom-corrupted": (9,),
    "page-retirement-exhausted": (7,),
    "page-retirement-pending": (6, 83),
    "row-remap-exhausted": (132,),
    "row-remap-failed": (80,),
    # DCGM says that rows were remapped only where one waits for a reset.
    "row-remap-pending": (84, 85),
    "gpu-lost": (120,),
    "gpu-recovery-action": (125, 126, 127, 128),
    "dcgm-nvlink-errors": (13, 70, 71, 119, 121),
    "nvlink-down": (14, 99),
    "dcgm-fabric": (15, 88, 100, 109, 112, 123),
    "fabric-manager-down": (108,),
    "dcgm-imex": (122,),
    "dcgm-xid": (XID,),
    "xid-94": (131,),
}
_CODES: Final = {number: code for code, numbers in _NUMBERS.items() for number in numbers}

RECOVERY_ACTIONS: Final = {125: 1, 126: 2, 127: 3, 128: 4}
"""NVML's recovery action behind each of DCGM's numbers."""

_SEVERITIES: Final = {
    1: "dcgm-advice",
    2: "dcgm-isolate",
    4: "dcgm-triage",
    5: "dcgm-setting",
    6: "dcgm-reset",
}
"""By DCGM_ERROR_*: monitor, isolate, triage, configuration, reset; 0 and 3 say nothing."""

_WORDS: Final = tuple(
    (re.compile(pattern), number)
    for pattern, number in (
        # What DCGM itself could not do comes first: its texts may quote any other.
        (r"internalerror|childprocess|couldn'tbeparsed|cannotbeparsed", 44),
        (r"abortedearly", 47),
        (r"errorusingdcgmapi|dcgmapi", 67),
        (r"couldnotqueryfield", 27),
        (r"unabletogenerate/?collectstat", 49),
        (r"fallenoffthebus|gpuislost", 120),
        (r"rowremapping.*fail|failedtoremap", 80),
        (r"rowremapping.*pending|pending.*rowremap", 85),
        (r"rowswereremapped", 84),
        (r"uncontainederror", 81),
        (r"miscompare", 79),
        (r"memorymismatch", 58),
        (r"faultymemory", 52),
        (r"nan-value", 111),
        (r"sram.*threshold", 118),
        (r"pendingretiredpage|pendingpageretirement|pageretirement.*pending", 6),
        (r"retiredpages", 7),
        (r"double-?bit", 4),
        (r"single-?bit", 5),
        (r"sxid", 109),
        (r"xid\d", XID),
        (r"inforom", 9),
        (r"nonfatalerrorsonnvswitch", 16),
        (r"fatalerrorsonnvswitch", 15),
        (r"nvlink.*down|nvlinksareup", 14),
        (r"nvlinkerrors|crcerrors", 71),
        (r"fabricmanager", 108),
        (r"imex", 122),
        (r"persistencemode", 29),
        (r"environmentvariable", 28),
        (r"denylist|blacklist", 23),
        (r"graphicscontext", 25),
        (r"ecc.*(?:notenabled|notcurrentlyactive|notturnedon)", 55),
        (r"enforcedpowerlimit", 72),
        (r"permission", 96),
        (r"cannotopenlibrary", 22),
        (r"numberofdevicesnvmlreturns", 20),
        (r"pciereplay", 3),
        (r"pcilinkgeneration|pcilinkwidth", 45),
        (r"bandwidthofgpu", 30),
        (r"latencytype", 31),
        (r"memorybandwidthof", 62),
        (r"thermalviolation", 40),
        (r"temperature.*exceeded", 42),
        (r"powerviolation", 12),
        (r"clockthrottling|clocksevent", 43),
        (r"maxstresslevel", 50),
        (r"maxpowerof", 63),
        (r"uncorrectable(?:memory|ecc)", 4),
        (r"cudacontext", 66),
        (r"couldn'tallocate", 56),
        (r"cudadevice", 59),
        (r"cudaapi", 51),
    )
)
"""Words of DCGM's messages, without blanks and in lower case, since a table may cut them anywhere."""

_MAX_TEXT: Final = 2000
"""Characters of a message that are looked at; DCGM's own have at most 1,000 (dcgm_structs.h)."""

_SETTING_TESTS: Final = frozenset(
    (
        "blacklist",
        "denylist",
        "persistence mode",
        "environment variables",
        "environmental variables",
        "graphics processes",
        "permissions and os blocks",
        "permissions and os-related blocks",
    )
)
_SOFTWARE_TESTS: Final = frozenset(("nvml library", "cuda main library", "cuda runtime library"))
_PERFORMANCE_TESTS: Final = frozenset(
    ("sm stress", "targeted stress", "targeted power", "memory bandwidth", "nvbandwidth", "pulse test")
)


def error_number(finding: Finding) -> int | None:
    """DCGM's number of the error: as told, else by the words of its text; None if neither is known."""
    if finding.error_id not in (None, 0, 1, 2):
        return finding.error_id
    squeezed = "".join(finding.text[:_MAX_TEXT].lower().split())
    return next((number for pattern, number in _WORDS if pattern.search(squeezed)), None)


def code_of(finding: Finding, test: str = "", status: Status = Status.FAIL) -> str:
    """The code of the fault behind a finding, or `NO_MEASUREMENT`. `test` decides where DCGM gives no reason."""
    number = error_number(finding)
    if number in _CODES:
        return _CODES[number]
    if number is not None and number > LAST_KNOWN:
        return "dcgm-unknown-error"
    if finding.severity in _SEVERITIES:
        return _SEVERITIES[finding.severity]
    return _code_of_test(test, status)


def _code_of_test(test: str, status: Status) -> str:
    name = test.lower().replace("_", " ").strip()
    if name in _SETTING_TESTS:
        return "dcgm-setting"
    if name in _SOFTWARE_TESTS:
        return "dcgm-software"
    if status is Status.WARN or name in _PERFORMANCE_TESTS:
        return "dcgm-advice"
    return "dcgm-triage"
