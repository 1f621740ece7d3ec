"""Reads what `nvidia-imex-ctl -N -j` prints of an NVLink domain, and judges it.

The domain's own status at the top is the verdict: nodes and connections within can all be well while a node that should
be there is not in the list at all.
"""

import json
from collections.abc import Mapping
from typing import Final

from pydantic import ValidationError

from sickbay.catalogue import fault_of
from sickbay.checks import CheckOutcome, healthy, judged, starting, unknown
from sickbay.faults import Component, ComponentKind
from sickbay.model import Frozen

_UP: Final = "UP"
_DOMAIN: Final = Component(kind=ComponentKind.HOST, id="host")
_BAD: Final = frozenset({"DEGRADED", "DOWN"})
_STARTING: Final = frozenset({"INITIALIZING", "STARTING", "STARTING_AUTH_SERVER", "WAITING_FOR_RECOVERY", "RECOVERING"})
_READY: Final = "READY"
_CONNECTED: Final = "CONNECTED"


class _Connection(Frozen):
    status: str = ""


class _Node(Frozen):
    status: str = ""
    host: str = ""
    connections: Mapping[str, _Connection] = {}


class _Domain(Frozen):
    status: str | None = None
    nodes: Mapping[str, _Node] = {}


def looks_like_imex(text: str) -> bool:
    """Whether it is meant to be this program's JSON."""
    return text.lstrip().startswith("{")


def judge_imex(text: str) -> CheckOutcome:
    """What the domain says. Raises nothing."""
    try:
        domain = _Domain.model_validate(json.loads(text))
    except (ValueError, ValidationError, RecursionError):
        return unknown("it is no whole JSON of nvidia-imex-ctl")
    if domain.status is None:
        return unknown("the domain's own status is missing, without which its nodes prove nothing")
    status = domain.status.upper()
    troubles = _troubles(domain)
    if status in _BAD:
        evidence = (f"the IMEX domain is {status}", *troubles, *_not_listed(domain))
        return judged((fault_of("imex-degraded", _DOMAIN, evidence=evidence[:5]),))
    if status in _STARTING:
        return starting(f"the IMEX domain is {status}")
    if status != _UP:
        return unknown(f"the status {domain.status} of an IMEX domain is not known")
    if not domain.nodes:
        return unknown("the IMEX domain is UP and lists no node")
    if troubles:
        return unknown(f"the IMEX domain is UP, but {troubles[0]}")
    return healthy(f"the IMEX domain of {len(domain.nodes)} nodes is UP")


def _troubles(domain: _Domain) -> tuple[str, ...]:
    """Nodes and connections that are not well."""
    nodes = (f"node {name} is {node.status}" for name, node in domain.nodes.items() if node.status != _READY)
    connections = (
        f"the connection of node {name} to node {peer} is {connection.status}"
        for name, node in domain.nodes.items()
        for peer, connection in node.connections.items()
        if connection.status != _CONNECTED
    )
    return (*nodes, *connections)


def _not_listed(domain: _Domain) -> tuple[str, ...]:
    """Nodes that others speak to, and that are not listed themselves."""
    return tuple(
        f"node {name} speaks to node {peer}, which is not listed"
        for name, node in domain.nodes.items()
        for peer in node.connections
        if peer not in domain.nodes
    )
