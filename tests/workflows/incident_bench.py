"""Runs one incident on a real Temporal server against a fake world, with a budget that answers as the test says."""

import asyncio
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from temporalio import workflow
from temporalio.client import WorkflowHandle, WorkflowUpdateFailedError
from temporalio.common import SearchAttributePair, TypedSearchAttributes
from temporalio.exceptions import ApplicationError
from temporalio.testing import WorkflowEnvironment
from temporalio.worker import Worker

from sickbay import search_attributes
from sickbay.faults import Fault
from sickbay.incident import Command, CommandKind, CommandReply, IncidentInput, IncidentResult, IncidentView, Stage
from sickbay.names import budget_id, node_queue
from sickbay.nodes import NodeRef
from sickbay.permits import Permit, PermitRefusal, PermitRelease, PermitRenewal, PermitRequest
from sickbay.policy.model import IncidentPolicy
from tests.workflows.fake_world import SUCCESSOR, FakeWorld
from workflows.node_incident import NodeIncident


@workflow.defn(name="FakeBudget")
class FakeBudget:
    """Grants or refuses every request at once, or never answers."""

    def __init__(self) -> None:
        self._inbox: list[PermitRequest] = []
        self._released = 0
        self._holders: list[str] = []

    @workflow.run
    async def run(self, answer: str) -> None:
        while True:
            await workflow.wait_condition(lambda: bool(self._inbox))
            request = self._inbox.pop(0)
            holder = workflow.get_external_workflow_handle(request.holder)
            if answer == "grant":
                self._holders.append(request.holder)
                now = workflow.now()
                permit = Permit(holder=request.holder, epoch=1, granted_at=now, expires_at=now + request.lease)
                await holder.signal("permit_granted", permit)
            elif answer == "refuse":
                await holder.signal("permit_refused", PermitRefusal(holder=request.holder, reason="the ceiling is 0"))

    @workflow.signal
    def request_permit(self, request: PermitRequest) -> None:
        self._inbox.append(request)

    @workflow.signal
    def renew_permit(self, renewal: PermitRenewal) -> None:
        pass

    @workflow.signal
    def release_permit(self, release: PermitRelease) -> None:
        self._holders = [holder for holder in self._holders if holder != release.holder]

    @workflow.query
    def holders(self) -> list[str]:
        return self._holders


@dataclass
class Bench:
    """One incident under test."""

    environment: WorkflowEnvironment
    world: FakeWorld
    queue: str
    policy: IncidentPolicy
    permit_in_hand: bool
    handle: WorkflowHandle[Any, IncidentResult] = field(init=False)

    async def start(self, *faults: Fault, **values: Any) -> None:
        """Open the incident with these faults (the world's own, if none is given)."""
        node = self.world.node
        identity = f"incident-{node.cluster}-{node.machine}"
        start = IncidentInput(
            node=node,
            policy=self.policy,
            catalogue_version="test",
            opened_at=datetime.now(UTC),
            faults=faults or (self.world.fault,),
            **values,
        )
        self.handle = await self.environment.client.start_workflow(
            NodeIncident.run,
            start,
            id=identity,
            task_queue=self.queue,
            start_signal="permit_granted" if self.permit_in_hand else None,
            start_signal_args=[_permit(identity)] if self.permit_in_hand else [],
            search_attributes=TypedSearchAttributes(
                [
                    SearchAttributePair(search_attributes.NODE, node.name),
                    SearchAttributePair(search_attributes.MACHINE, node.machine),
                ]
            ),
        )

    async def skip(self, duration: timedelta) -> None:
        """Let its clock run ahead; for incidents that were started with time skipping disabled."""
        await self.environment.fast_forward(self.handle, duration)

    async def result(self) -> IncidentResult:
        """Its end, which must come."""
        return await asyncio.wait_for(self.handle.result(), 60)

    async def view(self) -> IncidentView:
        return await self.handle.query(NodeIncident.view)

    async def until(self, reached: Stage | Callable[[IncidentView], bool]) -> IncidentView:
        """Wait until the incident shows this."""
        async with asyncio.timeout(60):
            while True:
                view = await self.view()
                if view.stage is reached if isinstance(reached, Stage) else reached(view):
                    return view
                await asyncio.sleep(0.05)

    async def say(self, kind: CommandKind, **values: Any) -> CommandReply:
        """An order by update."""
        return await self.handle.execute_update(NodeIncident.command, _command(kind, **values))

    async def refused(self, kind: CommandKind, **values: Any) -> str:
        """Why an order by update is refused."""
        with pytest.raises(WorkflowUpdateFailedError) as caught:
            await self.say(kind, **values)
        cause = caught.value.cause
        assert isinstance(cause, ApplicationError)
        assert cause.type == "CommandRefused"
        return cause.message

    async def signal(self, kind: CommandKind, **values: Any) -> None:
        """The same order from a bot that can only signal."""
        await self.handle.signal(NodeIncident.command_signal, _command(kind, **values))

    async def grant(self) -> None:
        """A permit, at last."""
        await self.handle.signal("permit_granted", _permit(self.handle.id))

    async def permit_holders(self) -> list[str]:
        budget = self.environment.client.get_workflow_handle(budget_id(self.world.node.cluster))
        held: list[str] = await budget.query(FakeBudget.holders)
        return held


