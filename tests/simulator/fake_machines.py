"""A machine without a host behind it, for tests of the cloud and the cluster; its faults are plain attributes."""

import uuid
from pathlib import Path

from simulator.instance_types import instance_type
from simulator.machine import Power


class FakeMachine:
    def __init__(self, instance_id: str, node_name: str, kind: str) -> None:
        self.instance_id = instance_id
        self.node_name = node_name
        self.power = Power.OFF
        self.boot_id = ""
        self.hung = False
        self.gpu_capacity = instance_type(kind).gpus
        self.gpu_allocatable = self.gpu_capacity
        self.impaired = False
        self.host_root: Path | None = None
        self.boots = 0
        self.occupied: dict[str, int] = {}
        self.monitors: set[str] = set()

    @property
    def kubelet_alive(self) -> bool:
        return self.power is Power.RUNNING and not self.hung

    async def start(self) -> None:
        self.power = Power.RUNNING
        self.boot_id = str(uuid.uuid4())
        self.boots += 1
        self.monitors.clear()

    async def reboot(self) -> None:
        await self.start()

    async def stop(self) -> None:
        self.power = Power.OFF
        self.boot_id = ""
        self.occupied.clear()

    def occupy(self, owner: str, gpus: int) -> tuple[int, ...]:
        if owner not in self.occupied and sum(self.occupied.values()) + gpus > self.gpu_allocatable:
            return ()
        self.occupied[owner] = gpus
        return tuple(range(gpus))

    def open_gpus(self, owner: str) -> None:
        self.monitors.add(owner)

    def vacate(self, owner: str) -> None:
        self.monitors.discard(owner)
        self.occupied.pop(owner, None)


class FakeMachines:
    """A machine factory that remembers what it made, by node name (the newest of a name)."""

    def __init__(self) -> None:
        self.by_node: dict[str, FakeMachine] = {}

    def __call__(self, instance_id: str, node_name: str, kind: str) -> FakeMachine:
        self.by_node[node_name] = FakeMachine(instance_id, node_name, kind)
        return self.by_node[node_name]
