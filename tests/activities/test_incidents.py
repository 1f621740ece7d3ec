"""What Temporal itself tells, asked of a real server."""

import asyncio
from datetime import UTC, datetime, timedelta
from unittest.mock import AsyncMock, Mock
from uuid import uuid4

import pytest
from temporalio import workflow
from temporalio.client import Client, WorkflowContinuedAsNewError
from temporalio.common import SearchAttributePair, TypedSearchAttributes
from temporalio.service import RPCError, RPCStatusCode
from temporalio.testing import ActivityEnvironment, WorkflowEnvironment
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from activities.incidents import HistoryQuery, HoldersQuery, IncidentActivities, PastIncidents
from sickbay import search_attributes
from sickbay.faults import Rung
from sickbay.incident import Outcome


@workflow.defn
class Ended:
    """Closes at once."""

    @workflow.run
    async def run(self) -> None:
        pass


@workflow.defn
class Open:
    """Stays open until it is told to go on as a new run."""

    def __init__(self) -> None:
        self._renew = False

    @workflow.run
    async def run(self) -> None:
        await workflow.wait_condition(lambda: self._renew)
        workflow.continue_as_new()

    @workflow.signal
    def renew(self) -> None:
        """Continue as new."""
        self._renew = True


def attributes(machine: str, outcome: str | None, rung: str, cluster: str = "lab") -> TypedSearchAttributes:
    pairs = [
        SearchAttributePair(search_attributes.MACHINE, machine),
        SearchAttributePair(search_attributes.CLUSTER, cluster),
        SearchAttributePair(search_attributes.RUNG, rung),
    ]
    if outcome is not None:
        pairs.append(SearchAttributePair(search_attributes.OUTCOME, outcome))
    return TypedSearchAttributes(pairs)


async def close_one(client: Client, queue: str, found_by: TypedSearchAttributes) -> None:
    await client.execute_workflow(Ended.run, id=str(uuid4()), task_queue=queue, search_attributes=found_by)


async def read(client: Client, machine: str, window: timedelta = timedelta(days=7)) -> PastIncidents:
    query = HistoryQuery(cluster="lab", machine=machine, window=window)
    return await ActivityEnvironment().run(IncidentActivities(client).past_incidents, query)


async def read_until(client: Client, machine: str, count: int) -> PastIncidents:
    """Visibility lags behind a close: read until it has caught up."""
    deadline = asyncio.get_running_loop().time() + 20
    while len((past := await read(client, machine)).incidents) < count:
        assert asyncio.get_running_loop().time() < deadline, f"visibility shows {past}"
        await asyncio.sleep(0.05)
    return past


async def test_past_incidents_are_those_of_this_machine_newest_first(dev_server: WorkflowEnvironment) -> None:
    client, queue, machine = dev_server.client, str(uuid4()), f"i-{uuid4()}"
    runner = UnsandboxedWorkflowRunner()
    async with Worker(client, task_queue=queue, workflows=[Ended], workflow_runner=runner):
        await close_one(client, queue, attributes(machine, "returned", "reset_gpu"))
        await close_one(client, queue, attributes(f"{machine}x", "returned", "reset_gpu"))
        await close_one(client, queue, attributes(machine, "returned", "reset_gpu", cluster="other"))
        await close_one(client, queue, attributes(machine, None, "reset_gpu"))
        await close_one(client, queue, attributes(machine, "a word of tomorrow", "reboot"))
        await close_one(client, queue, attributes(machine, "handed_over", "reboot"))
    past = await read_until(client, machine, 2)
    assert [(one.outcome, one.rung) for one in past.incidents] == [
        (Outcome.HANDED_OVER, Rung.REBOOT),
        (Outcome.RETURNED, Rung.RESET_GPU),
    ]
    assert datetime.now(UTC) - past.incidents[0].closed_at < timedelta(minutes=1)
    assert (await read(client, machine, window=timedelta(0))).incidents == ()


async def test_a_machine_whose_name_holds_a_quote_is_asked_for_and_breaks_nothing(
    dev_server: WorkflowEnvironment,
) -> None:
    client, queue, machine = dev_server.client, str(uuid4()), f"it's {uuid4()}' OR '1'='1"
    async with Worker(client, task_queue=queue, workflows=[Ended], workflow_runner=UnsandboxedWorkflowRunner()):
        await close_one(client, queue, attributes(machine, "replaced", "replace"))
    assert len((await read_until(client, machine, 1)).incidents) == 1


async def test_holders_that_ended_or_never_were_are_gone_and_a_continued_one_is_not(
    dev_server: WorkflowEnvironment,
) -> None:
    client, queue = dev_server.client, str(uuid4())
    ended, terminated, never, running, continued = (f"{word}-{uuid4()}" for word in ("e", "t", "n", "r", "c"))
    async with Worker(client, task_queue=queue, workflows=[Ended, Open], workflow_runner=UnsandboxedWorkflowRunner()):
        await client.execute_workflow(Ended.run, id=ended, task_queue=queue)
        await (await client.start_workflow(Open.run, id=terminated, task_queue=queue)).terminate()
        still = await client.start_workflow(Open.run, id=running, task_queue=queue)
        renewed = await client.start_workflow(Open.run, id=continued, task_queue=queue)
        await renewed.signal(Open.renew)
        with pytest.raises(WorkflowContinuedAsNewError):
            await renewed.result(follow_runs=False)
        query = HoldersQuery(holders=(ended, terminated, never, running, continued))
        gone = await ActivityEnvironment().run(IncidentActivities(client).check_holders, query)
        assert gone.gone == (ended, terminated, never)
        await still.terminate()
        await client.get_workflow_handle(continued).terminate()


async def test_a_server_that_cannot_say_condemns_no_holder() -> None:
    client = Mock(spec=Client)
    unavailable = RPCError("try later", RPCStatusCode.UNAVAILABLE, b"")
    client.get_workflow_handle.return_value.describe = AsyncMock(side_effect=unavailable)
    with pytest.raises(RPCError, match="try later"):
        await ActivityEnvironment().run(IncidentActivities(client).check_holders, HoldersQuery(holders=("one",)))
