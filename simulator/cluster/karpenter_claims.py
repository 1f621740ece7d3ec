"""Karpenter's claim life cycle up to a usable node: Launched, Registered, Initialized (facts: remediation, 1.2)."""

from collections.abc import Mapping

from simulator.cloud import AwsError, State
from simulator.cluster.api import Json
from simulator.cluster.karpenter_objects import (
    FINALIZER,
    GROUP,
    LABEL_INITIALIZED,
    LABEL_POOL,
    LABEL_REGISTERED,
    TAG_CLAIM,
    UNREGISTERED,
    NodeClaim,
    required_instance_type,
)
from simulator.cluster.karpenter_pools import CapacityBackoff
from simulator.cluster.kubelet_nodes import LABEL_SIMULATED_POOL
from simulator.cluster.objects import GPU_RESOURCE, Node, Taint
from simulator.cluster.stamps import condition
from simulator.cluster.taints import NOT_READY, UNREACHABLE
from simulator.cluster.world import World
from simulator.instance_types import instance_type

EPHEMERAL_TAINTS = frozenset({NOT_READY, UNREACHABLE, UNREGISTERED.key})
NO_CAPACITY = "InsufficientInstanceCapacity"


class KarpenterClaims:
    """Brings claims to life, and gives up those that cannot come."""

    def __init__(self, world: World, backoff: CapacityBackoff) -> None:
        self._world = world
        self._backoff = backoff

    async def run(self) -> None:
        """For ever."""
        watched = (self._world.claims, self._world.nodes)
        await self._world.keep("Karpenter claims", self._advance_all, watched, every=self._world.heartbeat)

    async def _advance_all(self) -> None:
        await self._world.each([claim for claim in self._world.claims if not claim.deleting], self._advance)

    async def _advance(self, claim: NodeClaim) -> None:
        node = self._world.node_of(claim.status.provider_id)
        if not claim.reached("Launched"):
            await self._launch(claim)
        elif not claim.reached("Registered"):
            await self._register(claim, node)
        elif self._is_lost(claim, node):
            await self._world.claims.delete(claim)
        elif not claim.reached("Initialized") and node is not None and is_initialized(claim, node):
            await self._initialize(claim, node)

    async def _launch(self, claim: NodeClaim) -> None:
        kind = required_instance_type(claim.spec.requirements)
        tags = {
            LABEL_POOL: claim.pool,
            TAG_CLAIM: claim.name,
            LABEL_SIMULATED_POOL: claim.metadata.labels.get(LABEL_SIMULATED_POOL, ""),
        }
        try:
            instance = await self._world.cloud.launch(kind, tags)
        except AwsError as refused:
            if refused.code != NO_CAPACITY:
                raise
            self._backoff.refused(claim.pool)
            await self._world.claims.delete(claim)
            return
        gpus = str(instance_type(kind).gpus)
        status = {
            "providerID": instance.provider_id,
            "capacity": {GPU_RESOURCE: gpus},
            "allocatable": {GPU_RESOURCE: gpus},
            "conditions": self._with(claim, "Launched"),
        }
        await self._world.claims.patch(claim, {"status": status}, subresource="status")

    async def _register(self, claim: NodeClaim, node: Node | None) -> None:
        if node is None:
            born = claim.metadata.creation_timestamp
            if born is not None and self._world.clock.since(born) > self._world.timings.registration_timeout:
                await self._world.claims.delete(claim)
            return
        await self._world.nodes.patch(node, adoption(claim, node))
        status = {"nodeName": node.name, "conditions": self._with(claim, "Registered")}
        await self._world.claims.patch(claim, {"status": status}, subresource="status")

    async def _initialize(self, claim: NodeClaim, node: Node) -> None:
        await self._world.nodes.patch(node, {"metadata": {"labels": {LABEL_INITIALIZED: "true"}}})
        status = {"conditions": self._with(claim, "Initialized", "Ready")}
        await self._world.claims.patch(claim, {"status": status}, subresource="status")

    def _is_lost(self, claim: NodeClaim, node: Node | None) -> bool:
        # Karpenter's garbage collection: the instance is gone, and its node no longer answers.
        instance = self._world.cloud.instances.get(claim.instance_id)
        return (instance is None or instance.state is State.TERMINATED) and (node is None or not node.ready)

    def _with(self, claim: NodeClaim, *reached: str) -> list[Mapping[str, str]]:
        # A merge patch writes the list of conditions whole.
        now = self._world.clock.now()
        kept = [
            {**known.model_dump(mode="json", by_alias=True, exclude_none=True)}
            for known in claim.status.conditions
            if known.type not in reached
        ]
        return [*kept, *(condition(kind, True, now, kind) for kind in reached)]


def adoption(claim: NodeClaim, node: Node) -> Json:
    """What Karpenter writes on a node that has come up for its claim."""
    owner = {
        "apiVersion": f"{GROUP}/v1",
        "kind": "NodeClaim",
        "name": claim.name,
        "uid": claim.metadata.uid,
        "blockOwnerDeletion": True,
    }
    kept = [taint for taint in node.spec.taints if taint.key != UNREGISTERED.key]
    taints: list[Taint] = [*kept, *claim.spec.taints, *claim.spec.startup_taints]
    return {
        "metadata": {
            "resourceVersion": node.metadata.resource_version,
            "labels": {**claim.metadata.labels, LABEL_REGISTERED: "true"},
            "finalizers": sorted({*node.metadata.finalizers, FINALIZER}),
            "ownerReferences": [owner],
        },
        "spec": {"taints": [taint.written() for taint in taints]},
    }


def is_initialized(claim: NodeClaim, node: Node) -> bool:
    """Whether a registered node is ready for use: Ready, its passing taints gone, its GPUs there."""
    startup = {taint.key for taint in claim.spec.startup_taints}
    passing = EPHEMERAL_TAINTS | startup
    gpus_wanted = instance_type(required_instance_type(claim.spec.requirements)).gpus > 0
    has_gpus = node.allocatable_gpus > 0 or not gpus_wanted
    return node.ready and has_gpus and not any(taint.key in passing for taint in node.spec.taints)