def _command(kind: CommandKind, **values: Any) -> Command:
    return Command(kind=kind, **{"by": "ada", "reason": "looked at it", **values})


def _permit(holder: str) -> Permit:
    now = datetime.now(UTC)
    return Permit(holder=holder, epoch=1, granted_at=now, expires_at=now + timedelta(days=3650))


Bench.__test__ = False  # type: ignore[attr-defined]
BenchFactory = Callable[..., Awaitable[Bench]]


@asynccontextmanager
async def incident_bench(
    environment: WorkflowEnvironment, policy: IncidentPolicy | None = None, *, budget: str = "in_hand", **world: Any
) -> AsyncIterator[Bench]:
    """A bench with its own cluster, queue and budget.

    `budget` is in_hand (the permit is there from the start: a clock that skips does not wait for another workflow's
    signal), grant, refuse, silent, or none.
    """
    unique = uuid.uuid4().hex[:8]
    node = NodeRef(
        cluster=f"c{unique}", name=f"node-{unique}", uid="uid-1", provider_id=f"aws:///a/i-{unique}", pool="p5"
    )
    fake = FakeWorld(node=node, **world)
    queue = f"incidents-{unique}"
    client = environment.client
    async with AsyncExitStack() as stack:
        workflows = [NodeIncident, FakeBudget]
        await stack.enter_async_context(
            Worker(client, task_queue=queue, workflows=workflows, activities=fake.cluster, max_cached_workflows=50)
        )
        if not fake.host_silent:
            await stack.enter_async_context(Worker(client, task_queue=node_queue(node.name), activities=fake.host))
        await stack.enter_async_context(
            Worker(client, task_queue=node_queue(SUCCESSOR.name), activities=[fake.probe_host])
        )
        keeper = None
        if budget != "none":
            keeper = await client.start_workflow(FakeBudget.run, budget, id=budget_id(node.cluster), task_queue=queue)
        bench = Bench(environment, fake, queue, policy or quick_policy(), budget == "in_hand")
        try:
            yield bench
        finally:
            if keeper is not None:
                await keeper.terminate()


def quick_policy(**values: Any) -> IncidentPolicy:
    """The default policy with few looks over a long wait, and with the one wait that no server skips: for a host."""
    patience = {
        "look_every": timedelta(days=1),
        "handover_deadline": timedelta(days=3),
        "foreign_lock_deadline": timedelta(minutes=2),
    }
    return IncidentPolicy(host_pickup=timedelta(seconds=1), **{**patience, **values})
