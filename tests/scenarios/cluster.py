"""A stage as its people see it: with kubectl, with the simulator's controls, and with `sickbay incidents`.

Everything here goes over the wire to processes that run; nothing reaches into them.
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Self

import aiohttp
from pydantic import JsonValue
from temporalio.client import Client, WorkflowExecutionStatus
from temporalio.service import RPCError, RPCStatusCode

from console.stage import CLUSTER, Stage, staged
from sickbay import names
from sickbay.kube_objects import KubeObject, Node
from simulator.control_api import MachineReport, Throttling
from simulator.host.faults import HostFault
from simulator.kube.faults import FaultOrder, RequestFault, Trouble
from simulator.scenario import parse
from tests.scenarios.controller import Controller
from tests.scenarios.waiting import seen
from workers.temporal_plugin import temporal_plugin

PERSON = "kubectl-edit"
"""The field manager of what a person writes."""
HTTP_SECONDS = 20


class EventSeen(KubeObject):
    """A Kubernetes Event, as far as stories read it."""

    class Involved(KubeObject):
        """What it is about."""

        name: str = ""

    involved_object: Involved = Involved()
    reason: str = ""
    message: str = ""


class Cluster:
    """One stage, its clients, and the controller on it."""

    def __init__(
        self, stage: Stage, client: Client, kube: aiohttp.ClientSession, control: aiohttp.ClientSession, policy: Path
    ) -> None:
        self.stage = stage
        self.client = client
        self.controller = Controller(stage, policy)
        self._kube = kube
        self._control = control

    async def nodes(self) -> tuple[Node, ...]:
        """Every node."""
        listed = await self.read("/api/v1/nodes")
        return tuple(Node.model_validate(item) for item in listed["items"])

    async def node(self, name: str) -> Node:
        """One node, which must be there."""
        return Node.model_validate(await self.read(f"/api/v1/nodes/{name}"))

    async def events(self, node: str, reason: str) -> tuple[EventSeen, ...]:
        """The Events of one reason on a node."""
        listed = await self.read("/api/v1/namespaces/default/events")
        events = (EventSeen.model_validate(item) for item in listed["items"])
        return tuple(event for event in events if event.involved_object.name == node and event.reason == reason)

    async def pods_on(self, node: str) -> Mapping[str, str]:
        """UID by name of the pods on a node that nobody asked to leave."""
        pods = (await self.read("/api/v1/pods"))["items"]
        return {
            pod["metadata"]["name"]: pod["metadata"]["uid"]
            for pod in pods
            if pod["spec"].get("nodeName") == node and "deletionTimestamp" not in pod["metadata"]
        }

    async def read(self, path: str) -> Any:
        """GET from the API server."""
        async with self._kube.get(path) as answer:
            answer.raise_for_status()
            return await answer.json()

    async def change_node(self, name: str, change: dict[str, JsonValue]) -> None:
        """A person's merge patch of a node."""
        headers = {"Content-Type": "application/merge-patch+json"}
        path = f"/api/v1/nodes/{name}?fieldManager={PERSON}"
        async with self._kube.patch(path, json=change, headers=headers) as answer:
            answer.raise_for_status()

    async def cordon(self, name: str, *, on: bool = True) -> None:
        """`kubectl cordon` or `uncordon`."""
        await self.change_node(name, {"spec": {"unschedulable": True if on else None}})

    async def delete_claim_of(self, node: Node) -> None:
        """Somebody deletes the node's NodeClaim."""
        claim = next(owner.name for owner in node.metadata.owner_references if owner.kind == "NodeClaim")
        async with self._kube.delete(f"/apis/karpenter.sh/v1/nodeclaims/{claim}") as answer:
            answer.raise_for_status()

    async def delay(self, method: str, path: str, *, seconds: float, times: int) -> None:
        """Let the API server answer late."""
        fault = RequestFault(method=method, path=path, latency=seconds, times=times)
        order = FaultOrder(trouble=Trouble.FAIL_REQUESTS, request=fault)
        async with self._kube.post("/simulator/faults", data=order.model_dump_json()) as answer:
            answer.raise_for_status()

    async def machines(self) -> tuple[MachineReport, ...]:
        """Every machine that there is or was."""
        async with self._control.get("/machines") as answer:
            return tuple(MachineReport.model_validate(each) for each in await answer.json())

    async def machine(self, instance_id: str) -> MachineReport:
        """One machine."""
        return next(each for each in await self.machines() if each.instance_id == instance_id)

    async def inject(self, instance_id: str, fault: HostFault) -> None:
        """A fault comes, at once."""
        await self._order(f"/machines/{instance_id}/faults", fault.model_dump_json(exclude_defaults=True))

    async def kill_agent(self, instance_id: str) -> None:
        """SIGKILL for the node agent; its DaemonSet starts it again."""
        await self._order(f"/machines/{instance_id}/agent/kill")

    async def write_kernel_log(self, instance_id: str, line: str) -> None:
        """A message of the host's kernel."""
        await self._order(f"/machines/{instance_id}/kernel-log", line)

    async def throttle(self, calls: int, action: str) -> None:
        """Let EC2 refuse the next calls of one action."""
        await self._order("/cloud/throttle", Throttling(calls=calls, action=action).model_dump_json())

    async def _order(self, path: str, body: str = "") -> None:
        async with self._control.post(path, data=body) as answer:
            assert answer.status == 200, await answer.text()

    async def is_open(self, incident_id: str) -> bool:
        """Whether the incident runs, as the server itself knows, at once."""
        try:
            described = await self.client.get_workflow_handle(incident_id).describe()
        except RPCError as error:
            if error.status is RPCStatusCode.NOT_FOUND:
                return False
            raise
        return described.status is WorkflowExecutionStatus.RUNNING

    async def ready(self, nodes: int) -> Self:
        """Once so many nodes are up, each with its agent's first report."""

        async def all_report() -> bool:
            told = [names.ANNOTATION_FAULTS in node.metadata.annotations for node in await self.nodes()]
            return len(told) == nodes and all(told)

        await seen(f"{nodes} nodes report", all_report)
        return self


@asynccontextmanager
async def cluster(
    scenario: str, policy: str, folder: Path, agent_settings: Mapping[str, str] | None = None
) -> AsyncIterator[Cluster]:
    """A cluster of this scenario (YAML), run under this policy (YAML), once its nodes report."""
    scenario_file, policy_file = folder / "scenario.yaml", folder / "policy.yaml"
    scenario_file.write_text(scenario)
    policy_file.write_text(policy)
    patience = aiohttp.ClientTimeout(total=HTTP_SECONDS)
    async with (
        staged(str(scenario_file), folder, agent_settings=agent_settings) as stage,
        aiohttp.ClientSession(stage.simulator.kube, timeout=patience) as kube,
        aiohttp.ClientSession(stage.simulator.control, timeout=patience) as control,
    ):
        client = await Client.connect(stage.temporal.server, plugins=[temporal_plugin()])
        standing = Cluster(stage, client, kube, control, policy_file)
        async with standing.controller:
            yield await standing.ready(len(parse(scenario, "scenario.yaml").node_types))


def incident_id(instance_id: str) -> str:
    """The incident of one machine of a stage."""
    return names.incident_id(CLUSTER, instance_id)
