"""Runs one incident on a real Temporal server against a fake world, with a budget that answers as the test says."""

import asyncio
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from temporalio.client import WorkflowHandle, WorkflowUpdateFailedError
from temporalio.common import SearchAttributePair, TypedSearchAttributes
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError
from temporalio.testing import WorkflowEnvironment
from temporalio.worker import Worker

from sickbay import search_attributes
from sickbay.faults import Fault
from sickbay.incident import (
    CarriedState,
    Command,
    CommandKind,
    CommandReply,
    FaultReport,
    FaultsCleared,
    HandoverReason,
    IncidentInput,
    IncidentResult,
    IncidentView,
    Outcome,
    Stage,
)
from sickbay.names import budget_id, node_queue
from sickbay.nodes import NodeRef
from sickbay.permits import Permit, PermitRefusal
from sickbay.policy.model import IncidentPolicy
from tests.workflows.fake_budget import FakeBudget
from tests.workflows.fake_world import SUCCESSOR, FakeWorld
from workflows.node_incident import NodeIncident

HEARTBEAT_EVERY = timedelta(milliseconds=100)
"""By which a cancellation reaches an activity; by default it takes most of the heartbeat's timeout."""


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
            carried=self._permit_in_hand(identity, faults) if self.permit_in_hand else None,
            **values,
        )
        self.handle = await self.environment.client.start_workflow(
            NodeIncident.run,
            start,
            id=identity,
            task_queue=self.queue,
            search_attributes=TypedSearchAttributes(
                [
                    SearchAttributePair(search_attributes.NODE, node.name),
                    SearchAttributePair(search_attributes.MACHINE, node.machine),
                ]
            ),
        )

    def _permit_in_hand(self, identity: str, faults: tuple[Fault, ...]) -> CarriedState:
        """The state of an incident that has its permit before it begins."""
        return CarriedState(
            stage=Stage.OPENED,
            faults=faults or (self.world.fault,),
            permit=_permit(identity),
            permit_requested=True,
        )

    async def skip(self, duration: timedelta) -> None:
        """Let its clock run ahead; for incidents that were started with time skipping disabled."""
        await self.environment.fast_forward(self.handle, duration)

    async def result(self) -> IncidentResult:
        """Its end, which must come."""
        return await asyncio.wait_for(self.handle.result(), 60)

    async def handed_over(self) -> HandoverReason | None:
        """Run until a person is asked, and to the end that the last deadline brings; why, once the marks are gone."""
        await self.start()
        result = await self.result()
        assert result.outcome is Outcome.HANDED_OVER
        assert leaves_nothing(self.world)
        return result.handover

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

    async def until_act(self, name: str, count: int = 1) -> None:
        """Wait until an activity has begun, for the `count`th time."""
        async with asyncio.timeout(60):
            while True:
                if self.world.acts[name] >= count:
                    return
                await asyncio.sleep(0.02)

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

    async def report(self, *faults: Fault) -> None:
        """Faults by a detector."""
        await self.handle.signal(NodeIncident.report_faults, FaultReport(faults=faults, observed_at=datetime.now(UTC)))

    async def clear(self, *codes: str) -> None:
        """Faults that no detector sees any more; all of them if none is named."""
        await self.handle.signal(NodeIncident.clear_faults, FaultsCleared(codes=codes, observed_at=datetime.now(UTC)))

    async def grant(self) -> None:
        """A permit, at last."""
        await self.handle.signal("permit_granted", _permit(self.handle.id))

    async def take_permit_back(self) -> None:
        """The budget's word that the permit is no longer held."""
        refusal = PermitRefusal(holder=self.handle.id, reason="no longer held")
        await self.handle.signal("permit_refused", refusal)

    async def permit_holders(self) -> list[str]:
        budget = self.environment.client.get_workflow_handle(budget_id(self.world.node.cluster))
        held: list[str] = await budget.query(FakeBudget.holders)
        return held

    async def permit_renewals(self) -> int:
        budget = self.environment.client.get_workflow_handle(budget_id(self.world.node.cluster))
        count: int = await budget.query(FakeBudget.renewals)
        return count


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
    signal), grant, wait, refuse, silent, or none.
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
            Worker(
                client,
                task_queue=queue,
                workflows=workflows,
                activities=fake.cluster,
                max_cached_workflows=50,
                max_heartbeat_throttle_interval=HEARTBEAT_EVERY,
            )
        )
        if not fake.host_silent:
            await stack.enter_async_context(
                Worker(
                    client,
                    task_queue=node_queue(node.name),
                    activities=fake.host,
                    max_heartbeat_throttle_interval=HEARTBEAT_EVERY,
                )
            )
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
                with suppress(RPCError):  # a test may have ended it before
                    await keeper.terminate()


def leaves_nothing(world: FakeWorld) -> bool:
    """No mark of an incident is on the node any more."""
    return world.mark is None and not world.protected


def quick_policy(**values: Any) -> IncidentPolicy:
    """The default policy with few looks over a long wait, and with the one wait that no server skips: for a host."""
    patience = {
        "look_every": timedelta(days=1),
        "handover_deadline": timedelta(days=3),
        "foreign_lock_deadline": timedelta(minutes=2),
    }
    return IncidentPolicy(host_pickup=timedelta(seconds=1), **{**patience, **values})
