"""A fault as people and programs read it: the words of `sickbay diagnose` and of `sickbay check`."""

from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any, Final

from sickbay.catalogue import CATALOGUE_VERSION, lookup
from sickbay.faults import Fault, Moment, Severity

_FAULT_FIELDS: Final = {
    "code",
    "component",
    "fault_class",
    "severity",
    "rung",
    "count",
    "first_seen",
    "last_seen",
    "evidence",
}


def faults_as_json(faults: Iterable[Fault]) -> list[Any]:
    """Faults as JSON values."""
    return [fault.model_dump(mode="json", include=_FAULT_FIELDS) for fault in faults]


def faults_as_text(faults: Iterable[Fault]) -> Iterator[str]:
    """Lines that tell each fault, the worst first, with an empty line before each."""
    faults = tuple(faults)
    for fault in sorted(faults, key=_worst_first):
        yield ""
        yield from _fault_as_text(fault)
    unknown = sorted({fault.code for fault in faults if not lookup(fault.code).known})
    if unknown:
        yield ""
        yield f"Not in catalogue {CATALOGUE_VERSION}, for a human to look up: {', '.join(unknown)}"


def printable(line: str) -> str:
    """A line of others as a terminal may show it: a log can hold anything, escape codes too."""
    return "".join(letter if letter.isprintable() else " " for letter in line)


def _fault_as_text(fault: Fault) -> Iterator[str]:
    times = "once" if fault.count == 1 else f"{fault.count} times"
    component = f"{fault.component.kind} {printable(fault.component.id)}"
    yield f"{fault.code}  {component}  {lookup(fault.code).meaning}"
    yield f"  {fault.severity}, class {fault.fault_class}, rung {fault.rung}, {times}{_period(fault)}"
    for line in fault.evidence:
        yield f"  | {printable(line)}"


def _period(fault: Fault) -> str:
    if fault.first_seen is None or fault.last_seen is None:
        return ""
    first, last = _moment(fault.first_seen), _moment(fault.last_seen)
    return f", at {first}" if first == last else f", from {first} to {last}"


def _moment(moment: Moment) -> str:
    if isinstance(moment, datetime):
        return moment.isoformat(sep=" ", timespec="seconds")
    return f"{moment:.3f} s after boot"


def _worst_first(fault: Fault) -> tuple[int, int]:
    return -fault.rung.strength, -list(Severity).index(fault.severity)
