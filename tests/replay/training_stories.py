"""What is recorded of training jobs and of what they suspect, for replay; told like the stories of incidents."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from temporalio import activity
from temporalio.client import WorkflowHandle
from temporalio.testing import WorkflowEnvironment
from temporalio.worker import Worker

from activities.job_incidents import NodeReport, NodeReported
from sickbay.faults import Rung
from sickbay.nodes import NodeRef
from sickbay.training.handshake import HurtReport, NodeOver, NodeTrouble, SuspicionsInput, Urgency
from sickbay.training.job import Elasticity, JobCommandKind, JobStage
from sickbay.training.verdicts import BudgetKind, NodeBlame
from tests.sickbay.training.records import verdict
from tests.workflows.training_bench import TrainingBench, checkpoint, training_bench
from workflows.node_suspicions import NodeSuspicions

Handles = list[WorkflowHandle[Any, Any]]
DONE: Final = ["run", "step 30", "durable 100", "end"]
HOLDING: Final = ["run", "step 10", "durable 20", "hold"]
HARDWARE: Final = verdict(
    BudgetKind.PLATFORM,
    "xid 79",
    blamed=(NodeBlame(node="n1", reason="Xid 79", hardware=True, code="xid-79"),),
    culprits=("rank 0 (n1)",),
)
WRONG: Final = verdict(
    BudgetKind.PLATFORM,
    "sdc",
    blamed=(NodeBlame(node="n1", reason="wrong results", hardware=True, corrupts=True),),
)


async def trained_to_its_target(environment: WorkflowEnvironment) -> Handles:
    """One attempt, whose pods wait for room first."""
    async with training_bench(environment, ["pending", *DONE]) as bench:
        await bench.start()
        await bench.result()
        return [bench.handle]


async def trained_though_a_node_was_lost(environment: WorkflowEnvironment) -> Handles:
    """An attempt fails by hardware, whose node's incident is told; the next one resumes without it."""
    async with training_bench(environment, [*HOLDING[:3], "fail"], DONE, verdicts=[HARDWARE]) as bench:
        await bench.start()
        await bench.result()
        return [bench.handle]


async def left_nodes_for_their_incidents(environment: WorkflowEnvironment) -> Handles:
    """One node is to be left at once, one later, which is well again before."""
    async with training_bench(environment, HOLDING, DONE, verdicts=[HARDWARE]) as bench:
        await bench.start()
        await bench.until(lambda view: view.stage is JobStage.TRAINING and view.step == 20)
        later = _trouble(bench, "n2", Urgency.NEXT_CHECKPOINT)
        await bench.handle.signal("node_trouble", later)
        await bench.until_act("answer_incident")
        over = NodeOver(incident_id=later.incident_id, node=later.node, well=True)
        await bench.handle.signal("node_over", over)
        await bench.handle.signal("node_trouble", _trouble(bench, "n1", Urgency.NOW))
        await bench.result()
        return [bench.handle]


async def hung_and_ended_early(environment: WorkflowEnvironment) -> Handles:
    """An attempt stands still, and one ends with exit code 0 before the target."""
    async with training_bench(environment, [*HOLDING[:3], "hang"], ["run", "step 30", "end"], DONE) as bench:
        await bench.start()
        await bench.result()
        return [bench.handle]


async def decided_by_people(environment: WorkflowEnvironment) -> Handles:
    """Paused and resumed, a node kept off, restarted; wrong results leave no checkpoint, and a person begins anew."""
    async with training_bench(
        environment, HOLDING, HOLDING, ["run", "step 30", "fail"], DONE, verdicts=[WRONG]
    ) as bench:
        await bench.start()
        await bench.until(JobStage.TRAINING)
        await bench.say(JobCommandKind.PAUSE)
        await bench.until(JobStage.PAUSED)
        await bench.say(JobCommandKind.RESUME)
        await bench.until(lambda view: view.attempt == 2 and view.stage is JobStage.TRAINING)
        await bench.say(JobCommandKind.EXCLUDE_NODE, node="n4")
        await bench.say(JobCommandKind.RESTART)
        await bench.until(JobStage.HELD)
        await bench.say(JobCommandKind.FROM_STEP, step=0)
        await bench.result()
        return [bench.handle]


