"""The kubelets' side of nodes: registering, heartbeats by Lease, and the node's status.

One loop serves all machines. A machine whose kubelet is not alive gets nothing written, whatever else is true of it:
telling that is the node controller's affair. As a real kubelet, it registers once per boot, so that a Node object that
somebody deleted under a running machine stays away.
"""

import asyncio

from sickbay.model import Frozen
from simulator.cloud import Instance
from simulator.cluster.api import Json, PatchKind
from simulator.cluster.karpenter_objects import (
    LABEL_CAPACITY_TYPE,
    LABEL_INSTANCE_TYPE,
    LABEL_POOL,
    UNREGISTERED,
)
from simulator.cluster.objects import GPU_RESOURCE, Lease, Node, Taint, condition_of
from simulator.cluster.operands import gpus_are_served
from simulator.cluster.stamps import micro_stamp, stamp
from simulator.cluster.world import World
from simulator.instance_types import instance_type

LEASES = "kube-node-lease"
LABEL_NODE_GROUP = "eks.amazonaws.com/nodegroup"
LABEL_SIMULATED_POOL = "simulator.sickbay.dev/pool"
"""On every simulated node, whoever makes it, so that jobs can select their pool."""
TAG_NODE_GROUP = "eks:nodegroup-name"
TAG_STARTUP_TAINT = "simulator.sickbay.dev/startup-taint"
"""Stands for the kubelet's `--register-with-taints` in a launch template: the key of a NoSchedule taint."""

PRESSURES = (
    ("MemoryPressure", "KubeletHasSufficientMemory"),
    ("DiskPressure", "KubeletHasNoDiskPressure"),
    ("PIDPressure", "KubeletHasSufficientPID"),
)


class NodeFacts(Frozen):
    """What a kubelet tells of its host; written again when it changes."""

    boot_id: str
    gpus: int
    gpus_allocatable: int


