"""What the fake world of an incident keeps, and the marks by which a test knows what was done to it.

It keeps what a real cluster would keep (the cordon, the boot, the GPUs' health), so that a test can assert on the state
that an incident leaves behind, and counts every act, so that nothing happens twice unseen.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from temporalio.exceptions import ApplicationError

from activities.incidents import PastIncident
from sickbay.faults import Component, ComponentKind, Fault, FaultClass, Rung, Severity
from sickbay.nodes import DrainOutcome, NodeRef, OwnerKind
from sickbay.training.handshake import NodeOver, NodeTrouble

GPU = "0000:61:00"
UUIDS = tuple(f"GPU-{index}" for index in range(8))
SUCCESSOR = NodeRef(cluster="test", name="node-2", uid="uid-2", provider_id="aws:///a/i-2", pool="p5")


def fault(code: str, rung: Rung, fault_class: FaultClass = FaultClass.GPU, **values: Any) -> Fault:
    """A fault of our test GPU."""
    component = values.pop("component", Component(kind=ComponentKind.GPU, id=GPU))
    return Fault(code=code, component=component, fault_class=fault_class, severity=Severity.FATAL, rung=rung, **values)


@dataclass
class WorldState:
    """One node, its host, its cloud, and what cures it."""

    node: NodeRef
    cured_by: Rung = Rung.RESET_GPU
    fault: Fault = field(default_factory=lambda: fault("xid-119", Rung.RESET_GPU))
    boot_id: str = "boot-1"
    exists: bool = True
    sick: bool = True
    cordoned: bool = False
    mark: str | None = None
    prior: bool = False
    protected: bool = False
    uncordoned_by_person: bool = False
    claim_deleting: bool = False
    foreign_locks: tuple[str, ...] = ()
    owner: OwnerKind = OwnerKind.KARPENTER
    said: tuple[Fault, ...] = ()
    """Faults that EC2 tells of the instance, whatever is done to the host."""
    host_silent: bool = False
    unhealthy: bool = False
    """A condition of the node stays bad, whatever is done about its faults."""
    drain: DrainOutcome = DrainOutcome.DRAINED
    drain_hangs: bool = False
    """It heartbeats for ever, and stops when it is told to."""
    reset_refused: str = ""
    reset_hangs: bool = False
    gpu_clients: tuple[str, ...] = ()
    """Operands that hold the GPUs, each with a pod that stops when it is paused."""
    paused_clients: tuple[str, ...] = ()
    clients_stay: tuple[str, ...] = ()
    """Pods that do not stop."""
    reboot_works: bool = True
    past: tuple[PastIncident, ...] = ()
    jobs: tuple[str, ...] = ()
    """Training jobs with a pod on the node."""
    gpus_in_use: bool = False
    troubles: list[NodeTrouble] = field(default_factory=list)
    """What the jobs were told, and told at the end."""
    overs: list[NodeOver] = field(default_factory=list)
    fails: dict[str, ApplicationError] = field(default_factory=dict)
    acts: Counter[str] = field(default_factory=Counter)
    log: list[str] = field(default_factory=list)
    """The same acts in their order, and `drain stopped`."""
    events: list[str] = field(default_factory=list)
    on: dict[str, Callable[[], None]] = field(default_factory=dict)
    """Called at the beginning of an activity, by its name: lets a test change the world in the middle."""
    watcher: Callable[[str], Awaitable[None]] | None = None
    """Told of each activity as it begins, before it does anything."""
    gates: dict[str, asyncio.Event] = field(default_factory=dict)
    """An activity that begins waits for its gate, if it has one."""

    async def _begin(self, name: str) -> None:
        self.acts[name] += 1
        self.log.append(name)
        if self.watcher is not None:
            await self.watcher(name)
        if hook := self.on.get(name):
            hook()
        if gate := self.gates.get(name):
            await gate.wait()
        if error := self.fails.get(name):
            raise error

    def _cure(self, rung: Rung) -> None:
        if rung.strength >= self.cured_by.strength:
            self.sick = False

    def _replace(self) -> None:
        self.exists, self.mark, self.cordoned, self.protected = False, None, False, False
        self._cure(Rung.REPLACE)

    def _reboot(self) -> None:
        if self.reboot_works:
            self.boot_id = f"boot-{int(self.boot_id.removeprefix('boot-')) + 1}"
            self._cure(Rung.REBOOT)
