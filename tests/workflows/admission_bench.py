"""Runs one admission on a real Temporal server against a fake world, in which incidents end as the test says."""

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from temporalio import activity
from temporalio.client import WorkflowHandle
from temporalio.common import WorkflowIDConflictPolicy
from temporalio.testing import WorkflowEnvironment
from temporalio.worker import Worker

from activities.host import ProbeRequest
from activities.incidents import (
    HoldersGone,
    HoldersQuery,
    IncidentClearing,
    IncidentOpened,
    IncidentOpening,
    IncidentTold,
)
from activities.nodes import AdmitRequest, Admittance, NodeQuery
from sickbay.admission import AdmissionInput, AdmissionResult, AdmissionView
from sickbay.checks import ActiveDepth
from sickbay.faults import Fault
from sickbay.names import admission_id, incident_id, node_queue
from sickbay.nodes import HostProbe, NodeRef, NodeSnapshot
from sickbay.policy.model import AdmissionPolicy, IncidentPolicy
from tests.workflows.fake_world import FakeWorld
from workflows.node_admission import NodeAdmission


@dataclass
class AdmissionWorld(FakeWorld):
    """One tainted node, and what keeps it from its first work."""

    sick: bool = False
    tainted: bool = True
    admitted_boot: str = ""
    late_looks: int = 0
    """So many looks show a node that is not ready to be judged."""
    starting_passes: int = 0
    """So many passes have a check that cannot judge yet."""
    mig_config: str = ""
    mig_state: str = ""
    fails_under_load: Fault | None = None
    refused: str = ""
    """Why the node is not let in, whatever it passed."""
    incident_open: bool = False
    incident_name: str = ""
    """Id of the open incident; any if empty."""
    repair_looks: int = 2
    """So many looks find an incident open, before it ends."""
    at_its_end: Callable[[], None] = field(default=lambda: None)
    """What an incident leaves behind."""
    opened: list[IncidentOpening] = field(default_factory=list)
    cleared: list[IncidentClearing] = field(default_factory=list)
    depths: list[ActiveDepth] = field(default_factory=list)

    @activity.defn
    async def observe_node(self, query: NodeQuery) -> NodeSnapshot:
        look = await super().observe_node(query)
        if not look.exists:
            return look
        late, self.late_looks = self.late_looks > 0, self.late_looks - 1
        marks = {
            "admission_taint": self.tainted,
            "admitted_boot": self.admitted_boot,
            "mig_config": self.mig_config,
            "mig_state": self.mig_state,
            "gpu_allocatable": 0 if late else 8,
        }
        return look.model_copy(update=marks)

    @activity.defn
    async def probe_host(self, request: ProbeRequest) -> HostProbe:
        probe = await super().probe_host(request)
        self.depths.append(request.depth)
        starting, self.starting_passes = self.starting_passes > 0, self.starting_passes - 1
        trouble = self.fails_under_load
        found = (trouble,) if trouble and request.depth is ActiveDepth.BURN_IN else probe.faults
        return probe.model_copy(update={"faults": found, "checks_unknown": ("fabric-manager",) if starting else ()})

    @activity.defn
    async def admit_node(self, request: AdmitRequest) -> Admittance:
        await self._begin("admit_node")
        if not self.exists:
            return Admittance(admitted=False, node_gone=True)
        if request.boot_id != self.boot_id:
            return Admittance(admitted=False, why_not="the node runs another boot by now")
        if self.refused:
            return Admittance(admitted=False, why_not=self.refused)
        self.tainted, self.admitted_boot = False, request.boot_id
        return Admittance(admitted=True)

    @activity.defn
    async def check_holders(self, query: HoldersQuery) -> HoldersGone:
        await self._begin("check_holders")
        if self.incident_open:
            self.repair_looks -= 1
            if self.repair_looks < 0:
                self.incident_open = False
                self.at_its_end()
        if not self.incident_open:
            return HoldersGone(gone=query.holders)
        return HoldersGone(gone=tuple(each for each in query.holders if self.incident_name not in ("", each)))

    @activity.defn
    async def open_incident(self, opening: IncidentOpening) -> IncidentOpened:
        await self._begin("open_incident")
        self.opened.append(opening)
        self.incident_open = True
        return IncidentOpened(incident_id=incident_id(self.node.cluster, self.node.machine))

    @activity.defn
    async def clear_incident(self, clearing: IncidentClearing) -> IncidentTold:
        await self._begin("clear_incident")
        self.cleared.append(clearing)
        self.repair_looks = 0
        return IncidentTold(open=True)

    @property
    def cluster(self) -> list[Callable[..., Any]]:
        return [*super().cluster, self.admit_node, self.check_holders, self.open_incident, self.clear_incident]


@dataclass
class AdmissionBench:
    """One admission under test."""

    environment: WorkflowEnvironment
    world: AdmissionWorld
    queue: str
    policy: IncidentPolicy
    handle: WorkflowHandle[Any, AdmissionResult] = field(init=False)

    async def start(self, **values: Any) -> None:
        """Begin the admission, or find it begun."""
        node = self.world.node
        start = AdmissionInput(
            node=node, policy=self.policy, catalogue_version="test", started_at=datetime.now(UTC), **values
        )
        self.handle = await self.environment.client.start_workflow(
            NodeAdmission.run,
            start,
            id=admission_id(node.cluster, node.machine),
            task_queue=self.queue,
            id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
        )

    async def result(self) -> AdmissionResult:
        """Its end, which must come."""
        return await asyncio.wait_for(self.handle.result(), 60)

    async def view(self) -> AdmissionView:
        return await self.handle.query(NodeAdmission.view)

    async def until(self, reached: Callable[[AdmissionView], bool]) -> AdmissionView:
        """Wait until the admission shows this."""
        async with asyncio.timeout(60):
            while True:
                view = await self.view()
                if reached(view):
                    return view
                await asyncio.sleep(0.02)


AdmissionBench.__test__ = False  # type: ignore[attr-defined]


def quick_admission(**values: Any) -> IncidentPolicy:
    """The default policy with admission on, and with the one wait that no server skips: for a host."""
    return IncidentPolicy(host_pickup=timedelta(seconds=1), admission=AdmissionPolicy(enabled=True, **values))


@asynccontextmanager
async def admission_bench(
    environment: WorkflowEnvironment, policy: IncidentPolicy | None = None, **world: Any
) -> AsyncIterator[AdmissionBench]:
    """A bench with its own cluster and queue."""
    unique = uuid.uuid4().hex[:8]
    node = NodeRef(
        cluster=f"c{unique}", name=f"node-{unique}", uid="uid-1", provider_id=f"aws:///a/i-{unique}", pool="p5"
    )
    fake = AdmissionWorld(node=node, **world)
    queue = f"admissions-{unique}"
    client = environment.client
    async with Worker(
        client, task_queue=queue, workflows=[NodeAdmission], activities=fake.cluster, max_cached_workflows=20
    ):
        bench = AdmissionBench(environment, fake, queue, policy or quick_admission())
        if fake.host_silent:
            yield bench
            return
        async with Worker(client, task_queue=node_queue(node.name), activities=[fake.probe_host]):
            yield bench
