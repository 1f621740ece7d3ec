"""A worker for one budget, on pools as a test wants them seen; run as a process of its own, it can be killed.

`python -m tests.workflows.budget_worker ADDRESS TASK_QUEUE` serves a pool of nodes a to d that are all up.
"""

import asyncio
import sys
from datetime import UTC, datetime, timedelta

from temporalio import activity
from temporalio.client import Client
from temporalio.exceptions import ApplicationError
from temporalio.worker import Worker

from activities.incidents import IncidentActivities
from activities.nodes import PoolNode, PoolQuery, PoolSnapshot
from sickbay.nodes import NodeRef
from tests.workflows.permit_holder import PermitHolder
from workers.temporal_plugin import temporal_plugin
from workflows.disruption_budget import DisruptionBudget

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


def budget_worker(client: Client, queue: str, pools: FakePools) -> Worker:
    """A worker that keeps no workflow in memory: each task is a replay of all before it."""
    return Worker(
        client,
        task_queue=queue,
        workflows=[DisruptionBudget, PermitHolder],
        activities=[pools.observe_pool, IncidentActivities(client).check_holders],
        max_cached_workflows=0,
        sticky_queue_schedule_to_start_timeout=timedelta(seconds=1),
    )


async def serve(address: str, queue: str) -> None:
    """Work until killed."""
    client = await Client.connect(address, plugins=[temporal_plugin()])
    await budget_worker(client, queue, FakePools("abcd")).run()


if __name__ == "__main__":
    asyncio.run(serve(*sys.argv[1:]))
