"""Karpenter's provisioning: makes NodeClaims, for static pools by count, for the others by the pods that wait.

Pods on nodes that are being ended count as waiting, so that their successors start beside the drain (facts:
remediation, 1.4). Not simulated: consolidation, drift, expiry, weights, prices.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from simulator.clock import Clock
from simulator.cluster.api import Json
from simulator.cluster.karpenter_objects import (
    FINALIZER,
    GROUP,
    LABEL_INSTANCE_TYPE,
    LABEL_POOL,
    NodeClaim,
    NodePool,
    required_instance_type,
)
from simulator.cluster.objects import Node, Pod, Taint
from simulator.cluster.placement import bears_all, free_gpus, is_waiting, selects
from simulator.cluster.world import World
from simulator.instance_types import instance_type


class CapacityBackoff:
    """Which pools lately found no capacity, and until when they wait."""

    def __init__(self, clock: Clock, seconds: float) -> None:
        self._clock = clock
        self._wait = timedelta(seconds=clock.real(seconds))
        self._until: dict[str, datetime] = {}

    def refused(self, pool: str) -> None:
        """A launch of this pool found no capacity."""
        self._until[pool] = self._clock.now() + self._wait

    def holds(self, pool: str) -> bool:
        """Whether the pool still waits."""
        return pool in self._until and self._clock.now() < self._until[pool]


@dataclass
class Room:
    """A node that is there or on its way, with what is free on it."""

    labels: dict[str, str]
    taints: tuple[Taint, ...]
    gpus: int

    def takes(self, pod: Pod) -> bool:
        """Whether the pod would fit."""
        return selects(pod, self.labels) and bears_all(pod, self.taints) and pod.gpus <= self.gpus


class KarpenterPools:
    """Keeps as many claims as are needed."""

    def __init__(self, world: World, backoff: CapacityBackoff) -> None:
        self._world = world
        self._backoff = backoff

    async def run(self) -> None:
        """For ever."""
        watched = (self._world.pools, self._world.claims, self._world.pods, self._world.nodes)
        await self._world.keep("Karpenter provisioner", self._provision, watched)

    async def _provision(self) -> None:
        pools = [pool for pool in self._world.pools if not pool.deleting]
        await self._world.each([pool for pool in pools if pool.spec.replicas is not None], self._keep_count)
        dynamic = [pool for pool in pools if pool.spec.replicas is None]
        if dynamic:
            await self._serve_waiting(dynamic)

    async def _keep_count(self, pool: NodePool) -> None:
        claims = self._claims_of(pool)
        running = [claim for claim in claims if not claim.deleting]
        missing = (pool.spec.replicas or 0) - len(running)
        if missing < 0:
            surplus = sorted(running, key=lambda claim: str(claim.metadata.creation_timestamp))[missing:]
            await self._world.each(surplus, self._world.claims.delete)
        for _ in range(min(missing, self._room_to_grow(pool))):
            await self._create_claim(pool)

    async def _serve_waiting(self, pools: list[NodePool]) -> None:
        rooms = list(self._rooms())
        for pod in self._pods_to_place():
            room = next((room for room in rooms if room.takes(pod)), None)
            if room is None:
                pool = next((pool for pool in pools if self._could_serve(pool, pod)), None)
                if pool is None:
                    continue
                await self._create_claim(pool)
                room = template_room(pool)
                rooms.append(room)
            room.gpus -= pod.gpus

    def _pods_to_place(self) -> Iterator[Pod]:
        for pod in self._world.pods:
            node = self._world.nodes.get(pod.spec.node_name) if pod.spec.node_name else None
            leaving = node is not None and node.deleting and not pod.deleting and not pod.finished
            if is_waiting(pod) or leaving:
                yield pod

    def _rooms(self) -> Iterator[Room]:
        pods = list(self._world.pods)
        claimed: set[str] = set()
        for claim in self._world.claims:
            node = self._world.node_of(claim.status.provider_id)
            if node is not None:
                claimed.add(node.name)
            if not claim.deleting:
                yield node_room(node, pods) if node and claim.reached("Initialized") else claim_room(claim, node, pods)
        for node in self._world.nodes:
            if node.name not in claimed and not node.deleting:
                yield node_room(node, pods)

    def _could_serve(self, pool: NodePool, pod: Pod) -> bool:
        return self._room_to_grow(pool) > 0 and template_room(pool).takes(pod)

    def _room_to_grow(self, pool: NodePool) -> int:
        if self._backoff.holds(pool.name):
            return 0
        limit = pool.spec.limits.nodes
        return 1_000 if limit is None else max(limit - len(self._claims_of(pool)), 0)

    def _claims_of(self, pool: NodePool) -> list[NodeClaim]:
        return [claim for claim in self._world.claims if claim.pool == pool.name]

    async def _create_claim(self, pool: NodePool) -> None:
        await self._world.claims.create(claim_for(pool))


def template_room(pool: NodePool) -> Room:
    """What a new node of the pool would offer."""
    kind = required_instance_type(pool.spec.template.spec.requirements)
    return Room(claim_labels(pool), pool.spec.template.spec.taints, instance_type(kind).gpus)


def claim_room(claim: NodeClaim, node: Node | None, pods: Iterable[Pod]) -> Room:
    """What a node on its way will offer; its passing taints do not count."""
    held = sum(pod.gpus for pod in pods if node and pod.spec.node_name == node.name and not pod.finished)
    kind = required_instance_type(claim.spec.requirements)
    return Room(claim.metadata.labels, claim.spec.taints, instance_type(kind).gpus - held)


def node_room(node: Node, pods: Iterable[Pod]) -> Room:
    """What a node offers now."""
    return Room(node.metadata.labels, node.spec.taints, free_gpus(node, pods))


def claim_labels(pool: NodePool) -> dict[str, str]:
    """Labels of the pool's claims, and later of its nodes."""
    kind = required_instance_type(pool.spec.template.spec.requirements)
    return {**pool.spec.template.metadata.labels, LABEL_POOL: pool.name, LABEL_INSTANCE_TYPE: kind}


def claim_for(pool: NodePool) -> Json:
    """A new claim of a pool."""
    template = pool.spec.template.spec.model_dump(mode="json", by_alias=True, exclude_none=True)
    owner = {
        "apiVersion": f"{GROUP}/v1",
        "kind": "NodePool",
        "name": pool.name,
        "uid": pool.metadata.uid,
        "blockOwnerDeletion": True,
    }
    return {
        "apiVersion": f"{GROUP}/v1",
        "kind": "NodeClaim",
        "metadata": {
            "generateName": f"{pool.name}-",
            "labels": claim_labels(pool),
            "finalizers": [FINALIZER],
            "ownerReferences": [owner],
        },
        "spec": {
            **template,
            "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "simulated"},
        },
    }
