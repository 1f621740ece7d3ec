"""What people and node incidents tell a training job, and what it does about it."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from temporalio.client import WorkflowFailureError
from temporalio.testing import WorkflowEnvironment

from sickbay.faults import Rung
from sickbay.nodes import NodeRef
from sickbay.training.handshake import NodeOver, NodeTrouble, Urgency
from sickbay.training.job import JobCommandKind, JobOutcome, JobStage
from tests.workflows.training_bench import TrainingBench, training_bench

pytestmark = pytest.mark.asyncio(loop_scope="session")

HOLDING = ["run", "step 10", "durable 20", "hold"]
DONE = ["run", "step 30", "durable 100", "end"]


async def trouble(bench: TrainingBench, node: str = "n1", urgency: Urgency = Urgency.NOW, **values: Any) -> NodeTrouble:
    ref = NodeRef(cluster=bench.start_input.cluster, name=node, uid=f"uid-{node}")
    told = NodeTrouble(
        incident_id=f"incident-{node}",
        node=ref,
        urgency=urgency,
        rung=Rung.REBOOT,
        until=values.pop("until", datetime.now(UTC) + timedelta(minutes=15)),
        codes=("xid-79",),
    )
    await bench.handle.signal("node_trouble", told)
    return told


async def test_an_urgent_node_is_left_with_a_new_checkpoint_and_its_incident_is_answered(
    time_skipping: WorkflowEnvironment,
) -> None:
    async with training_bench(time_skipping, HOLDING, DONE) as bench:
        with time_skipping.with_time_skipping_disabled():
            await bench.start()
            await bench.until(lambda view: view.stage is JobStage.TRAINING and view.step == 20)
            await trouble(bench)
            result = await bench.result()
        assert result.outcome is JobOutcome.SUCCEEDED
        assert bench.cluster.answers == ["incident-n1 checkpointed", "incident-n1 left"]
        second = bench.cluster.plans[1]
        assert second.resume is not None
        assert second.resume.step == 21
        assert [each.node for each in second.exclusions] == ["n1"]
        assert all(record.verdict is None for record in result.view.history.attempts)


async def test_ranks_that_do_not_checkpoint_keep_the_node_no_longer_than_its_deadline(
    time_skipping: WorkflowEnvironment,
) -> None:
    async with training_bench(time_skipping, HOLDING, DONE, obeys=False) as bench:
        with time_skipping.with_time_skipping_disabled():
            await bench.start()
            await bench.until(lambda view: view.stage is JobStage.TRAINING and view.step == 20)
            await trouble(bench, until=datetime.now(UTC) + timedelta(seconds=2))
            result = await bench.result()
        assert result.outcome is JobOutcome.SUCCEEDED
        assert bench.cluster.answers == ["incident-n1 cannot", "incident-n1 left"]


async def test_a_node_that_the_job_is_not_on_is_answered_at_once_and_nothing_is_disturbed(
    time_skipping: WorkflowEnvironment,
) -> None:
    async with training_bench(time_skipping, HOLDING) as bench:
        with time_skipping.with_time_skipping_disabled():
            await bench.start()
            await bench.until(lambda view: view.step == 20)
            await trouble(bench, "n4")
            await bench.until_act("answer_incident")
            assert bench.cluster.answers == ["incident-n4 left"]
            assert bench.cluster.acts["delete_attempt"] == 0
            await bench.handle.terminate()


async def test_a_mild_fault_leaves_the_job_until_its_next_checkpoint(time_skipping: WorkflowEnvironment) -> None:
    async with training_bench(time_skipping, HOLDING, DONE) as bench:
        with time_skipping.with_time_skipping_disabled():
            await bench.start()
            await bench.until(lambda view: view.step == 20)
            await trouble(bench, urgency=Urgency.NEXT_CHECKPOINT)
            await bench.until_act("answer_incident")
            assert bench.cluster.answers == ["incident-n1 later"]
            assert bench.cluster.acts["delete_attempt"] == 0
            bench.cluster.asked.set()  # the ranks save by themselves
            result = await bench.result()
        assert result.outcome is JobOutcome.SUCCEEDED
        assert bench.cluster.answers == ["incident-n1 later", "incident-n1 checkpointed", "incident-n1 left"]
        assert bench.cluster.acts["ask_checkpoint"] == 0


async def test_two_sick_nodes_at_once_are_left_with_one_checkpoint(time_skipping: WorkflowEnvironment) -> None:
    async with training_bench(time_skipping, HOLDING, DONE) as bench:
        with time_skipping.with_time_skipping_disabled():
            await bench.start()
            await bench.until(lambda view: view.step == 20)
            await trouble(bench, "n1")
            await trouble(bench, "n2")
            result = await bench.result()
        assert result.outcome is JobOutcome.SUCCEEDED
        assert sorted(each.node for each in bench.cluster.plans[-1].exclusions) == ["n1", "n2"]
        assert {"incident-n1 left", "incident-n2 left"} <= set(bench.cluster.answers)


async def test_a_node_that_is_well_again_may_be_used_again(time_skipping: WorkflowEnvironment) -> None:
    async with training_bench(time_skipping, HOLDING, HOLDING, DONE) as bench:
        with time_skipping.with_time_skipping_disabled():
            await bench.start()
            await bench.until(lambda view: view.step == 20)
            told = await trouble(bench)
            await bench.until(lambda view: view.attempt == 2 and view.stage is JobStage.TRAINING)
            over = NodeOver(incident_id=told.incident_id, node=told.node, well=True)
            await bench.handle.signal("node_over", over)
            await bench.say(JobCommandKind.RESTART)
            assert (await bench.result()).outcome is JobOutcome.SUCCEEDED
        assert [len(plan.exclusions) for plan in bench.cluster.plans] == [0, 1, 0]


async def test_a_paused_job_gives_its_nodes_back_and_goes_on_from_where_it_was(
    time_skipping: WorkflowEnvironment,
) -> None:
    async with training_bench(time_skipping, HOLDING, DONE) as bench:
        with time_skipping.with_time_skipping_disabled():
            await bench.start()
            await bench.until(lambda view: view.step == 20)
            await bench.say(JobCommandKind.PAUSE)
            await bench.until(JobStage.PAUSED)
            assert bench.cluster.alive == set()
            assert "already" in await bench.refused(JobCommandKind.PAUSE)
            await bench.say(JobCommandKind.RESUME)
            assert (await bench.result()).outcome is JobOutcome.SUCCEEDED
        assert bench.cluster.plans[1].resume is not None
        assert bench.cluster.plans[1].resume.step == 21


async def test_a_cancelled_job_checkpoints_and_ends(time_skipping: WorkflowEnvironment) -> None:
    async with training_bench(time_skipping, HOLDING) as bench:
        with time_skipping.with_time_skipping_disabled():
            await bench.start()
            await bench.until(lambda view: view.step == 20)
            await bench.say(JobCommandKind.CANCEL, request_id="once")
            assert "before" in (await bench.say(JobCommandKind.CANCEL, request_id="once")).message
            result = await bench.result()
        assert result.outcome is JobOutcome.CANCELLED
        assert bench.cluster.alive == set()
        assert bench.cluster.acts["ask_checkpoint"] == 1


async def test_a_cancelled_workflow_leaves_no_attempt_behind(time_skipping: WorkflowEnvironment) -> None:
    async with training_bench(time_skipping, HOLDING) as bench:
        with time_skipping.with_time_skipping_disabled():
            await bench.start()
            await bench.until(lambda view: view.step == 20)
            await bench.handle.cancel()
            with pytest.raises(WorkflowFailureError):
                await bench.result()
        assert bench.cluster.alive == set()


async def test_a_job_that_nobody_resumes_ends_as_failed(time_skipping: WorkflowEnvironment) -> None:
    async with training_bench(time_skipping, DONE) as bench:
        with time_skipping.with_time_skipping_disabled():
            bench.cluster.scripts = [["run", "hold"]]
            await bench.start()
            await bench.until(JobStage.STARTING)
            await bench.until_act("watch_attempt", 2)
            bench.cluster.obeys = False
            await bench.say(JobCommandKind.PAUSE)
            await bench.until(lambda view: view.stage in (JobStage.CHECKPOINTING, JobStage.PAUSED))
            await bench.handle.terminate()


async def test_an_excluded_node_is_kept_off_from_the_next_attempt_on(time_skipping: WorkflowEnvironment) -> None:
    async with training_bench(time_skipping, HOLDING, DONE) as bench:
        with time_skipping.with_time_skipping_disabled():
            await bench.start()
            await bench.until(lambda view: view.step == 20)
            await bench.say(JobCommandKind.EXCLUDE_NODE, node="n2")
            assert "n2" in await bench.refused(JobCommandKind.INCLUDE_NODE, node="n9")
            await bench.say(JobCommandKind.RESTART)
            assert (await bench.result()).outcome is JobOutcome.SUCCEEDED
        assert [each.node for each in bench.cluster.plans[1].exclusions] == ["n2"]
