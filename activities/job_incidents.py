"""What training jobs and node incidents ask of Temporal and of the cluster to find each other.

An incident finds the jobs on its node by their pods' labels and tells them; a job opens or feeds the incident of a node
that hurt it, answers an incident, and tells the cluster's suspicions. All are signals, which machines send (design, 6);
one to a workflow that is over is told as such, and no error. Who must be told what is decided by the workflows.
"""

from collections.abc import Callable
from datetime import datetime
from typing import Final

from kubernetes.aio.client import ApiClient
from pydantic import BaseModel
from temporalio import activity
from temporalio.client import Client
from temporalio.common import WorkflowIDConflictPolicy
from temporalio.service import RPCError, RPCStatusCode

from activities.incident_starts import CALL_TIMEOUT, open_incident
from activities.kube import NotFoundError, call, list_all, path
from activities.node_reads import NODES
from activities.waiting import Clock, utc_now
from sickbay.catalogue import CATALOGUE_VERSION
from sickbay.faults import Fault
from sickbay.incident import FaultReport, IncidentInput
from sickbay.kube_objects import Node, Pod
from sickbay.model import Frozen
from sickbay.names import CONTROLLER_QUEUE, LABEL_JOB, WORKFLOW_SUSPICIONS, job_id, suspicions_id
from sickbay.node_reading import reference
from sickbay.nodes import NodeRef
from sickbay.policy.model import IncidentPolicy
from sickbay.training.handshake import (
    SIGNAL_JOB_ANSWER,
    SIGNAL_JOB_HURT,
    SIGNAL_NODE_OVER,
    SIGNAL_NODE_TROUBLE,
    HurtReport,
    JobAnswer,
    NodeOver,
    NodeTrouble,
    SuspicionsInput,
)

ENDED: Final = ("Succeeded", "Failed")

PolicyOfPool = Callable[[str], IncidentPolicy]


class JobsOnNode(Frozen):
    """Tell every training job with a pod on the node."""

    trouble: NodeTrouble


class JobsOver(Frozen):
    """Tell these jobs that the incident is over."""

    jobs: tuple[str, ...]
    over: NodeOver


class JobsTold(Frozen):
    """Workflow ids of the jobs that took the word, sorted; one whose workflow is over is not among them."""

    jobs: tuple[str, ...] = ()


class NodeReport(Frozen):
    """Faults of a node that a job tells."""

    cluster: str
    node: str
    node_uid: str = ""
    """Refused quietly if another node has the name by now; empty takes whoever has it."""
    job_id: str
    faults: tuple[Fault, ...]
    attributes_missing: tuple[str, ...] = ()


class NodeReported(Frozen):
    """Where the faults went; empty where the node is gone."""

    incident_id: str = ""
    node: NodeRef | None = None


class NodeNamed(Frozen):
    """Which machine bears a name."""

    cluster: str
    node: str


class IncidentAnswer(Frozen):
    """A job's answer to an incident."""

    incident_id: str
    answer: JobAnswer


class Told(Frozen):
    """Whether the workflow that was told something is still open."""

    open: bool


class JobIncidentActivities:
    """The talk of jobs and incidents, over a Temporal client and an API client.

    All of these activities raise RPCError or PassingError, to be retried, if a server does not answer.
    """

    def __init__(self, client: Client, api: ApiClient, policy_of: PolicyOfPool, clock: Clock = utc_now) -> None:
        self._client = client
        self._api = api
        self._policy_of = policy_of
        self._clock = clock

    @activity.defn
    async def tell_jobs(self, request: JobsOnNode) -> JobsTold:
        """Tell the training jobs on a node of its trouble. A job told again only has its deadline renewed."""
        node = request.trouble.node
        query = {"fieldSelector": f"spec.nodeName={node.name}", "labelSelector": LABEL_JOB}
        pods = await list_all(self._api, "/api/v1/pods", Pod, query=query)
        here = {_job_of(node.cluster, pod) for pod in pods if pod.status.phase not in ENDED}
        told = [job for job in sorted(here) if await self._signal(job, SIGNAL_NODE_TROUBLE, request.trouble)]
        return JobsTold(jobs=tuple(told))

    @activity.defn
    async def tell_jobs_over(self, request: JobsOver) -> JobsTold:
        """Tell jobs that a node's incident is over."""
        told = [job for job in request.jobs if await self._signal(job, SIGNAL_NODE_OVER, request.over)]
        return JobsTold(jobs=tuple(told))

    @activity.defn
    async def answer_incident(self, request: IncidentAnswer) -> Told:
        """Tell an incident what a job did."""
        return Told(open=await self._signal(request.incident_id, SIGNAL_JOB_ANSWER, request.answer))

    @activity.defn
    async def report_node(self, report: NodeReport) -> NodeReported:
        """Open the incident of a node, or tell the open one. Repeats only count up."""
        try:
            node = await call(self._api, "GET", path(NODES, report.node), Node)
        except NotFoundError:
            return NodeReported()
        if report.node_uid and node.metadata.uid != report.node_uid:
            return NodeReported()
        ref = reference(node, report.cluster)
        now = self._clock()
        opening = _opening(ref, self._policy_of(ref.pool), report, now)
        incident_id = await open_incident(self._client, opening, FaultReport(faults=report.faults, observed_at=now))
        return NodeReported(incident_id=incident_id, node=ref)

    @activity.defn
    async def name_node(self, request: NodeNamed) -> NodeReported:
        """Which machine bears a node's name now."""
        try:
            node = await call(self._api, "GET", path(NODES, request.node), Node)
        except NotFoundError:
            return NodeReported()
        return NodeReported(node=reference(node, request.cluster))

    @activity.defn
    async def tell_suspicions(self, report: HurtReport) -> Told:
        """Tell the cluster's suspicions that an attempt failed on a node; starts them if they do not run."""
        await self._client.start_workflow(
            WORKFLOW_SUSPICIONS,
            SuspicionsInput(cluster=report.node.cluster),
            id=suspicions_id(report.node.cluster),
            task_queue=CONTROLLER_QUEUE,
            id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
            start_signal=SIGNAL_JOB_HURT,
            start_signal_args=[report],
            static_summary=f"Nodes of {report.node.cluster} on which one job after another failed",
            rpc_timeout=CALL_TIMEOUT,
        )
        return Told(open=True)

    async def _signal(self, workflow_id: str, signal: str, message: BaseModel) -> bool:
        handle = self._client.get_workflow_handle(workflow_id)
        try:
            await handle.signal(signal, message, rpc_timeout=CALL_TIMEOUT)
        except RPCError as error:
            if error.status is RPCStatusCode.NOT_FOUND:
                return False
            raise
        return True


def _job_of(cluster: str, pod: Pod) -> str:
    return job_id(cluster, pod.metadata.namespace, pod.metadata.labels[LABEL_JOB])


def _opening(ref: NodeRef, policy: IncidentPolicy, report: NodeReport, now: datetime) -> IncidentInput:
    return IncidentInput(
        node=ref,
        policy=policy,
        catalogue_version=CATALOGUE_VERSION,
        opened_at=now,
        faults=report.faults,
        attributes_missing=report.attributes_missing,
    )
