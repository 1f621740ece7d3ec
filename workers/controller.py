"""The controller process: its wiring, from start to a graceful end.

Run by `sickbay controller`. Two halves that depend on each other only where they must: the watch, which contains nodes
whether Temporal answers or not, on the replica that holds the lease; and the workers of workflows and cluster
activities, on every replica. Nothing is decided here.
"""

import asyncio
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast

import structlog
from kubernetes.aio.client import ApiClient
from temporalio.client import Client
from temporalio.common import WorkflowIDConflictPolicy
from temporalio.runtime import PrometheusConfig, Runtime, TelemetryConfig
from temporalio.service import RPCError
from temporalio.worker import Worker

from activities import kube
from activities.autoscaling import AutoScalingActivities
from activities.aws_errors import autoscaling_client, ec2_client
from activities.checkpoints import CheckpointActivities
from activities.drain import DrainActivities
from activities.ec2 import Ec2Activities
from activities.gpu_client_pods import GpuClientPodActivities
from activities.incidents import IncidentActivities
from activities.job_evidence import JobEvidenceActivities
from activities.job_incidents import JobIncidentActivities
from activities.job_ranks import RankPages
from activities.job_watch import JobWatchActivities, Rhythm
from activities.jobs import JobActivities
from activities.karpenter import KarpenterActivities
from activities.nodes import NodeActivities
from sickbay import names
from sickbay.policy.file import Policy
from workers.aws_clients import LateClient
from workers.cloud_watch import CloudWatch
from workers.incident_desk import IncidentDesk
from workers.leadership import Leadership
from workers.search_attributes import register_search_attributes
from workers.serving import Health, serve
from workers.settings import ControllerSettings
from workers.temporal_link import connect_in_the_end
from workers.triage import Triage
from workflows.disruption_budget import BudgetInput, DisruptionBudget
from workflows.node_admission import NodeAdmission
from workflows.node_incident import NodeIncident
from workflows.node_suspicions import NodeSuspicions
from workflows.training_job import TrainingJob

if TYPE_CHECKING:
    from mypy_boto3_autoscaling import AutoScalingClient
    from mypy_boto3_ec2 import EC2Client

WORKFLOWS: Final = (NodeIncident, NodeAdmission, DisruptionBudget, NodeSuspicions, TrainingJob)
STICKY_TIMEOUT: Final = timedelta(seconds=5)
"""How long the incidents of a killed replica wait before another replica takes them (facts: Temporal, 0.7)."""
HEARTBEAT_THROTTLE: Final = timedelta(seconds=5)
"""The longest between two heartbeats that reach the server, hence until a drain hears that it is cancelled."""
START_RETRY: Final = timedelta(seconds=5)

log: Final = structlog.get_logger(__name__)


async def run_controller(settings: ControllerSettings, policy: Policy) -> None:
    """Run until SIGTERM or SIGINT, then end gracefully.

    Raises OSError if the HTTP port cannot be bound, `activities.kube.ClusterAccessError` if there is no way to the
    cluster, and whatever ends a worker for good: the process is then to be started anew.
    """
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    health = Health()
    health.expect("temporal")
    async with AsyncExitStack() as stack:
        api = await stack.enter_async_context(await kube.connect(settings.kubeconfig, settings.kube_context))
        host, port = await stack.enter_async_context(serve(health, settings.serve_host, settings.serve_port))
        log.info("controller started", cluster=settings.cluster, policy=policy.version, http=f"{host}:{port}")
        await _until(stop, _halves(settings, policy, api, health))
    log.info("controller ended", cluster=settings.cluster)


async def _halves(settings: ControllerSettings, policy: Policy, api: ApiClient, health: Health) -> None:
    desk = IncidentDesk(settings.cluster)
    triage = Triage(
        cluster=settings.cluster,
        api=api,
        desk=desk,
        policies=policy,
        rules=settings.triage_rules,
        reconcile_every=timedelta(seconds=settings.reconcile_seconds),
        label_selector=settings.node_selector,
        watch_rules=settings.watch_rules,
    )
    watch = partial(_watch, triage, _cloud_watch(settings, api, triage))
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(_lead(settings, api, watch), name="watch")
        tasks.create_task(_serve_temporal(settings, policy, api, desk, health), name="workers")


def _cloud_watch(settings: ControllerSettings, api: ApiClient, triage: Triage) -> CloudWatch | None:
    """EC2's words on the nodes that the triage watches; None where they are not wanted."""
    if not settings.cloud_seconds:
        return None
    client = LateClient(lambda: ec2_client(settings.aws_region, settings.aws_endpoint))
    return CloudWatch(
        api=api,
        client=cast("EC2Client", client),
        nodes=triage.watch.nodes,
        cluster=settings.cluster,
        every=timedelta(seconds=settings.cloud_seconds),
    )


async def _watch(triage: Triage, cloud: CloudWatch | None) -> None:
    """Everything that only the leading replica does."""
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(triage.run(), name="triage")
        if cloud is not None:
            tasks.create_task(cloud.run(), name="cloud")


async def _lead(settings: ControllerSettings, api: ApiClient, work: Callable[[], Awaitable[None]]) -> None:
    if not settings.leader_election:
        await work()
        return
    lease = Leadership(api, settings.lease_namespace, settings.lease_name, settings.identity)
    await lease.lead(work)


async def _serve_temporal(
    settings: ControllerSettings, policy: Policy, api: ApiClient, desk: IncidentDesk, health: Health
) -> None:
    """Connect however long it takes, prepare the namespace, and run the worker."""
    client = await connect_in_the_end(settings.identity, _runtime(settings))
    registration = await register_search_attributes(client)
    if registration.refusal:
        log.error("search attributes are missing", error=registration.refusal)
    await _start_budget(client, settings.cluster)
    async with running_worker(client, api, settings, policy):
        desk.connected(client, registration.missing)
        health.ready("temporal")
        await asyncio.Event().wait()


