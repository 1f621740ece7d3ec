"""The budget on a real server: what holders live through, and what survives them and the workers."""

import asyncio
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import timedelta
from pathlib import Path
from uuid import uuid4

import pytest
import pytest_asyncio
from temporalio.api.sdk.v1 import WorkflowMetadata
from temporalio.client import Client, WorkflowExecutionStatus, WorkflowHandle
from temporalio.testing import WorkflowEnvironment

from sickbay.budget import Ledger
from sickbay.faults import Rung
from sickbay.permits import PermitRenewal, PermitRequest
from sickbay.policy.model import Limit
from tests.temporal_servers import start_dev_server
from tests.workflows.budget_worker import LONG_AGO, FakePools, budget_worker, node
from tests.workflows.permit_holder import Heard, HolderInput, PermitHolder
from workflows.disruption_budget import BudgetInput, DisruptionBudget

Budget = WorkflowHandle[DisruptionBudget, None]
Holder = WorkflowHandle[PermitHolder, None]

CROWD = [chr(ord("a") + number) for number in range(12)]
ROOT = Path(__file__).parents[2]


class Bench:
    """One budget, its worker and its holders, on a queue of their own."""

    def __init__(self, client: Client, pools: FakePools) -> None:
        self.client = client
        self.pools = pools
        self.queue = f"budget-{uuid4()}"
        self.budget_id = self.queue

    def worker(self) -> AbstractAsyncContextManager[object]:
        return budget_worker(self.client, self.queue, self.pools)

    @asynccontextmanager
    async def killed_at_the_end(self) -> AsyncIterator[None]:
        """A worker in a process of its own, which gets no chance to say goodbye."""
        address = self.client.service_client.config.target_host
        arguments = ("-m", "tests.workflows.budget_worker", address, self.queue)
        worker = await asyncio.create_subprocess_exec(sys.executable, *arguments, cwd=ROOT)
        try:
            yield
        finally:
            worker.kill()
            await worker.wait()

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


async def test_workers_killed_with_and_without_a_grant_lose_no_permit_and_give_none_twice(bench: Bench) -> None:
    budget = await bench.start()
    first = await bench.hold("a", count=1)
    async with bench.killed_at_the_end():
        await ledger_when(budget, held_by(first))
    second = await bench.hold("b", count=1)
    async with bench.killed_at_the_end():
        await ledger_when(budget, lambda ledger: bool(ledger.waiting) and bool(ledger.waiting[0].reason))
    await first.signal(PermitHolder.finish)
    async with bench.killed_at_the_end():
        ledger = await ledger_when(budget, held_by(second))
        heard = await heard_when(second, lambda heard: bool(heard.permits))
    assert [permit.epoch for permit in heard.permits] == [ledger.epoch] == [2]


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