class KubeletNodes:
    """All kubelets, as far as nodes go."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._registered_boots: set[str] = set()

    async def run(self) -> None:
        """For ever."""
        await self._world.keep("kubelets", self._beat_all, every=self._world.heartbeat)

    async def _beat_all(self) -> None:
        alive = [instance for instance in self._world.cloud.instances.values() if instance.machine.kubelet_alive]
        # The first failure is told only after all have had their beat: one bad node must not silence the others.
        for result in await asyncio.gather(*map(self._beat, alive), return_exceptions=True):
            if isinstance(result, BaseException):
                raise result

    async def _beat(self, instance: Instance) -> None:
        node = self._world.nodes.get(instance.node_name)
        if node is None:
            node = await self._register(instance)
        if node is None or node.spec.provider_id != instance.provider_id:
            # A predecessor of the same name is not gone yet, or this node was deleted and stays away until a boot.
            return
        self._registered_boots.add(instance.machine.boot_id)
        await self._renew_lease(instance, node)
        await self._report_status(instance, node)

    async def _register(self, instance: Instance) -> Node | None:
        if instance.machine.boot_id in self._registered_boots:
            return None
        return await self._world.nodes.create(registration(instance, self._world.cloud.region))

    async def _renew_lease(self, instance: Instance, node: Node) -> None:
        spec = {
            "holderIdentity": instance.node_name,
            "leaseDurationSeconds": 40,
            "renewTime": micro_stamp(self._world.clock.now()),
        }
        lease: Lease | None = self._world.leases.get(instance.node_name, LEASES)
        if lease is not None:
            await self._world.leases.patch(lease, {"spec": spec})
            return
        owner = {"apiVersion": "v1", "kind": "Node", "name": node.name, "uid": node.metadata.uid}
        metadata = {"name": instance.node_name, "namespace": LEASES, "ownerReferences": [owner]}
        kind = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease"}
        await self._world.leases.create({**kind, "metadata": metadata, "spec": spec}, LEASES)

    async def _report_status(self, instance: Instance, node: Node) -> None:
        ready = condition_of(node.status.conditions, "Ready")
        told = NodeFacts(
            boot_id=node.status.node_info.boot_id,
            gpus=int(node.status.capacity.get(GPU_RESOURCE, 0)),
            gpus_allocatable=node.allocatable_gpus,
        )
        facts = facts_of(instance, served=gpus_are_served(node, self._world.pods_on(node.name)))
        fresh = (
            ready is not None
            and ready.last_heartbeat_time is not None
            and self._world.clock.since(ready.last_heartbeat_time) < self._world.timings.status_report
        )
        if fresh and ready is not None and ready.status == "True" and told == facts:
            return
        status = self._status(instance, node, facts)
        await self._world.nodes.patch(node, {"status": status}, kind=PatchKind.STRATEGIC, subresource="status")

    def _status(self, instance: Instance, node: Node, facts: NodeFacts) -> Json:
        kind = instance_type(instance.instance_type)
        sizes = {"cpu": str(kind.cpus), "memory": f"{kind.memory_gib}Gi", "pods": "110"}
        conditions = [self._condition(node, "Ready", "True", "KubeletReady")]
        conditions += [self._condition(node, name, "False", reason) for name, reason in PRESSURES]
        return {
            "capacity": {**sizes, GPU_RESOURCE: str(facts.gpus)},
            "allocatable": {**sizes, GPU_RESOURCE: str(facts.gpus_allocatable)},
            "conditions": conditions,
            "nodeInfo": node_info(instance),
        }

    def _condition(self, node: Node, kind: str, status: str, reason: str) -> Json:
        now = stamp(self._world.clock.now())
        known = condition_of(node.status.conditions, kind)
        changed = known is None or known.status != status
        written = {"type": kind, "status": status, "reason": reason, "message": reason, "lastHeartbeatTime": now}
        return {**written, "lastTransitionTime": now} if changed else written


def facts_of(instance: Instance, *, served: bool) -> NodeFacts:
    """What a machine has to tell now; without a device plugin that serves, no GPU is allocatable."""
    machine = instance.machine
    allocatable = machine.gpu_allocatable if served else 0
    return NodeFacts(boot_id=machine.boot_id, gpus=machine.gpu_capacity, gpus_allocatable=allocatable)


def node_info(instance: Instance) -> Json:
    """The node's system information; every field is required by the API."""
    return {
        "machineID": instance.instance_id,
        "systemUUID": instance.instance_id,
        "bootID": instance.machine.boot_id,
        "kernelVersion": "6.1.0-simulated",
        "osImage": "Simulated Linux",
        "containerRuntimeVersion": "containerd://2.0.0",
        "kubeletVersion": "v1.34.0",
        "kubeProxyVersion": "v1.34.0",
        "operatingSystem": "linux",
        "architecture": "amd64",
    }


def registration(instance: Instance, region: str) -> Json:
    """The Node object that a kubelet creates for itself, by the tags of its instance."""
    tags = instance.tags
    labels = {
        "kubernetes.io/hostname": instance.node_name,
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": "amd64",
        LABEL_INSTANCE_TYPE: instance.instance_type,
        "topology.kubernetes.io/zone": instance.zone,
        "topology.kubernetes.io/region": region,
        LABEL_SIMULATED_POOL: tags.get(LABEL_SIMULATED_POOL, ""),
    }
    taints = []
    if LABEL_POOL in tags:
        labels |= {LABEL_POOL: tags[LABEL_POOL], LABEL_CAPACITY_TYPE: "on-demand"}
        taints.append(UNREGISTERED.written())
    if TAG_STARTUP_TAINT in tags:
        taints.append(Taint(key=tags[TAG_STARTUP_TAINT], effect="NoSchedule").written())
    if TAG_NODE_GROUP in tags:
        labels[LABEL_NODE_GROUP] = tags[TAG_NODE_GROUP]
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": instance.node_name, "labels": labels},
        "spec": {"providerID": instance.provider_id, "taints": taints},
    }
