"""Reads nodes from the text of `kubectl describe node`, whole or in parts, as people paste it into tickets.

Called by `sickbay.other_agents.recorded`. Sections begin with a word and a colon; the conditions are a table. A line of
dots is where somebody cut; among the conditions that may hide a bad one.
"""

import re
from collections.abc import Iterator
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import Final

from pydantic import ValidationError

from sickbay.kube_objects import Condition, Node
from sickbay.other_agents.described import DescribedNode, UnreadableError

SECTION: Final = re.compile(r"^(Conditions|Capacity|Allocatable):\s*$", re.MULTILINE)
TABLE: Final = re.compile(r"^\s*Type\s+Status\s+LastHeartbeatTime\s", re.MULTILINE)

_HEAD: Final = re.compile(r"^([A-Z][A-Za-z -]*):(?:\s+(.*))?$")
_CUT: Final = re.compile(r"^\W*\.{2,}\W*$|^…$|^<(snip|cut)>$")
_RULE: Final = re.compile(r"^[-\s]+$")
_COLUMNS: Final = 6
_NEVER: Final = " 0001 "
_RESOURCE: Final = re.compile(r"^([\w./-]+):\s+(\S+)$")
_LABEL: Final = re.compile(r"^([\w./-]+)=(\S*)$")


def read_description(text: str) -> tuple[DescribedNode, ...]:
    """The nodes of a description. Raises UnreadableError if no part of one is in it."""
    nodes = tuple(
        _read(part) for part in _split(_unindented(text)) if part.keys() & {"Conditions", "Capacity", "Allocatable"}
    )
    if not nodes:
        raise UnreadableError("neither conditions nor resources of a node are in it")
    return nodes


def _unindented(text: str) -> list[str]:
    """The lines without the indent that a whole paste has, and without the spaces that web pages put in."""
    lines = text.replace("\u00a0", " ").replace("\t", "    ").splitlines()
    indents = [len(line) - len(line.lstrip()) for line in lines if _HEAD.match(line.strip())]
    indent = min(indents, default=0)
    return [line[indent:] if not line[:indent].strip() else line for line in lines]


def _split(lines: list[str]) -> list[dict[str, list[str]]]:
    """Each node's sections by name; a `Name:` begins the next node."""
    nodes: list[dict[str, list[str]]] = [{}]
    section: list[str] = []
    for line in lines:
        head = _HEAD.match(line)
        if head is not None:
            if head[1] == "Name" and nodes[-1]:
                nodes.append({})
            section = nodes[-1].setdefault(head[1], [])
            if head[2]:
                section.append(head[2].strip())
        elif TABLE.match(line) and section is not nodes[-1].get("Conditions"):
            section = nodes[-1].setdefault("Conditions", [])
        elif line.strip():
            section.append(line.strip())
    return nodes


def _read(sections: dict[str, list[str]]) -> DescribedNode:
    conditions, gaps = _conditions(sections.get("Conditions", []))
    info = dict(_pairs(sections.get("System Info", []), re.compile(r"^([A-Za-z -]+):\s+(\S.*)$")))
    node = Node.model_validate(
        {
            "metadata": {
                "name": " ".join(sections.get("Name", [])),
                "labels": dict(_pairs(sections.get("Labels", []), _LABEL)),
            },
            "status": {
                "capacity": dict(_pairs(sections.get("Capacity", []), _RESOURCE)),
                "allocatable": dict(_pairs(sections.get("Allocatable", []), _RESOURCE)),
                "nodeInfo": {"bootID": info.get("Boot ID", "")},
            },
        }
    )
    return DescribedNode(
        node=node.model_copy(update={"status": node.status.model_copy(update={"conditions": conditions})}),
        shows_conditions="Conditions" in sections,
        shows_resources="Capacity" in sections or "Allocatable" in sections,
        gaps=gaps,
    )


def _pairs(lines: list[str], shape: re.Pattern[str]) -> Iterator[tuple[str, str]]:
    for line in lines:
        found = shape.match(line)
        if found is not None:
            yield found[1], found[2]


def _conditions(lines: list[str]) -> tuple[tuple[Condition, ...], tuple[str, ...]]:
    read: list[Condition] = []
    gaps = []
    for line in lines:
        if TABLE.match(f"{line} ") or _RULE.match(line):
            continue
        if _CUT.match(line):
            gaps.append("the list of conditions is cut")
            continue
        try:
            read.append(_condition(line))
        except (ValueError, ValidationError):
            gaps.append(f"a line of the conditions cannot be read: {line[:80]}")
    return tuple(read), tuple(gaps)


def _condition(line: str) -> Condition:
    """One row of the table. Raises ValueError for one that has not all its columns."""
    cells = re.split(r"\s{2,}", line, maxsplit=_COLUMNS - 1)
    if len(cells) < _COLUMNS - 1:
        raise ValueError("columns are missing")
    kind, status, heartbeat, transition, reason, *message = cells
    return Condition(
        type=kind,
        status=status,
        last_heartbeat_time=_moment(heartbeat),
        last_transition_time=_moment(transition),
        reason=reason,
        message=" ".join(message),
    )


def _moment(text: str) -> datetime | None:
    """A time as kubectl prints it; None for the year 1, which stands for never. Raises ValueError for other words."""
    # The parser of mail dates takes the year 0001 for 2001.
    return None if _NEVER in text else parsedate_to_datetime(text)
