"""One printed value: a number, a word, no data, or an error in the place of a value.

Every form of the output passes its values through here. nvidia-smi puts NVML's error sentences where a number belongs,
and ends as if all were well (facts: detection, 2); `N/A` and its kin mean that there is nothing to tell.
"""

import re
from typing import Final

NO_DATA: Final = frozenset(
    {
        "",
        "n/a",
        "not supported",
        "not available",
        "requested functionality has been deprecated",
        "none found",
        "unknown",
    }
)
"""Words that say that a reading does not exist here: neither a zero nor a fault."""

NO_PERMISSION: Final = 4
TIMEOUT: Final = 10
LOST: Final = 15
RESET_REQUIRED: Final = 16
BLOCKED: Final = 17
UNKNOWN_ERROR: Final = 999

_ERRORS: Final = (
    ("gpu is lost", LOST),
    ("fallen off the bus", LOST),
    ("requires reset", RESET_REQUIRED),
    ("reset required", RESET_REQUIRED),
    ("insufficient permissions", NO_PERMISSION),
    ("blocked by the operating system", BLOCKED),
    ("timeout", TIMEOUT),
    ("timed out", TIMEOUT),
    ("unknown error", UNKNOWN_ERROR),
    ("err!", UNKNOWN_ERROR),
    ("error", UNKNOWN_ERROR),
)
"""NVML's sentences (nvmlErrorString) with its return codes."""

_NUMBER: Final = re.compile(r"-?\d+(?:\.\d+)?")
_ADDRESS: Final = re.compile(r"(?:([0-9a-f]{4,8}):)?([0-9a-f]{2}):([0-9a-f]{2})(?:\.[0-7])?", re.IGNORECASE)


def plain(text: str) -> str:
    """A value without the brackets that csv output puts around what is no value, in small letters."""
    return text.strip().strip("[]").strip().lower()


def is_no_data(text: str) -> bool:
    """Whether the value says that there is nothing to tell."""
    return plain(text) in NO_DATA


def error_in(text: str) -> int | None:
    """NVML's return code of an error that stands where a value belongs; None for a value."""
    words = plain(text)
    return next((code for sentence, code in _ERRORS if sentence in words), None)


def number(text: str) -> int | None:
    """The whole number at the beginning, without its unit; None if there is none."""
    found = _NUMBER.match(plain(text))
    return int(float(found[0])) if found else None


def truth(text: str) -> bool | None:
    """Yes or no, in all of the tool's words for them; None for any other word."""
    return {
        "yes": True,
        "no": False,
        "true": True,
        "false": False,
        "enabled": True,
        "disabled": False,
        "active": True,
        "not active": False,
        "on": True,
        "off": False,
    }.get(plain(text))


def address(text: str) -> str:
    """A PCI address as everywhere in Sickbay, `0000:61:00`, of `00000000:61:00.0` or `61:00.0`; else empty."""
    found = _ADDRESS.search(text)
    if not found:
        return ""
    domain, bus, device = (part or "" for part in found.groups())
    return f"{domain[-4:] or '0000'}:{bus}:{device}".lower()