async def _start_budget(client: Client, cluster: str) -> None:
    """Start the cluster's disruption budget unless it runs; incidents cannot start it themselves."""
    while True:
        try:
            await client.start_workflow(
                DisruptionBudget.run,
                BudgetInput(cluster=cluster),
                id=names.budget_id(cluster),
                task_queue=names.CONTROLLER_QUEUE,
                id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
                static_summary=f"Who may disrupt a node of {cluster}",
                rpc_timeout=timedelta(seconds=10),
            )
            return
        except RPCError as error:
            log.warning("the disruption budget could not be started", error=error.message)
        await asyncio.sleep(START_RETRY.total_seconds())


@asynccontextmanager
async def running_worker(
    client: Client, api: ApiClient, settings: ControllerSettings, policy: Policy
) -> AsyncIterator[Worker]:
    """The worker of workflows and cluster activities, while the block runs."""
    # boto3 blocks, and a thread it blocks in must not be one that others wait for.
    with ThreadPoolExecutor(settings.max_activities, thread_name_prefix="activity") as threads:
        worker = Worker(
            client,
            task_queue=names.CONTROLLER_QUEUE,
            workflows=WORKFLOWS,
            activities=cluster_activities(client, api, settings, policy),
            activity_executor=threads,
            max_concurrent_activities=settings.max_activities,
            max_cached_workflows=settings.max_cached_workflows,
            sticky_queue_schedule_to_start_timeout=STICKY_TIMEOUT,
            max_heartbeat_throttle_interval=HEARTBEAT_THROTTLE,
            graceful_shutdown_timeout=timedelta(seconds=settings.shutdown_seconds),
        )
        async with worker:
            yield worker


def cluster_activities(client: Client, api: ApiClient, settings: ControllerSettings, policy: Policy) -> list[Any]:
    """Every activity that runs on the controller's queue, bound to its clients."""
    nodes, drain, karpenter = NodeActivities(api), DrainActivities(api), KarpenterActivities(api)
    region, endpoint = settings.aws_region, settings.aws_endpoint
    ec2 = Ec2Activities(cast("EC2Client", LateClient(lambda: ec2_client(region, endpoint))))
    groups = AutoScalingActivities(cast("AutoScalingClient", LateClient(lambda: autoscaling_client(region, endpoint))))
    incidents, clients = IncidentActivities(client), GpuClientPodActivities(api)
    return [
        nodes.observe_node,
        nodes.contain_node,
        nodes.release_node,
        nodes.admit_node,
        nodes.wait_for_boot,
        nodes.observe_pool,
        nodes.wait_for_successor,
        nodes.record_event,
        drain.drain_node,
        clients.pause_gpu_clients,
        clients.resume_gpu_clients,
        clients.restart_latched_pods,
        karpenter.protect_node,
        karpenter.unprotect_node,
        karpenter.delete_node_claim,
        ec2.observe_instance,
        ec2.reboot_instance,
        ec2.terminate_instance,
        groups.observe_membership,
        groups.replace_member,
        incidents.past_incidents,
        incidents.check_holders,
        incidents.open_incident,
        incidents.clear_incident,
        *job_activities(client, api, settings, policy),
    ]


def job_activities(client: Client, api: ApiClient, settings: ControllerSettings, policy: Policy) -> list[Any]:
    """Those that training jobs call, and that incidents call for them."""
    talk = JobIncidentActivities(client, api, policy.for_pool)
    jobs, checkpoints, evidence = JobActivities(api), CheckpointActivities(), JobEvidenceActivities(api)
    watch = JobWatchActivities(
        jobs,
        RankPages(api),
        checkpoints.look,
        rhythm=Rhythm(
            look=timedelta(seconds=settings.job_look_seconds),
            ranks=timedelta(seconds=settings.job_ranks_seconds),
            checkpoints=timedelta(seconds=settings.job_checkpoints_seconds),
        ),
        slow_at_least=timedelta(seconds=settings.job_slow_seconds),
    )
    return [
        jobs.create_attempt,
        jobs.observe_attempt,
        jobs.delete_attempt,
        jobs.wait_attempt_gone,
        jobs.look_at_capacity,
        jobs.post_checkpoint,
        watch.watch_attempt,
        evidence.collect_evidence,
        evidence.classify_failure,
        checkpoints.list_checkpoints,
        checkpoints.target_reached,
        talk.tell_jobs,
        talk.tell_jobs_over,
        talk.answer_incident,
        talk.report_node,
        talk.name_node,
        talk.tell_suspicions,
    ]


def _runtime(settings: ControllerSettings) -> Runtime | None:
    """The SDK's own runtime where its metrics are wanted, else its default."""
    if not settings.temporal_metrics_port:
        return None
    address = f"{settings.serve_host}:{settings.temporal_metrics_port}"
    return Runtime(
        telemetry=TelemetryConfig(
            metrics=PrometheusConfig(
                bind_address=address, counters_total_suffix=True, unit_suffix=True, durations_as_seconds=True
            )
        )
    )


async def _until(stop: asyncio.Event, work: Any) -> None:
    """Do the work until told to stop, and raise what ends it before that."""
    working = asyncio.ensure_future(work)
    stopping = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait((working, stopping), return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            await working
    finally:
        stopping.cancel()
        working.cancel()
        await asyncio.gather(working, stopping, return_exceptions=True)
