"""Karpenter's termination of nodes and claims, from the delete call to the last finalizer (facts: remediation, 1.2).

Taint, drain by eviction (and by force once the claim's termination time has come), terminate the instance, then let
the Node and the NodeClaim go. Volumes are not simulated.
"""

import re
from datetime import datetime, timedelta

from simulator.cloud import State
from simulator.cluster.karpenter_drain import STUCK_AFTER, asks_to_stay, forced_grace, holds_drain, next_group
from simulator.cluster.karpenter_objects import (
    ANNOTATION_TERMINATION_TIME,
    DISRUPTED,
    FINALIZER,
    LABEL_NO_LOAD_BALANCER,
    NodeClaim,
)
from simulator.cluster.objects import KubeObject, Node, Pod
from simulator.cluster.stamps import stamp
from simulator.cluster.world import World

DURATION = re.compile(r"(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?")


class KarpenterTermination:
    """Ends what is marked for deletion."""

    def __init__(self, world: World) -> None:
        self._world = world

    async def run(self) -> None:
        """For ever."""
        watched = (self._world.claims, self._world.nodes, self._world.pods)
        await self._world.keep("Karpenter termination", self._end_all, watched, every=self._world.heartbeat)

    async def _end_all(self) -> None:
        nodes = [node for node in self._world.nodes if node.deleting and FINALIZER in node.metadata.finalizers]
        await self._world.each(nodes, self._end_node)
        claims = [claim for claim in self._world.claims if claim.deleting and FINALIZER in claim.metadata.finalizers]
        await self._world.each(claims, self._end_claim)

    async def _end_claim(self, claim: NodeClaim) -> None:
        claim = await self._with_termination_time(claim)
        node = self._world.node_of(claim.status.provider_id)
        if node is not None:
            if not node.deleting:
                await self._world.nodes.delete(node)
            return
        if claim.instance_id and not self._instance_gone(claim.instance_id):
            self._world.cloud.terminate(claim.instance_id)
            return
        await self._world.claims.patch(claim, without_finalizer(claim))

    async def _with_termination_time(self, claim: NodeClaim) -> NodeClaim:
        grace = grace_seconds(claim.spec.termination_grace_period)
        asked = claim.metadata.deletion_timestamp
        if grace is None or asked is None or ANNOTATION_TERMINATION_TIME in claim.metadata.annotations:
            return claim
        end = asked + timedelta(seconds=self._world.clock.real(grace))
        annotations = {ANNOTATION_TERMINATION_TIME: stamp(end)}
        return await self._world.claims.patch(claim, {"metadata": {"annotations": annotations}})

    async def _end_node(self, node: Node) -> None:
        claim = next((claim for claim in self._world.claims if node is self._node_of(claim)), None)
        if claim is not None and not claim.deleting:
            await self._world.claims.delete(claim)
        instance_id = node.spec.provider_id.rsplit("/", 1)[-1]
        if not node.ready and self._instance_gone(instance_id):
            await self._world.nodes.patch(node, without_finalizer(node))
            return
        node = await self._tainted(node)
        if await self._drained(node, claim):
            if not self._instance_gone(instance_id):
                self._world.cloud.terminate(instance_id)
            else:
                await self._world.nodes.patch(node, without_finalizer(node))

    async def _tainted(self, node: Node) -> Node:
        if any(taint.key == DISRUPTED.key for taint in node.spec.taints):
            return node
        body = {
            "metadata": {
                "resourceVersion": node.metadata.resource_version,
                "labels": {LABEL_NO_LOAD_BALANCER: "karpenter"},
            },
            "spec": {"taints": [taint.written() for taint in (*node.spec.taints, DISRUPTED)]},
        }
        return await self._world.nodes.patch(node, body)

    async def _drained(self, node: Node, claim: NodeClaim | None) -> bool:
        now = self._world.clock.now()
        stuck_after = timedelta(seconds=self._world.clock.real(STUCK_AFTER.total_seconds()))
        holding = [pod for pod in self._world.pods_on(node.name) if holds_drain(pod, stuck_after, now)]
        end = termination_time(claim)
        if end is not None:
            await self._world.each(holding, lambda pod: self._force(pod, end))
        going = [pod for pod in next_group(holding) if not pod.deleting and not asks_to_stay(pod)]
        await self._world.each(going, self._evict)
        return not holding

    async def _evict(self, pod: Pod) -> None:
        metadata = {"name": pod.name, "namespace": pod.metadata.namespace}
        options = {"preconditions": {"uid": pod.metadata.uid}}
        kind = {"apiVersion": "policy/v1", "kind": "Eviction"}
        await self._world.pods.act(pod, "eviction", {**kind, "metadata": metadata, "deleteOptions": options})

    async def _force(self, pod: Pod, end: datetime) -> None:
        grace = forced_grace(pod, -self._world.clock.since(end))
        if grace is not None and not pod.deleting:
            await self._world.pods.delete(pod, grace_seconds=grace)

    def _node_of(self, claim: NodeClaim) -> Node | None:
        return self._world.node_of(claim.status.provider_id)

    def _instance_gone(self, instance_id: str) -> bool:
        instance = self._world.cloud.instances.get(instance_id)
        return instance is None or instance.state is State.TERMINATED


def without_finalizer(target: KubeObject) -> dict[str, object]:
    """The patch that lets an object go, as far as Karpenter is concerned."""
    kept = [finalizer for finalizer in target.metadata.finalizers if finalizer != FINALIZER]
    return {"metadata": {"resourceVersion": target.metadata.resource_version, "finalizers": kept}}


def termination_time(claim: NodeClaim | None) -> datetime | None:
    """When the drain becomes forceful; None for never."""
    written = claim.metadata.annotations.get(ANNOTATION_TERMINATION_TIME) if claim is not None else None
    return datetime.fromisoformat(written) if written else None


def grace_seconds(duration: str | None) -> float | None:
    """Seconds of a duration such as `1h30m`; None where none is set or it is not of this form."""
    match = DURATION.fullmatch(duration or "")
    if not duration or match is None:
        return None
    hours, minutes, seconds = (int(part or 0) for part in match.groups())
    return float(hours * 3600 + minutes * 60 + seconds)
