"""The watch's own cordons: at once, asking nobody, within a cap.

Used by `workers.triage`. It is apart from the incident's own containment because it must work while Temporal does not
(design, 3.11), and because a bad detector must not cordon a fleet: each cordon is counted before the next is made.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

import structlog
from kubernetes.aio.client import ApiClient

from activities import node_marks
from activities.errors import FinalError, PassingError
from activities.node_models import ContainRequest
from sickbay.admission_marks import taken_out
from sickbay.containment import may_contain
from sickbay.kube_objects import Node
from sickbay.nodes import NodeRef
from sickbay.policy.model import ContainmentPolicy, TaintPolicy
from sickbay.triage import concerns_us
from workers import controller_metrics as metrics

SEEN_WITHIN: Final = timedelta(seconds=30)
"""How long the watch may take to show a mark of ours; until then it is counted from memory."""
TRIED_WITHIN: Final = timedelta(minutes=30)
"""How long a containment that failed counts all the same: its incident tries on for itself, and nobody counts then."""

log: Final = structlog.get_logger(__name__)


class WatchAnswer(StrEnum):
    """What became of one containment by the watch."""

    CONTAINED = "contained"
    NOT_NOW = "not_now"
    """The API server did not let us, or the node is gone: the incident tries for itself."""
    BEYOND_CAP = "beyond_cap"


class WatchContainment:
    """Blocks new work on nodes of a cluster, one at a time, and counts."""

    def __init__(
        self,
        api: ApiClient,
        nodes: Mapping[str, Node],
        policy: Callable[[], ContainmentPolicy],
        clock: Callable[[], datetime],
    ) -> None:
        self._api = api
        self._nodes = nodes
        self._policy = policy
        self._clock = clock
        self._one_at_a_time = asyncio.Lock()
        self._counted_until: dict[str, datetime] = {}

    async def contain(self, node: NodeRef, incident_id: str, taint: TaintPolicy) -> WatchAnswer:
        """Block new work on a node, if the cap and the API server let us. Never raises for either.

        The incident opens all the same. Beyond the cap it must not contain its node before it has a permit.
        """
        request = ContainRequest(node=node, incident_id=incident_id, taint=taint)

        async def contained() -> bool:
            return (await node_marks.contain(self._api, request)).contained

        return await self._within_cap(node, contained, f"incident {incident_id}")

    async def hold_back(self, node: NodeRef) -> WatchAnswer:
        """Put the admission's taint back on a node that others rebooted, as `contain` would. Never raises either."""
        return await self._within_cap(node, lambda: node_marks.hold_back(self._api, node), "rebooted by others")

    async def _within_cap(self, node: NodeRef, block: Callable[[], Awaitable[bool]], why: str) -> WatchAnswer:
        async with self._one_at_a_time:
            mine = [uid for uid, each in self._nodes.items() if concerns_us(each)]
            held = self._held() - {node.uid}
            decision = may_contain(self._policy(), gpu_nodes=len(mine), contained=len(held))
            if not decision.allowed:
                metrics.CONTAINMENT_REFUSED.inc()
                log.error("not contained", node=node.name, why=why, reason=decision.reason)
                return WatchAnswer.BEYOND_CAP
            try:
                blocked = await block()
            except (FinalError, PassingError) as error:
                log.warning("not contained", node=node.name, why=why, reason=str(error))
                self._counted_until[node.uid] = self._clock() + TRIED_WITHIN
                return WatchAnswer.NOT_NOW
            if not blocked:
                return WatchAnswer.NOT_NOW
            self._counted_until[node.uid] = self._clock() + SEEN_WITHIN
            metrics.CONTAINED.inc()
            log.info("contained", node=node.name, why=why)
            return WatchAnswer.CONTAINED

    def _held(self) -> set[str]:
        """Nodes that we took out, those included whose mark the watch has not shown yet."""
        now = self._clock()
        self._counted_until = {uid: at for uid, at in self._counted_until.items() if at > now and uid in self._nodes}
        marked = {uid for uid, node in self._nodes.items() if taken_out(node)}
        return marked | self._counted_until.keys()
