"""Jobs and incidents find each other: over a real Temporal server and an API server, simulated and real."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest
from temporalio.client import WorkflowHandle
from temporalio.testing import WorkflowEnvironment
from temporalio.worker import Worker

from activities.job_incidents import (
    IncidentAnswer,
    JobIncidentActivities,
    JobsOnNode,
    JobsOver,
    NodeNamed,
    NodeReport,
)
from sickbay import names
from sickbay.catalogue import fault_of
from sickbay.faults import Component, ComponentKind, Rung
from sickbay.incident import IncidentView
from sickbay.nodes import NodeRef
from sickbay.policy.file import default_policy
from sickbay.suspicions import Suspicions
from sickbay.training.handshake import (
    AnswerKind,
    HurtReport,
    JobAnswer,
    NodeOver,
    NodeTrouble,
    Urgency,
)
from sickbay.training.job import JobResult
from tests.eventually import eventually
from tests.incident_stand_in import StandInIncident
from tests.job_stand_in import StandInJob, job_input
from tests.kube_under_test import KubeUnderTest
from workflows.node_suspicions import NodeSuspicions

pytestmark = pytest.mark.kube

NOW = datetime.now(UTC)
FAULT = fault_of("suspect-node", Component(kind=ComponentKind.HOST, id="n1"))


@dataclass
class Talk:
    """The activities, a cluster of their own, and a worker of its workflows."""

    kube: KubeUnderTest
    server: WorkflowEnvironment
    cluster: str
    activities: JobIncidentActivities

    async def start_job(self, name: str) -> WorkflowHandle[StandInJob, JobResult]:
        job = names.job_id(self.cluster, "default", name)
        return await self.server.client.start_workflow(
            StandInJob.run, job_input(name, self.cluster), id=job, task_queue=names.CONTROLLER_QUEUE
        )

    async def node(self, name: str = "n1") -> NodeRef:
        made = await self.kube.create_node(name, provider_id=f"aws:///a/i-{name}-{self.cluster}")
        uid = str(made["metadata"]["uid"])
        return NodeRef(cluster=self.cluster, name=name, uid=uid, provider_id=f"aws:///a/i-{name}-{self.cluster}")


@pytest.fixture
async def talk(kube_server: KubeUnderTest, dev_server: WorkflowEnvironment) -> AsyncIterator[Talk]:
    cluster = f"c{uuid4().hex[:8]}"
    client = dev_server.client
    activities = JobIncidentActivities(client, kube_server.api_client(), default_policy().for_pool)
    worker = Worker(
        client,
        task_queue=names.CONTROLLER_QUEUE,
        workflows=[StandInJob, StandInIncident, NodeSuspicions],
        activities=[activities.report_node],
    )
    async with worker:
        yield Talk(kube_server, dev_server, cluster, activities)


def trouble(node: NodeRef) -> NodeTrouble:
    until = NOW + timedelta(minutes=15)
    return NodeTrouble(incident_id="incident-1", node=node, urgency=Urgency.NOW, rung=Rung.REBOOT, until=until)


async def test_every_job_with_a_live_pod_on_the_node_is_told_and_no_other(talk: Talk) -> None:
    here, elsewhere, ended = [await talk.start_job(name) for name in ("here", "elsewhere", "ended")]
    node = await talk.node()
    await talk.node("n2")
    await talk.kube.create_pod("a-0", node="n1", labels={names.LABEL_JOB: "here"})
    await talk.kube.create_pod("a-1", node="n1", labels={names.LABEL_JOB: "here"})
    await talk.kube.create_pod("b-0", node="n2", labels={names.LABEL_JOB: "elsewhere"})
    await talk.kube.create_pod("c-0", node="n1", labels={names.LABEL_JOB: "ended"}, phase="Succeeded")
    await talk.kube.create_pod("d-0", node="n1", labels={names.LABEL_JOB: "never-ran"})
    await talk.kube.create_pod("other", node="n1")
    told = await talk.activities.tell_jobs(JobsOnNode(trouble=trouble(node)))
    assert told.jobs == (here.id,)
    over = NodeOver(incident_id="incident-1", node=node, well=True)
    await talk.activities.tell_jobs_over(JobsOver(jobs=(here.id, "job-that-is-over"), over=over))
    assert await here.query(StandInJob.heard) == ["incident-1", "over incident-1"]
    assert await elsewhere.query(StandInJob.heard) == []
    assert await ended.query(StandInJob.heard) == []


async def test_a_node_that_hurt_a_job_gets_its_incident_and_another_of_that_name_does_not(talk: Talk) -> None:
    node = await talk.node()
    report = NodeReport(cluster=talk.cluster, node="n1", node_uid=node.uid, job_id="job-1", faults=(FAULT,))
    reported = await talk.activities.report_node(report)
    assert reported.node is not None
    assert reported.node.machine == node.machine
    again = await talk.activities.report_node(report)
    assert again.incident_id == reported.incident_id == names.incident_id(talk.cluster, node.machine)
    handle = talk.server.client.get_workflow_handle(reported.incident_id)
    view = await handle.query(names.QUERY_VIEW, result_type=IncidentView)
    assert [fault.code for fault in view.faults] == [FAULT.code]
    other = await talk.activities.report_node(report.model_copy(update={"node_uid": "another"}))
    gone = await talk.activities.report_node(report.model_copy(update={"node": "n9"}))
    assert (other.incident_id, gone.incident_id) == ("", "")
    named = await talk.activities.name_node(NodeNamed(cluster=talk.cluster, node="n1"))
    assert named.node == reported.node


async def test_an_answer_to_an_incident_that_is_over_is_told_as_such(talk: Talk) -> None:
    answer = JobAnswer(job_id="job-1", node_uid="u", kind=AnswerKind.LEFT, at=NOW)
    told = await talk.activities.answer_incident(IncidentAnswer(incident_id="incident-of-nobody", answer=answer))
    assert not told.open


async def test_a_node_where_three_jobs_failed_alike_gets_an_incident_once(talk: Talk) -> None:
    node = await talk.node()

    async def hurt(job: str) -> None:
        report = HurtReport(job_id=job, attempt=1, node=node, fingerprint="it hangs", explained=False, at=NOW)
        await talk.activities.tell_suspicions(report)

    handle = talk.server.client.get_workflow_handle(names.suspicions_id(talk.cluster))
    for job in ("a", "b"):
        await hurt(job)
    assert (await handle.query("view", result_type=Suspicions)).named == ()
    await hurt("c")

    async def is_named() -> bool:
        known = await handle.query("view", result_type=Suspicions)
        return [suspect.node.name for suspect in known.named] == ["n1"]

    await eventually(is_named)
    incident = talk.server.client.get_workflow_handle(names.incident_id(talk.cluster, node.machine))
    view = await incident.query(names.QUERY_VIEW, result_type=IncidentView)
    assert [fault.code for fault in view.faults] == ["suspect-node"]
    await handle.terminate()
