"""The process on each GPU node: the agent, its publisher, the ranks' collector, and the worker of host activities.

Started by `sickbay node`, one per node. They need each other as little as they can: findings are published while
Temporal is away, repairs are served while the API server is away, and the kernel log is read while the driver hangs.
It ends on SIGTERM or SIGINT; a reset under way is finished or, if we are killed, cleaned up at the next start.
"""

import asyncio
import signal
from contextlib import AsyncExitStack
from datetime import timedelta
from typing import Final

import structlog
from temporalio.client import Client
from temporalio.service import RPCError
from temporalio.worker import Worker

from activities.host import HostActivities
from activities.host_jobs import HostJobActivities
from health.agent import NodeAgent
from health.api_server import ApiServer, address_in_pod
from health.children import end_children
from health.nvml_events import NvmlEvents
from health.publisher import FIELD_MANAGER, Publisher
from health.rank_collector import RankCollector
from health.settings import NodeSettings
from sickbay.names import node_queue
from workers.node_metrics import node_registry
from workers.serving import Health, serve
from workers.temporal_link import connect_in_the_end

log: Final = structlog.get_logger(__name__)

GRACE: Final = timedelta(seconds=20)
"""For running activities at the end; below the usual 30 s of a pod."""
HEARTBEAT_THROTTLE: Final = timedelta(seconds=1)
"""So that a cancellation arrives within a second (facts: Temporal, 0.6)."""
_RECONNECT_SECONDS: Final = 10.0
_LOOK_SECONDS: Final = 1.0

RANKS_PAGE: Final = "/ranks"
PART_AGENT: Final = "agent"
PART_KUBERNETES: Final = "kubernetes"
PART_TEMPORAL: Final = "temporal"


async def run_node(settings: NodeSettings) -> int:
    """Run until told to stop; the exit code.

    Raises OSError if the boot id cannot be read, and `health.api_server.NoAccessError` if there is no way to the
    cluster: without them nothing that we find could be told.
    """
    agent = NodeAgent(settings, events=NvmlEvents(settings.boot_id(), settings.nvml_library))
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    health = Health()
    health.expect(PART_AGENT, PART_KUBERNETES, PART_TEMPORAL)
    async with AsyncExitStack() as stack:
        server = ApiServer(settings.api_server or address_in_pod(), FIELD_MANAGER)
        await stack.enter_async_context(server)
        publisher = Publisher(server, settings.node_name, agent, settings.heartbeat_seconds)
        registry = node_registry(agent, publisher)
        window = timedelta(seconds=settings.rank_seconds)
        ranks = RankCollector(settings.rank_dir, window, settings.node_name, agent.boot_id)
        # Threads that wait for a child would hold up the end of the process.
        stack.callback(end_children)
        http = ""
        try:
            pages = {RANKS_PAGE: ranks.page}
            probes = serve(health, settings.serve_host, settings.serve_port, registry, pages)
            host, port = await stack.enter_async_context(probes)
            http, publisher.rank_url = f"{host}:{port}", _rank_url(settings, port)
        except OSError as error:
            # Finding faults does not depend on it; where a liveness probe is set, the kubelet will start us anew.
            log.warning("no health endpoint; set SICKBAY_SERVE_PORT", node=settings.node_name, error=str(error))
        log.info("node agent started", node=settings.node_name, boot_id=agent.boot_id, http=http)
        await _run_parts(settings, agent, publisher, ranks, health, stop)
    log.info("node agent ended", node=settings.node_name)
    return 0


def _rank_url(settings: NodeSettings, port: int) -> str:
    if settings.rank_url or not settings.host_ip:
        return settings.rank_url
    host = f"[{settings.host_ip}]" if ":" in settings.host_ip else settings.host_ip
    return f"http://{host}:{port}{RANKS_PAGE}"


async def _run_parts(
    settings: NodeSettings,
    agent: NodeAgent,
    publisher: Publisher,
    ranks: RankCollector,
    health: Health,
    stop: asyncio.Event,
) -> None:
    async with asyncio.TaskGroup() as parts:
        tasks = [
            parts.create_task(agent.run(), name=PART_AGENT),
            parts.create_task(publisher.run(), name=PART_KUBERNETES),
            parts.create_task(ranks.run(), name="ranks"),
            parts.create_task(_serve_temporal(settings, agent, health), name=PART_TEMPORAL),
            parts.create_task(_watch_health(agent, publisher, health), name="health"),
        ]
        await stop.wait()
        for task in tasks:
            task.cancel()


async def _serve_temporal(settings: NodeSettings, agent: NodeAgent, health: Health) -> None:
    """Serve the host activities, however long Temporal is away."""
    activities = HostActivities(settings, agent)
    for problem in await activities.restore_clients():
        log.error("GPU client left stopped by an earlier agent", node=settings.node_name, error=problem)
    while True:
        client = await connect_in_the_end(f"node/{settings.node_name}@{agent.boot_id}")
        try:
            async with host_worker(client, settings.node_name, activities, HostJobActivities(settings)):
                health.ready(PART_TEMPORAL)
                log.info("host activities served", node=settings.node_name, queue=node_queue(settings.node_name))
                await asyncio.Event().wait()
        except (RPCError, RuntimeError) as error:
            # A worker ends for good e.g. when its namespace is gone; what is published must not end with it.
            health.not_ready(PART_TEMPORAL, str(error))
            log.warning("host activities not served", node=settings.node_name, error=str(error))
            await asyncio.sleep(_RECONNECT_SECONDS)


def host_worker(client: Client, node_name: str, activities: HostActivities, jobs: HostJobActivities) -> Worker:
    """The worker of one node's queue: activities alone, never versioned, one poller (facts: Temporal, 1.7)."""
    return Worker(
        client,
        task_queue=node_queue(node_name),
        activities=[
            activities.probe_host,
            activities.reset_gpus,
            activities.reboot_host,
            jobs.ask_checkpoint,
            jobs.withdraw_request,
        ],
        # A burn-in lasts minutes; a job on the node must not wait for it to be asked for a checkpoint.
        max_concurrent_activities=3,
        max_concurrent_activity_task_polls=1,
        max_heartbeat_throttle_interval=HEARTBEAT_THROTTLE,
        default_heartbeat_throttle_interval=HEARTBEAT_THROTTLE,
        graceful_shutdown_timeout=GRACE,
    )


async def _watch_health(agent: NodeAgent, publisher: Publisher, health: Health) -> None:
    """Tell the probes how agent and publisher stand; Temporal's part tells itself."""
    while True:
        if agent.passed:
            health.ready(PART_AGENT)
        if publisher.problem:
            health.not_ready(PART_KUBERNETES, publisher.problem)
        else:
            health.ready(PART_KUBERNETES)
        await asyncio.sleep(_LOOK_SECONDS)
