"""The open faults of a node as its Node object tells them: its agent's report or silence, and the cloud's words.

Used by `sickbay.node_reading`. The agent's report is the annotation `names.ANNOTATION_FAULTS`; this module decides
whether to believe it, and never reads it as health: a report that is old or illegible is a fault of the monitor. What
EC2 last said is the annotation `names.ANNOTATION_CLOUD`. What needs more than one look is in `sickbay.watch_faults`.
"""

from datetime import datetime, timedelta
from typing import Final

from pydantic import ValidationError

from sickbay import cloud_words, names
from sickbay.conditions import FaultsAnnotation
from sickbay.faults import Component, ComponentKind, Fault, FaultClass, Rung, Severity
from sickbay.kube_objects import Condition, Node

HEARTBEAT_LIMIT: Final = timedelta(minutes=5)
"""Age past which the agent's last word no longer counts: some of its reporting periods, and the kubelet's own."""

NODE_NOT_READY: Final = "node-not-ready"
MONITOR_SILENT: Final = "monitor-silent"


def own_conditions(node: Node) -> tuple[Condition, ...]:
    """The conditions that our agent publishes, as far as the node has them."""
    return tuple(condition for condition in node.status.conditions if condition.type in names.CONDITIONS)


def heartbeat(node: Node) -> datetime | None:
    """The oldest of our conditions' heartbeats; None if there is none, or one lacks it."""
    beats = [condition.last_heartbeat_time for condition in own_conditions(node)]
    known = [beat for beat in beats if beat is not None]
    return min(known) if known and len(known) == len(beats) else None


def report(node: Node) -> FaultsAnnotation | None:
    """The agent's report; None if there is none, or it cannot be read."""
    try:
        return FaultsAnnotation.model_validate_json(node.metadata.annotations.get(names.ANNOTATION_FAULTS, ""))
    except ValidationError:
        return None


def open_faults(node: Node, now: datetime, heartbeat_limit: timedelta = HEARTBEAT_LIMIT) -> tuple[Fault, ...]:
    """Faults of the node's present boot by its agent, its kubelet and our agent's silence, and those that EC2 tells."""
    ready = ready_condition(node)
    by_node = () if ready.status == "True" else (_not_ready(node, ready, now),)
    silence = _silence(node, now, heartbeat_limit) if ready.status == "True" else ""
    by_silence = (monitor_silent(node, silence, now),) if silence else ()
    said = cloud_words.of_node(node)
    by_cloud = said.faults if said is not None else ()
    answers = not by_node and not by_silence
    return (*_reported(node), *by_node, *by_silence, *(cloud_words.contradicted(by_cloud) if answers else by_cloud))


def ready_condition(node: Node) -> Condition:
    """The kubelet's Ready; Unknown since the node's creation where the kubelet never told."""
    unknown = Condition(
        type="Ready", status="Unknown", reason="NeverReported", last_transition_time=node.metadata.creation_timestamp
    )
    return node.condition("Ready") or unknown


def _reported(node: Node) -> tuple[Fault, ...]:
    told = report(node)
    boot_id = node.status.node_info.boot_id
    if told is None or told.boot_id != boot_id:
        return ()
    return tuple(fault for fault in told.faults if fault.boot_id in (None, boot_id))


def _silence(node: Node, now: datetime, limit: timedelta) -> str:
    """In what way our agent is silent, in words; empty if it speaks, or never ran on this node.

    A heartbeat far in the future is none: by it a dead agent would pass for a living one until that time comes.
    """
    if not own_conditions(node):
        return ""
    beat = heartbeat(node)
    if beat is None or abs(now - beat) > limit:
        return f"the node agent's last heartbeat is of {beat.isoformat() if beat else 'an unknown time'}"
    if names.ANNOTATION_FAULTS in node.metadata.annotations and report(node) is None:
        return f"the annotation {names.ANNOTATION_FAULTS} cannot be read"
    return ""


def _not_ready(node: Node, ready: Condition, now: datetime) -> Fault:
    words = f"Ready is {ready.status}: {ready.reason} {ready.message}".strip()
    return Fault(
        code=NODE_NOT_READY,
        component=Component(kind=ComponentKind.HOST, id=node.metadata.name),
        fault_class=FaultClass.HOST,
        severity=Severity.FATAL,
        rung=Rung.REBOOT,
        first_seen=ready.last_transition_time,
        last_seen=now,
        boot_id=node.status.node_info.boot_id,
        evidence=(words,),
    )


def monitor_silent(node: Node, words: str, now: datetime) -> Fault:
    """Our agent's silence, in these words; it blocks new work and never does more by itself."""
    return Fault(
        code=MONITOR_SILENT,
        component=Component(kind=ComponentKind.MONITOR, id=node.metadata.name),
        fault_class=FaultClass.MONITOR_UNAVAILABLE,
        severity=Severity.WARNING,
        rung=Rung.BLOCK_NEW_WORK,
        first_seen=heartbeat(node),
        last_seen=now,
        boot_id=node.status.node_info.boot_id,
        evidence=(words,),
    )
