"""Reads `dcgmi health -c`, as JSON or as a table; what it means is in `sickbay.dcgm.health`.

The report names only parts with trouble: by group, number, system, the system's state and DCGM's messages. Messages are
taken from wherever below their system they stand, since versions differ in that.
"""

import re
from collections.abc import Iterator
from typing import Final

from sickbay.dcgm.diagnostic import Entity
from sickbay.dcgm.documents import Json, documents, entries, items, member, words
from sickbay.dcgm.tables import TableRow, read_table
from sickbay.faults import ComponentKind
from sickbay.model import Frozen

_TITLE: Final = "Health Monitor Report"
_OVERALL: Final = "Overall Health"
_STATE: Final = re.compile(r"^\s*(?P<state>Healthy|Warning|Failure|Internal error)\b[\s:,.-]*", re.IGNORECASE)
_GROUPS: Final = {"gpu": ComponentKind.GPU, "nvswitch": ComponentKind.NVSWITCH, "switch": ComponentKind.NVSWITCH}
_NO_SYSTEM: Final = "all systems"
_OLD_OVERALL: Final = re.compile(r"Overall Health:\s*(?P<state>[A-Za-z]+)")
_OLD_PART: Final = re.compile(r"^(?P<group>GPU|NvSwitch|Switch) ID:\s*(?P<number>\d{1,6})$", re.IGNORECASE)
_OLD_SYSTEM: Final = re.compile(
    r"^(?P<system>[A-Za-z][A-Za-z ]{0,24}):\s*(?P<state>Warning|Failure)\s*-?\s*(?P<text>.*)$"
)


class Incident(Frozen):
    """Trouble of one system of one part."""

    entity: Entity | None
    system: str
    state: str
    """`healthy`, `warning`, `failure` or `internal error`; anything else is a word that DCGM does not have."""
    text: str = ""


class HealthReport(Frozen):
    """One report, as far as it could be read."""

    overall: str
    """As `Incident.state`; empty where it is missing."""
    incidents: tuple[Incident, ...] = ()
    troubles: tuple[str, ...] = ()


def read_health(text: str) -> HealthReport | None:
    """The report in a text; None if there is none. Raises nothing, on any text."""
    return _read_json(text) or _read_table(text) or _read_old_table(text)


def _read_json(text: str) -> HealthReport | None:
    found = [document.content for document in documents(text)]
    reports = [content for content in found if _is_report(content)]
    if not reports:
        return _read_parts(found)
    incidents = tuple(incident for content in reports for incident in _incidents(member(content, "body")))
    states = [_state(member(member(content, "body"), _OVERALL)) for content in reports]
    worst = next((state for state in states if state != "healthy"), "healthy")
    return HealthReport(overall=worst, incidents=incidents)


def _is_report(content: Json) -> bool:
    titles = [words(title) for title in items(content.get("header"))] or [words(content.get("header"))]
    return _TITLE in titles or _OVERALL in (name for name, _ in entries(content.get("body")))


def _read_parts(found: list[Json]) -> HealthReport | None:
    """What is left of a report that was cut: its body, if that is whole."""
    bodies = [content for content in found if _OVERALL in content]
    if not bodies:
        return None
    incidents = tuple(incident for body in bodies for incident in _incidents(body))
    return HealthReport(overall=_state(member(bodies[0], _OVERALL)), incidents=incidents, troubles=("the JSON is cut",))


def _incidents(body: object) -> Iterator[Incident]:
    for group, holder in entries(body):
        if group == _OVERALL:
            continue
        for number, part in entries(member(holder, "children")):
            entity = _entity(group, number)
            systems = entries(member(member(member(part, "children"), "Errors"), "children"))
            for system, said in systems:
                yield Incident(entity=entity, system=system, state=_state(said), text=_texts(said))
            if not systems:
                yield Incident(entity=entity, system=_NO_SYSTEM, state=_state(part))


def _state(node: object) -> str:
    return _word(words(member(node, "value")))


