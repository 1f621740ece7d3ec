"""The budget on a real server: what holders live through, and what survives them and the workers."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest
import pytest_asyncio
from temporalio import activity
from temporalio.api.sdk.v1 import WorkflowMetadata
from temporalio.client import Client, WorkflowExecutionStatus, WorkflowHandle
from temporalio.exceptions import ApplicationError
from temporalio.testing import WorkflowEnvironment
from temporalio.worker import Worker

from activities.incidents import IncidentActivities
from activities.nodes import PoolNode, PoolQuery, PoolSnapshot
from sickbay.budget import Ledger
from sickbay.faults import Rung
from sickbay.nodes import NodeRef
from sickbay.permits import PermitRenewal, PermitRequest
from sickbay.policy.model import Limit
from tests.temporal_servers import start_dev_server
from tests.workflows.permit_holder import Heard, HolderInput, PermitHolder
from workflows.disruption_budget import BudgetInput, DisruptionBudget

Budget = WorkflowHandle[DisruptionBudget, None]
Holder = WorkflowHandle[PermitHolder, None]

CROWD = [chr(ord("a") + number) for number in range(12)]
LONG_AGO = datetime(2026, 1, 1, tzinfo=UTC)


class FakePools:
    """Pools as a test wants them seen; a node that nobody names is up."""

    def __init__(self, names: str) -> None:
        self.names = names
        self.out: set[str] = set()
        self.fails = False

    @activity.defn(name="observe_pool")
    async def observe_pool(self, query: PoolQuery) -> PoolSnapshot:
        if self.fails:
            raise ApplicationError("the API server is away", non_retryable=True)
        nodes = (
            PoolNode(
                node=node(name, query.pool),
                created_at=LONG_AGO,
                available=name not in self.out,
                why_not="NotReady" if name in self.out else "",
            )
            for name in self.names
        )
        return PoolSnapshot(observed_at=datetime.now(UTC), nodes=tuple(nodes))


def node(name: str, pool: str = "p5") -> NodeRef:
    return NodeRef(cluster="lab", name=name, uid=f"uid-{name}", pool=pool)


class Bench:
    """One budget, its worker and its holders, on a queue of their own."""

    def __init__(self, client: Client, pools: FakePools) -> None:
        self.client = client
        self.pools = pools
        self.queue = f"budget-{uuid4()}"
        self.budget_id = self.queue

    def worker(self) -> AbstractAsyncContextManager[object]:
        """A worker that keeps no workflow in memory: each task is a replay of all before it."""
        return Worker(
            self.client,
            task_queue=self.queue,
            workflows=[DisruptionBudget, PermitHolder],
            activities=[self.pools.observe_pool, IncidentActivities(self.client).check_holders],
            max_cached_workflows=0,
        )

    async def start(self, start: BudgetInput | None = None) -> Budget:
        quick = BudgetInput(
            cluster="lab", look_every=timedelta(milliseconds=200), sweep_every=timedelta(milliseconds=200)
        )
        return await self.client.start_workflow(
            DisruptionBudget.run, start or quick, id=self.budget_id, task_queue=self.queue
        )

    async def hold(self, name: str, count: int = 1) -> Holder:
        """Start a holder that asks for a permit for one node."""
        holder = f"incident-{name}-{uuid4()}"
        start = HolderInput(budget_id=self.budget_id, request=self.asks(name, holder, count))
        return await self.client.start_workflow(PermitHolder.run, start, id=holder, task_queue=self.queue)

    def asks(self, name: str, holder: str, count: int = 1) -> PermitRequest:
        return PermitRequest(
            holder=holder,
            node=node(name),
            rung=Rung.REBOOT,
            limit=Limit(count=count, percent=100),
            lease=timedelta(hours=1),
            requested_at=LONG_AGO,
        )


@pytest_asyncio.fixture(loop_scope="function")
async def short_runs() -> AsyncIterator[WorkflowEnvironment]:
    """A server that suggests to continue as new after a few events."""
    async with await start_dev_server("--dynamic-config-value", "limit.historyCount.suggestContinueAsNew=60") as server:
        yield server


@pytest.fixture
def bench(dev_server: WorkflowEnvironment) -> Bench:
    return Bench(dev_server.client, FakePools("abcd"))


async def ledger_when(budget: Budget, holds: Callable[[Ledger], bool]) -> Ledger:
    """The ledger as soon as it is as a test wants it."""
    for _ in range(400):
        ledger = await budget.query(DisruptionBudget.ledger)
        if holds(ledger):
            return ledger
        await asyncio.sleep(0.05)
    pytest.fail(f"the ledger stayed {ledger}")


def held_by(*holders: Holder) -> Callable[[Ledger], bool]:
    return lambda ledger: [held.permit.holder for held in ledger.held] == [holder.id for holder in holders]


async def heard_when(holder: Holder, hears: Callable[[Heard], bool]) -> Heard:
    """What a holder has heard, as soon as it is what a test wants."""
    for _ in range(400):
        heard = await holder.query(PermitHolder.heard)
        if hears(heard):
            return heard
        await asyncio.sleep(0.05)
    pytest.fail(f"{holder.id} heard only {heard}")


async def test_the_second_waits_with_a_reason_until_the_first_is_done(bench: Bench) -> None:
    bench.pools.out = {"a"}
    async with bench.worker():
        budget = await bench.start()
        first = await bench.hold("a", count=1)
        await ledger_when(budget, held_by(first))
        bench.pools.out = {"a", "b"}
        second = await bench.hold("b", count=1)
        told = await heard_when(second, lambda heard: bool(heard.waits))
        assert told.waits[0].reason == f"1 of 4 nodes of pool p5 may be out, and 1 are: a (reboot by {first.id})"
        bench.pools.out = {"b"}
        await first.signal(PermitHolder.finish)
        await ledger_when(budget, held_by(second))
        await heard_when(second, lambda heard: [permit.epoch for permit in heard.permits] == [2])


async def test_a_pool_is_looked_at_again_while_somebody_waits_for_it(bench: Bench) -> None:
    bench.pools.out = {"a", "c"}
    async with bench.worker():
        await bench.start()
        holder = await bench.hold("a", count=1)
        await heard_when(holder, lambda heard: bool(heard.waits))
        bench.pools.out = {"a"}
        await heard_when(holder, lambda heard: bool(heard.permits))


async def test_a_pool_that_cannot_be_seen_grants_nothing_and_says_so(bench: Bench) -> None:
    bench.pools.fails = True
    async with bench.worker():
        await bench.start()
        holder = await bench.hold("a")
        heard = await heard_when(holder, lambda heard: bool(heard.waits))
        assert heard.waits[0].reason.startswith("pool p5 cannot be observed")
        bench.pools.fails = False
        await heard_when(holder, lambda heard: bool(heard.permits))


async def test_a_terminated_holder_loses_its_permit_to_the_next(bench: Bench) -> None:
    async with bench.worker():
        budget = await bench.start()
        killed = await bench.hold("a", count=1)
        await ledger_when(budget, held_by(killed))
        survivor = await bench.hold("b", count=1)
        await killed.terminate()
        await ledger_when(budget, held_by(survivor))


async def test_a_permit_that_reaches_nobody_is_taken_back_at_once(bench: Bench) -> None:
    patient = BudgetInput(cluster="lab", sweep_every=timedelta(days=1))
    async with bench.worker():
        budget = await bench.start(patient)
        await budget.signal(DisruptionBudget.request_permit, bench.asks("a", "incident-that-never-was"))
        holder = await bench.hold("b", count=1)
        ledger = await ledger_when(budget, held_by(holder))
        assert ledger.epoch == 2


async def test_a_ceiling_of_none_is_refused(bench: Bench) -> None:
    async with bench.worker():
        budget = await bench.start()
        holder = await bench.hold("a", count=0)
        heard = await heard_when(holder, lambda heard: bool(heard.refusals))
        assert "budget.max_unavailable is 0" in heard.refusals[0].reason
        assert (await budget.query(DisruptionBudget.ledger)).holders == ()


async def test_a_renewal_extends_the_lease_and_one_of_an_older_epoch_is_refused(bench: Bench) -> None:
    async with bench.worker():
        budget = await bench.start()
        holder = await bench.hold("a")
        before = (await ledger_when(budget, held_by(holder))).held[0].permit
        await budget.signal(DisruptionBudget.renew_permit, PermitRenewal(holder=holder.id, epoch=before.epoch))
        await ledger_when(budget, lambda ledger: ledger.held[0].permit.expires_at > before.expires_at)
        await budget.signal(DisruptionBudget.renew_permit, PermitRenewal(holder=holder.id, epoch=before.epoch - 1))
        await heard_when(holder, lambda heard: bool(heard.refusals))


async def test_nothing_is_lost_while_no_worker_runs(bench: Bench) -> None:
    async with bench.worker():
        budget = await bench.start()
        first = await bench.hold("a", count=1)
        await ledger_when(budget, held_by(first))
    second = await bench.hold("b", count=1)
    await first.signal(PermitHolder.finish)
    async with bench.worker():
        await ledger_when(budget, held_by(second))


async def test_the_account_for_people_is_in_the_current_details(bench: Bench) -> None:
    async with bench.worker():
        budget = await bench.start()
        holder = await bench.hold("a")
        await ledger_when(budget, held_by(holder))
        metadata = await budget.query("__temporal_workflow_metadata", result_type=WorkflowMetadata)
        assert f"| a | p5 | reboot | {holder.id} |" in metadata.current_details


async def test_a_crowd_is_served_whole_and_within_the_ceiling_over_many_runs(short_runs: WorkflowEnvironment) -> None:
    bench = Bench(short_runs.client, FakePools("".join(CROWD)))
    async with bench.worker():
        budget = await bench.start()
        holders = await asyncio.gather(*(bench.hold(name, count=3) for name in CROWD))
        left = list(holders)
        while left:
            ledger = await ledger_when(budget, lambda ledger: bool(ledger.held))
            assert len(ledger.held) <= 3
            done = next(holder for holder in left if holder.id == ledger.held[0].permit.holder)
            left.remove(done)
            await done.signal(PermitHolder.finish)
            await done.result()
            await ledger_when(budget, lambda ledger, gone=done.id: gone not in ledger.holders)  # type: ignore[misc]
        assert (await budget.query(DisruptionBudget.ledger)).epoch == len(CROWD)
        first_run = await short_runs.client.get_workflow_handle(
            budget.id, run_id=budget.first_execution_run_id
        ).describe()
        assert first_run.status == WorkflowExecutionStatus.CONTINUED_AS_NEW