async def cancelled_by_a_person(environment: WorkflowEnvironment) -> Handles:
    """It checkpoints, and ends."""
    async with training_bench(environment, HOLDING) as bench:
        await bench.start()
        await bench.until(JobStage.TRAINING)
        await bench.say(JobCommandKind.CANCEL)
        await bench.result()
        return [bench.handle]


async def shrunk_and_left_a_slow_node(environment: WorkflowEnvironment) -> Handles:
    """Only one node fits, which is slow; it is left as soon as there is another."""
    elastic = Elasticity(min_nodes=1, max_nodes=2)
    scripts = (["run", "step 10", "hold"], DONE)
    async with training_bench(environment, *scripts, spec={"elasticity": elastic}, fitting=("n2",)) as bench:
        await bench.start()
        await bench.until(JobStage.TRAINING)
        bench.cluster.fitting = ("n2", "n3")
        bench.cluster.scripts[0][:] = ["dear"]
        bench.cluster.checkpoints.append(checkpoint(20))
        await bench.result()
        return [bench.handle]


async def trained_for_long(environment: WorkflowEnvironment) -> Handles:
    """So many checkpoints that it continues as new."""
    steps = [f"durable {step}" for step in range(2, 100, 4)]
    async with training_bench(environment, ["run", "step 1", *steps, "durable 100", "end"]) as bench:
        await bench.start()
        await bench.result()
        runs = environment.client.list_workflows(f"WorkflowId = '{bench.handle.id}'")
        ids = sorted([(run.start_time, run.run_id) async for run in runs])
        return [environment.client.get_workflow_handle(bench.handle.id, run_id=run_id) for _, run_id in ids]


async def suspected_by_three_jobs(environment: WorkflowEnvironment) -> Handles:
    """Three jobs fail alike on one node, whose incident is opened."""

    @activity.defn
    async def report_node(report: NodeReport) -> NodeReported:
        return NodeReported(incident_id=f"incident-{report.node}")

    worker = Worker(environment.client, task_queue="suspicions", workflows=[NodeSuspicions], activities=[report_node])
    async with worker:
        handle = await environment.client.start_workflow(
            NodeSuspicions.run, SuspicionsInput(cluster="c1"), id="suspicions-c1", task_queue="suspicions"
        )
        node = NodeRef(cluster="c1", name="n1", uid="uid-n1", provider_id="aws:///eu-west-1a/i-0123456789abcdef0")
        for job in ("a", "b", "c"):
            report = HurtReport(
                job_id=f"job-c1-ml-{job}", attempt=1, node=node, fingerprint="nccl", explained=False,
                at=datetime.now(UTC),
            )  # fmt: skip
            await handle.signal(NodeSuspicions.job_hurt, report)
        async with asyncio.timeout(30):
            while not (await handle.query(NodeSuspicions.view)).named:  # noqa: ASYNC110 - it waits for nobody here
                await asyncio.sleep(0.05)
        await handle.terminate("recorded")
        return [handle]


def _trouble(bench: TrainingBench, node: str, urgency: Urgency) -> NodeTrouble:
    return NodeTrouble(
        incident_id=f"incident-{node}",
        node=NodeRef(cluster=bench.start_input.cluster, name=node, uid=f"uid-{node}"),
        urgency=urgency,
        rung=Rung.REBOOT,
        until=datetime.now(UTC) + timedelta(minutes=15),
        codes=("xid-79",),
    )


TRAININGS: Final = (
    trained_to_its_target,
    trained_though_a_node_was_lost,
    left_nodes_for_their_incidents,
    hung_and_ended_early,
    decided_by_people,
    cancelled_by_a_person,
    shrunk_and_left_a_slow_node,
    trained_for_long,
    suspected_by_three_jobs,
)
