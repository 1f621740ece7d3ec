"""Faults that one look at a node cannot tell, because they need memory, other nodes, or the operator's word.

Called by `workers.triage` with what the watch remembers of each node. Here our agent's absence and its report of a
wrong boot become faults, and shortages that have lasted, and other agents' conditions. They are the watch's alone: the
look of an incident's own activity is without them, so that no verification hangs on another agent's word.

None of them disrupts a node. A shortage is told only where nothing else is wrong: a device plugin also withholds a GPU
for the very fault that an incident repairs, and a person's rung beside it would stop that repair.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

from sickbay import cloud_words
from sickbay.catalogue import fault_of
from sickbay.conditions import FaultsAnnotation
from sickbay.faults import Component, ComponentKind, Fault, Rung
from sickbay.kube_objects import Node
from sickbay.model import Frozen
from sickbay.node_faults import HEARTBEAT_LIMIT, MONITOR_SILENT, monitor_silent, own_conditions, report
from sickbay.node_reading import created_at, gpus_in
from sickbay.nodes import NodeSnapshot, Readiness
from sickbay.other_agents.judgement import Excuse
from sickbay.other_agents.live import reported_faults
from sickbay.shortages import Shortage, shortages

AGENT_MISSING: Final = "agent-missing"

AGENT_GRACE: Final = timedelta(minutes=10)
"""From the moment when a node is made and Ready, and agents are expected at all, until its own must have reported:
image pull and driver included. On a fleet that runs for weeks the first agent comes minutes before the last one."""
SHORT_FOR: Final = timedelta(minutes=10)
"""How long a count must stay short: device plugins come up last after a boot, and need minutes."""

_NVIDIA_LABEL: Final = "nvidia.com/gpu.present"
_COUNT_LABEL: Final = "karpenter.k8s.aws/instance-gpu-count"
_MAKER_LABEL: Final = "karpenter.k8s.aws/instance-gpu-manufacturer"


class AgentsExpected(StrEnum):
    """Whether GPU nodes of the cluster must run our agent; the setting's words."""

    AUTO = "auto"
    """As soon as one node has reported."""
    YES = "true"
    NO = "false"


class WatchRules(Frozen):
    """What the operator says of the watch's own faults."""

    agents: AgentsExpected = AgentsExpected.AUTO
    excuses: tuple[Excuse, ...] = ()
    """Conditions of other agents that are to be left out."""


class NodeMemory(Frozen):
    """What the watch remembers of one node from look to look. It begins anew with the process."""

    boot_id: str
    boot_since: datetime
    """When the watch first saw this boot id."""
    short_since: Mapping[str, datetime] = {}
    """Codes of shortages, each with the first look that showed it."""


class Beside(Frozen):
    """What is known beside the node object."""

    memory: NodeMemory
    agents_since: datetime | None = None
    """Since when GPU nodes of this cluster are known to run our agent; None where they need not."""
    excuses: tuple[Excuse, ...] = ()


def remember(node: Node, before: NodeMemory | None, now: datetime) -> NodeMemory:
    """The memory after a look. A new boot forgets what the last one lacked."""
    boot_id = node.status.node_info.boot_id
    same = before is not None and before.boot_id == boot_id
    known = before.short_since if before is not None and same else {}
    short = {shortage.code: known.get(shortage.code, now) for shortage in _shortages(node)}
    since = before.boot_since if before is not None and same else now
    return NodeMemory(boot_id=boot_id, boot_since=since, short_since=short)


def with_watch_faults(snapshot: NodeSnapshot, node: Node, beside: Beside) -> NodeSnapshot:
    """The look at a node with the watch's own faults joined to it."""
    told = report(node)
    boot_seen_at = told.boot_seen_at if told is not None and told.boot_id == snapshot.boot_id else None
    others = reported_faults(node, boot_seen_at, beside.excuses)
    silence = _agents_silence(snapshot, node, told, beside)
    faults = (*snapshot.faults, *others, *silence)
    now, since = snapshot.observed_at, beside.memory.short_since
    standing = _shortages(node)
    lasting = tuple(each for each in standing if now - since.get(each.code, now) >= SHORT_FOR)
    trouble = any(fault.rung is not Rung.NONE for fault in faults)
    if trouble or not snapshot.conditions_fresh:
        lasting = ()
    found = tuple(_short(each, node, since[each.code]) for each in lasting)
    undecided = {each.code for each in standing if each not in lasting and not trouble}
    return snapshot.model_copy(
        update={"faults": (*faults, *found), "undecided": (*snapshot.undecided, *sorted(undecided))}
    )


def has_agent(node: Node) -> bool:
    """Whether our agent has ever reported on a node."""
    return bool(own_conditions(node)) or report(node) is not None


def wants_agent(node: Node) -> bool:
    """Whether a node is one that our agent is made for: one with NVIDIA GPUs, by capacity or by label."""
    labels = node.metadata.labels
    nvidia = {name: number for name, number in node.status.capacity.items() if name.startswith("nvidia.com/")}
    made = labels.get(_MAKER_LABEL, "nvidia") == "nvidia" and labels.get(_COUNT_LABEL, "0") != "0"
    return gpus_in(nvidia) > 0 or labels.get(_NVIDIA_LABEL) == "true" or made


def _shortages(node: Node) -> tuple[Shortage, ...]:
    """What is short by a report of the present boot; nothing where there is none."""
    told = report(node)
    if told is None or told.boot_id != node.status.node_info.boot_id:
        return ()
    return shortages(node, told.inventory, cloud_words.of_node(node))


def _agents_silence(
    snapshot: NodeSnapshot, node: Node, told: FaultsAnnotation | None, beside: Beside
) -> tuple[Fault, ...]:
    """Our agent never came, or goes on speaking of a boot that is over; a node that is not Ready explains both."""
    now = snapshot.observed_at
    if snapshot.ready is not Readiness.TRUE or any(fault.code == MONITOR_SILENT for fault in snapshot.faults):
        return ()
    if told is not None and told.boot_id != snapshot.boot_id and now - beside.memory.boot_since > HEARTBEAT_LIMIT:
        words = f"the node agent reports of boot {told.boot_id}, and the node runs boot {snapshot.boot_id}"
        return (monitor_silent(node, words, now),)
    if beside.agents_since is None or not wants_agent(node) or has_agent(node):
        return ()
    since = max(created_at(node), snapshot.ready_since or created_at(node), beside.agents_since)
    if now - since <= AGENT_GRACE:
        return ()
    component = Component(kind=ComponentKind.MONITOR, id=node.metadata.name)
    words = "no Sickbay agent has ever reported from this node: look at its DaemonSet's tolerations and selector"
    return (fault_of(AGENT_MISSING, component, seen=since, boot_id=snapshot.boot_id, evidence=(words,)),)


def _short(shortage: Shortage, node: Node, since: datetime) -> Fault:
    named = shortage.kind is ComponentKind.HOST
    component = Component(kind=shortage.kind, id=node.metadata.name if named else "unknown")
    boot_id = node.status.node_info.boot_id
    return fault_of(shortage.code, component, seen=since, boot_id=boot_id, evidence=(shortage.words,))
