"""Waits for a node: back from a boot, or followed by another.

Called by `activities.nodes`. Each returns at its deadline with what it saw last; what that means is the workflow's to
decide.
"""

from datetime import timedelta

from kubernetes.aio.client import ApiClient

from activities.node_models import BootWait, Succession, SuccessorWait
from activities.node_reads import get_node, list_pool, observe
from activities.waiting import Clock, heartbeats, look_until, started_at
from sickbay import node_reading
from sickbay.kube_objects import Node
from sickbay.nodes import NodeSnapshot


async def wait_for_boot(api: ApiClient, wait: BootWait, every: timedelta, clock: Clock) -> NodeSnapshot:
    """The node once it is back, or gone, or as it stood at the deadline."""

    def settled(seen: NodeSnapshot) -> bool:
        missing = node_reading.missing_after_boot(seen, wait.previous_boot_id, wait.expected_gpus)
        return not (seen.exists and missing)

    until = started_at(clock) + wait.deadline
    async with heartbeats():
        return await look_until(
            lambda: observe(api, wait.node, clock()), settled, until=until, every=every, clock=clock
        )


async def wait_for_successor(api: ApiClient, wait: SuccessorWait, every: timedelta, clock: Clock) -> Succession:
    """The successor once the old node is gone and a new one works, or what was missing at the deadline."""
    until = started_at(clock) + wait.deadline
    async with heartbeats():
        return await look_until(
            lambda: _look_for_successor(api, wait),
            lambda seen: not seen.waiting_for,
            until=until,
            every=every,
            clock=clock,
        )


async def _look_for_successor(api: ApiClient, wait: SuccessorWait) -> Succession:
    old_gone = await get_node(api, wait.node) is None
    candidates = [node for node in await list_pool(api, wait.node.pool) if _is_candidate(node, wait)]
    lacks = {node.metadata.name: node_reading.missing_to_serve(node, wait.expected_gpus) for node in candidates}
    able = next((node for node in candidates if not lacks[node.metadata.name]), None)
    missing: list[str] = [] if old_gone else [f"{wait.node.name} is still there"]
    if able is None:
        missing.extend(f"{name}: {lack}" for name, lack in lacks.items())
        missing.extend([] if lacks else ["no new node yet"])
    return Succession(
        old_gone=old_gone,
        successor=node_reading.reference(able, wait.node.cluster) if able else None,
        waiting_for="; ".join(missing),
    )


def _is_candidate(node: Node, wait: SuccessorWait) -> bool:
    created = node.metadata.creation_timestamp
    # The server stamps whole seconds.
    young = created is not None and created >= wait.asked_at.replace(microsecond=0)
    return young and node.metadata.uid not in (*wait.known_uids, wait.node.uid)