def _texts(node: object) -> str:
    """Every string below a system, but for the state before it."""
    value = _STATE.sub("", words(member(node, "value")), count=1)
    return " ".join(filter(None, (value, *_strings(node, skip="value"))))


def _strings(node: object, skip: str = "") -> Iterator[str]:
    for name, inner in entries(node):
        if name != skip:
            yield from _strings(inner)
    for inner in items(node):
        yield from _strings(inner)
    if isinstance(node, str):
        yield words(node)


def _entity(group: str, number: str) -> Entity | None:
    if not number.isascii() or not number.isdigit() or len(number) > 6:
        return None
    return Entity(kind=_GROUPS.get(group.lower(), ComponentKind.HOST), number=int(number))


def _read_table(text: str) -> HealthReport | None:
    table = read_table(text)
    if table is None or not any(title.startswith(_TITLE) for title in table.titles):
        return None
    overall = next((row.value for row in table.rows if row.name == _OVERALL), "")
    troubles = () if table.closed and table.headed else ("the table is cut",)
    return HealthReport(overall=_word(overall), incidents=_table_incidents(table.rows), troubles=troubles)


def _table_incidents(rows: tuple[TableRow, ...]) -> tuple[Incident, ...]:
    """The tree that the first column draws with arrows: group, number, `Errors`, systems; messages go on below."""
    found: list[Incident] = []
    group = ""
    entity: Entity | None = None
    for row in rows:
        name = row.name.lstrip("-> ").strip()
        if not name:
            if found:
                found[-1] = found[-1].model_copy(update={"text": _joined(found[-1].text, row.value)})
        elif not row.name.startswith("->"):
            group, entity = name, None
        elif name.isdigit():
            entity = _entity(group, name)
            found.append(Incident(entity=entity, system=_NO_SYSTEM, state=_word(row.value)))
        elif name != "Errors":
            text = _STATE.sub("", row.value, count=1).strip()
            found.append(Incident(entity=entity, system=name, state=_word(row.value), text=text))
    return _detailed(found)


def _read_old_table(text: str) -> HealthReport | None:
    """The table of DCGM 1 and 2, whose second column has the system in its text; a well one has no second row."""
    overall = _OLD_OVERALL.search(text)
    if _TITLE not in text or overall is None:
        return None
    table = read_table(text)
    last = text.rstrip().rpartition("\n")[2].strip()
    troubles = () if last.startswith("+") and last.endswith("+") else ("the table is cut",)
    incidents = _old_incidents(table.rows) if table else ()
    return HealthReport(overall=overall["state"].lower(), incidents=incidents, troubles=troubles)


def _old_incidents(rows: tuple[TableRow, ...]) -> tuple[Incident, ...]:
    """A part has its state beside its name, and one text for each of its systems below."""
    found: list[Incident] = []
    for row in rows:
        part, system = _OLD_PART.match(row.name), _OLD_SYSTEM.match(row.value.strip())
        if part:
            entity = _entity(part["group"], part["number"])
            found.append(Incident(entity=entity, system=_NO_SYSTEM, state=_word(row.value)))
        elif system and found:
            state, text = system["state"].lower(), system["text"]
            found.append(Incident(entity=found[-1].entity, system=system["system"], state=state, text=text))
        elif found and not row.name:
            found[-1] = found[-1].model_copy(update={"text": _joined(found[-1].text, row.value)})
    return _detailed(found)


def _detailed(found: list[Incident]) -> tuple[Incident, ...]:
    """The incidents without those of whole parts whose systems tell more."""
    told = {incident.entity for incident in found if incident.system != _NO_SYSTEM}
    return tuple(incident for incident in found if incident.system != _NO_SYSTEM or incident.entity not in told)


def _joined(text: str, more: str) -> str:
    return f"{text} {more.strip()}".strip()


def _word(value: str) -> str:
    found = _STATE.match(value)
    return found["state"].lower() if found else value.strip().lower()
