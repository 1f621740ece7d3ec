"""Reads what `systemctl` prints of a unit: `status`, `show` or `is-active`, and judges NVIDIA's services.

The state of the unit counts, and not what its start commands ended with: `code=exited, status=0/SUCCESS` belongs to the
command that forked the daemon. A fabric manager that is down needs a start of its service, which is a person's affair:
no step on the GPUs starts it (facts: detection, 1c and 2; the code is shared with the host layer).
"""

import re
from typing import Final

from sickbay.catalogue import fault_of
from sickbay.checks import CheckOutcome, healthy, judged, starting, unknown
from sickbay.faults import Component, ComponentKind
from sickbay.host_layer.services import FABRIC_MANAGER, IMEX, PERSISTENCE, units_from
from sickbay.model import Frozen

_NAME: Final = re.compile(r"^[ \t]*[●○\u00d7↻*x]?[ \t]*(?P<name>nvidia-[\w-]+)\.service\b", re.MULTILINE)
_ACTIVE: Final = re.compile(r"^[ \t]*Active: (?P<active>[a-z]+)(?: \((?P<sub>[^)]*)\))?(?P<rest>.*)$", re.MULTILINE)
_ONE_WORD: Final = re.compile(r"^\s*(active|inactive|failed|activating|deactivating|reloading|unknown)\s*$")
_KILLED: Final = re.compile(r"\(code=killed, (?:signal|status)=[^)]*\)|Result: [\w-]+")
_NOT_FOUND: Final = re.compile(r"Unit (?P<name>nvidia-[\w-]+)(?:\.service)? could not be found|Loaded: not-found")

_CODES: Final = {
    FABRIC_MANAGER: ("fabric-manager-down", Component(kind=ComponentKind.NVSWITCH, id="unknown")),
    IMEX: ("imex-down", Component(kind=ComponentKind.HOST, id="host")),
    PERSISTENCE: ("persistence-service-down", Component(kind=ComponentKind.DRIVER, id="nvidia")),
}
_RUNNING: Final = ("running", "")
_BETWEEN_TRIES: Final = "auto-restart"
"""A unit that fails at once, again and again, waits in this state for its next try."""


class UnitState(Frozen):
    """A unit as systemd prints it."""

    name: str
    active: str
    """`active`, `activating`, `inactive`, `failed`, ...; `not-found` where systemd knows no such unit."""
    sub: str = ""
    words: str = ""
    """The line that tells the state, for a person."""


def read_units(text: str) -> tuple[UnitState, ...]:
    """The units that the text tells of, in their order. Raises nothing."""
    shown = tuple(
        UnitState(
            name=name, active=unit.active if unit.load != "not-found" else "not-found", sub=unit.sub, words=unit.words
        )
        for name, unit in units_from(text).items()
    )
    return shown or (*_status(text), *_missing(text), *_one_word(text))


def judge_unit(unit: UnitState) -> CheckOutcome:
    """What the state of one unit says."""
    if unit.name not in _CODES:
        return unknown(f"{unit.name} is no service that the GPUs need")
    code, component = _CODES[unit.name]
    down = unit.active in ("failed", "inactive") or unit.sub == _BETWEEN_TRIES
    if down:
        return judged((fault_of(code, component, evidence=(f"{unit.name}: {unit.words}",)),))
    match unit.active:
        case "active" | "reloading" if unit.sub in _RUNNING:
            return healthy(f"{unit.name} runs")
        case "activating":
            return starting(f"{unit.name} is being started")
        case "not-found":
            return unknown(f"systemd knows no {unit.name}, which may run in a container or not be needed")
    return unknown(f"{unit.name} is {unit.active} ({unit.sub}), which tells neither that it runs nor that it failed")


def _status(text: str) -> list[UnitState]:
    """The units of `systemctl status`: a line with the name, and one with the state before the next name."""
    names = list(_NAME.finditer(text))
    found = []
    for position, name in enumerate(names):
        end = names[position + 1].start() if position + 1 < len(names) else len(text)
        part = text[name.end() : end]
        active = _ACTIVE.search(part)
        if active:
            reasons = [reason for reason in _KILLED.findall(part) if reason not in active[0]]
            words = "; ".join((active[0].strip(), *dict.fromkeys(reasons)))
            found.append(UnitState(name=name["name"], active=active["active"], sub=active["sub"] or "", words=words))
    if not names and (active := _ACTIVE.search(text)):
        # The line of the name was cut off: in this kind of recording it is the fabric manager's.
        found.append(
            UnitState(name=FABRIC_MANAGER, active=active["active"], sub=active["sub"] or "", words=active[0].strip())
        )
    return found


def _missing(text: str) -> list[UnitState]:
    return [
        UnitState(name=found["name"] or FABRIC_MANAGER, active="not-found", words=found[0].strip())
        for found in _NOT_FOUND.finditer(text)
        if found["name"] or not _NAME.search(text)
    ]


def _one_word(text: str) -> list[UnitState]:
    """The one word of `systemctl is-active`."""
    found = _ONE_WORD.match(text)
    return [UnitState(name=FABRIC_MANAGER, active=found[1], words=found[1])] if found else []
