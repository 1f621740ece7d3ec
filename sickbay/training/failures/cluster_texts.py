"""What a cluster says around an attempt, as kubectl printed it: nodes, events, and Kueue's workloads.

Used by `folder`. A node whose conditions are not shown is one that nobody told of: an excerpt must not make it lost.
A condition counts only while it is True: Kueue leaves the words of an eviction in one that has become False.
"""

import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, Final

from pydantic import ValidationError

from sickbay.kube_objects import Node
from sickbay.other_agents.describe_text import read_description
from sickbay.other_agents.described import UnreadableError
from sickbay.training.evidence import LINE_LENGTH, NodeEvidence, Sign, Source
from sickbay.training.failures import node_states
from sickbay.training.failures.kubectl_text import members, objects_in, part, word
from sickbay.training.failures.patterns import Kind, found_in, kind_of

SIGNS_MOST: Final = 64
NODES_MOST: Final = 20_000
LONG_AGO: Final = datetime(1970, 1, 1, tzinfo=UTC)
ENDED: Final = ("Evicted", "Preempted")
"""Conditions of a Kueue Workload that say that it lost its room."""

_DESCRIBES_NODE: Final = re.compile(r"^(?:Taints|Unschedulable|Lease|Allocatable|PodCIDR|System Info):", re.MULTILINE)
_OF_NODE: Final = re.compile(r"\bnode/(?P<node>[\w.-]+)|\bNode (?P<named>[\w.-]+) (?:status is now|has|is)\b")


def nodes_in(text: str, ended_at: datetime | None) -> tuple[NodeEvidence, ...]:
    """Every node in some text: objects, or `kubectl describe node`. Raises nothing.

    Open faults count around `ended_at`; without it nobody knows whether they are of that time, and none counts.
    """
    found: dict[str, NodeEvidence] = {}
    for node in (*_objects(text), *_described(text)):
        if node.metadata.name and len(found) < NODES_MOST:
            found[node.metadata.name] = _evidence(node, ended_at)
    return tuple(found.values())


def events_in(text: str) -> tuple[Sign, ...]:
    """What events and workloads in some text say, objects or kubectl's tables; the first of each code and node."""
    objects = objects_in(text)
    lines = [_event(each) for each in objects if "reason" in each and "message" in each and "status" not in each]
    lines += [line for each in objects if each.get("kind") == "Workload" for line in _workload(each)]
    return signs_of(lines if objects else ((line, "") for line in text.splitlines()))


def signs_of(lines: Iterable[tuple[str, str]]) -> tuple[Sign, ...]:
    """Signs of lines, each with the node that it is about, where that is known beside its words."""
    found: dict[tuple[str, str], Sign] = {}
    for number, (line, about) in enumerate(lines, start=1):
        for code, details in found_in(line):
            node = about or details.get("node", "") or _node_in(line)
            if kind_of(code) is Kind.CONTEXT or (code, node) in found:
                continue
            if len(found) >= SIGNS_MOST:
                return tuple(found.values())
            found[code, node] = Sign(
                code=code,
                source=Source.CLUSTER_EVENT,
                line=line.strip()[:LINE_LENGTH],
                number=number,
                details={**details, "node": node} if node else details,
            )
    return tuple(found.values())


def _objects(text: str) -> list[Node]:
    nodes = []
    for item in objects_in(text):
        if item.get("kind") != "Node":
            continue
        try:
            nodes.append(Node.model_validate(item))
        except ValidationError:
            continue
    return nodes


def _described(text: str) -> list[Node]:
    if not _DESCRIBES_NODE.search(text):
        return []
    try:
        return [found.node for found in read_description(text) if found.shows_conditions]
    except (UnreadableError, ValidationError, ValueError):
        return []


def _evidence(node: Node, ended_at: datetime | None) -> NodeEvidence:
    ready = node.condition("Ready")
    if ready is None:
        return NodeEvidence(node=node.metadata.name, node_uid=node.metadata.uid, told=False)
    if ended_at is not None:
        return node_states.evidence_of(node, ended_at)
    looked = ready.last_heartbeat_time or ready.last_transition_time or LONG_AGO
    return node_states.evidence_of(node, looked).model_copy(update={"faults": ()})


def _event(item: Mapping[str, Any]) -> tuple[str, str]:
    about = part(item, "involvedObject") or part(item, "regarding")
    node = word(about.get("name")) if about.get("kind") == "Node" else ""
    return f"{word(item.get('reason'))}: {word(item.get('message'))}", node


def _workload(item: Mapping[str, Any]) -> list[tuple[str, str]]:
    conditions = members(part(item, "status"), "conditions")
    return [
        (f"{word(each.get('type'))} {word(each.get('reason'))}: {word(each.get('message'))}", "")
        for each in conditions
        if each.get("type") in ENDED and each.get("status") == "True"
    ]


def _node_in(line: str) -> str:
    match = _OF_NODE.search(line)
    return (match["node"] or match["named"]) if match is not None else ""
