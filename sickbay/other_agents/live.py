"""The faults that other agents' conditions tell of a live node, with what those agents are known to get wrong.

Called by `sickbay.node_faults`. A condition outlives what it speaks of: after a reboot it still stands until its
agent is up and says otherwise, and some agents never take a word back (facts: detection 5 and 7). So a word that was
last said before the present boot is old news and no fault. The other way round, a word that is gone proves nothing:
`sickbay.triage` lets it end only where our own agent has passed the node.
"""

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Final

from sickbay.faults import Fault, merge_faults
from sickbay.kube_objects import Condition, Node
from sickbay.other_agents.condition_types import Speaker, condition_type
from sickbay.other_agents.judgement import Excuse, fault_of_condition

BEFORE_OUR_AGENT: Final = timedelta(minutes=5)
"""How long before our agent's first look in a boot another agent may have spoken in the same boot: both start with the
node, and a word wrongly kept only blocks new work until its agent repeats or withdraws it."""

_DETECTORS: Final = (Speaker.EKS, Speaker.NPD, Speaker.NVSENTINEL)
"""Whose conditions are faults of a live node. The kubelet handles its own pressures, and ours come with our report."""


def reported_faults(node: Node, boot_seen_at: datetime | None, excuses: Iterable[Excuse] = ()) -> tuple[Fault, ...]:
    """Faults by other agents' conditions; several words on one part become one fault with all their evidence.

    `boot_seen_at` is when our agent first ran in this boot, None where it does not tell: then every word counts.
    """
    excused = tuple(excuses)
    boot_id = node.status.node_info.boot_id
    told = (
        fault_of_condition(condition, node.metadata.name, boot_id)
        for condition in node.status.conditions
        if _is_detectors(condition)
        and not _is_old_news(condition, boot_seen_at)
        and not any(excuse.covers(condition) for excuse in excused)
    )
    return merge_faults((), (fault for fault in told if fault is not None))


def _is_detectors(condition: Condition) -> bool:
    row = condition_type(condition.type)
    return row is not None and row.speaker in _DETECTORS


def _is_old_news(condition: Condition, boot_seen_at: datetime | None) -> bool:
    said = [at for at in (condition.last_heartbeat_time, condition.last_transition_time) if at is not None]
    return boot_seen_at is not None and bool(said) and max(said) < boot_seen_at - BEFORE_OUR_AGENT
