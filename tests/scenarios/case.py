"""One sick node of a story, and its incident."""

import asyncio
import uuid
from datetime import UTC, datetime

from temporalio.service import RPCError, RPCStatusCode

from console.errors import UserError
from console.incident_desk import find, order, read
from sickbay import names, search_attributes
from sickbay.faults import Rung
from sickbay.incident import Command, CommandKind, CommandReply, IncidentResult, IncidentView, Stage
from sickbay.kube_objects import Node
from simulator.control_api import MachineReport
from simulator.host.faults import HostFault
from tests.scenarios.cluster import Cluster, incident_id
from tests.scenarios.invariants import marks_of
from tests.scenarios.waiting import PATIENCE_SECONDS, seen

TRIES = 4


class Case:
    """A node, its machine, and what its incident comes to."""

    def __init__(self, cluster: Cluster, node: Node) -> None:
        self.cluster = cluster
        self.name = node.metadata.name
        self.uid = node.metadata.uid
        self.instance_id = names.machine_id(node.spec.provider_id, self.uid)
        self.incident_id = incident_id(self.instance_id)

    @classmethod
    async def of(cls, cluster: Cluster, name: str) -> "Case":
        """The case of a node by name."""
        return cls(cluster, await cluster.node(name))

    async def falls_ill(self, fault: HostFault) -> None:
        """A fault comes to the machine."""
        await self.cluster.inject(self.instance_id, fault)

    async def node(self) -> Node:
        """How the node stands."""
        return await self.cluster.node(self.name)

    async def machine(self) -> MachineReport:
        """How the machine stands."""
        return await self.cluster.machine(self.instance_id)

    async def pool_machines(self) -> int:
        """How many machines of this node's pool there ever were."""
        pool = self.name.rsplit("-", 1)[0]
        return sum(each.node.rsplit("-", 1)[0] == pool for each in await self.cluster.machines())

    async def stage(self) -> Stage | None:
        """Where the incident stands, by Temporal's own word, which needs no controller; None before it began."""
        try:
            described = await self.cluster.client.get_workflow_handle(self.incident_id).describe()
        except RPCError as error:
            if error.status is RPCStatusCode.NOT_FOUND:
                return None
            raise
        word = described.typed_search_attributes.get(search_attributes.STAGE)
        return Stage(word) if word else None

    async def comes_to(self, stage: Stage) -> None:
        """Wait for a stage; fails if the incident ends without it."""

        async def there() -> bool:
            now = await self.stage()
            assert now is not Stage.CLOSED, f"{self.name}: closed, and never {stage}: {await self.account()}"
            return now is stage

        await seen(f"{self.name} is {stage}", there)

    async def view(self) -> IncidentView:
        """The incident as people see it."""
        return await read(await find(self.cluster.client, self.incident_id))

    async def account(self) -> str:
        """What happened, for the message of a failed test."""
        view = await self.view()
        return "\n".join(f"{entry.at:%H:%M:%S.%f} {entry.text}" for entry in view.timeline)

    async def order(self, kind: CommandKind, rung: Rung | None = None) -> CommandReply:
        """A person's order, repeated as the same one while no controller answers."""
        command = Command(kind=kind, by="ada", reason="the story asks", rung=rung, request_id=uuid.uuid4().hex)
        handle = await find(self.cluster.client, self.incident_id)
        for _ in range(TRIES - 1):
            try:
                return await order(handle, command)
            except UserError as error:
                if "no controller answered" not in str(error):
                    raise
        return await order(handle, command)

    async def ends(self, seconds: float = PATIENCE_SECONDS) -> IncidentResult:
        """Wait for the end; no mark of ours may be left on the node at that moment."""
        handle = self.cluster.client.get_workflow_handle(self.incident_id, result_type=IncidentResult)
        await seen(f"{self.name} has an incident", self.stage)
        try:
            async with asyncio.timeout(seconds):
                result: IncidentResult = await handle.result()
        except TimeoutError:
            raise AssertionError(f"{self.name}: not ended after {seconds:g} s: {await self.account()}") from None
        left = [marks_of(node) for node in await self.cluster.nodes() if node.metadata.uid == self.uid]
        assert not any(left), f"{self.name} keeps {left} at {datetime.now(UTC)}: {await self.account()}"
        return result

    async def incidents(self) -> int:
        """How many incidents this machine ever had."""
        query = f"WorkflowId = '{self.incident_id}'"
        return (await self.cluster.client.count_workflows(query)).count
