"""An incident and the training jobs on its node: asked before the drain, waited for, told at the end."""

from datetime import UTC, datetime

import pytest
from temporalio.exceptions import ApplicationError
from temporalio.testing import WorkflowEnvironment

from sickbay.faults import Fault, Rung, Severity
from sickbay.incident import Outcome
from sickbay.policy.model import JobsPolicy
from sickbay.training.handshake import AnswerKind, JobAnswer, Urgency
from tests.workflows.fake_world import fault
from tests.workflows.incident_bench import Bench, incident_bench

pytestmark = pytest.mark.asyncio(loop_scope="session")

JOBS = ("job-c-default-a", "job-c-default-b")


async def answer(bench: Bench, job: str, kind: AnswerKind, node_uid: str = "uid-1") -> None:
    said = JobAnswer(job_id=job, node_uid=node_uid, kind=kind, step=70, at=datetime.now(UTC))
    await bench.handle.signal("job_answer", said)


async def test_the_drain_begins_when_every_job_has_left_and_not_before(time_skipping: WorkflowEnvironment) -> None:
    async with incident_bench(time_skipping, jobs=JOBS) as bench:
        with time_skipping.with_time_skipping_disabled():
            await bench.start()
            await bench.until_act("tell_jobs")
            await answer(bench, JOBS[0], AnswerKind.LEFT)
            await answer(bench, JOBS[1], AnswerKind.CHECKPOINTED)
            await bench.until(lambda view: JOBS[1] in view.waiting_for and JOBS[0] not in view.waiting_for)
            assert bench.world.acts["drain_node"] == 0
            await answer(bench, JOBS[1], AnswerKind.LEFT)
            await bench.until_act("drain_node")
            assert bench.world.troubles[0].urgency is Urgency.NOW
            await bench.handle.terminate()


async def test_a_job_that_does_not_answer_keeps_the_node_no_longer_than_its_deadline(
    time_skipping: WorkflowEnvironment,
) -> None:
    async with incident_bench(time_skipping, jobs=JOBS) as bench:
        await bench.start()
        result = await bench.result()
        assert result.outcome is Outcome.RETURNED
        assert any("goes on without an answer" in entry.text for entry in result.view.timeline)
        assert [over.well for over in bench.world.overs] == [True]


async def test_where_no_job_is_on_the_node_nothing_is_waited_for(time_skipping: WorkflowEnvironment) -> None:
    async with incident_bench(time_skipping) as bench:
        await bench.start()
        assert (await bench.result()).outcome is Outcome.RETURNED
        assert bench.world.overs == []


async def test_jobs_that_cannot_be_told_are_drained_like_any_pod(time_skipping: WorkflowEnvironment) -> None:
    refused = ApplicationError("no right to list pods", non_retryable=True)
    async with incident_bench(time_skipping, jobs=JOBS, fails={"tell_jobs": refused}) as bench:
        await bench.start()
        result = await bench.result()
        assert result.outcome is Outcome.RETURNED
        assert any("were not told" in entry.text for entry in result.view.timeline)


async def test_a_mild_fault_waits_for_the_next_planned_checkpoint(time_skipping: WorkflowEnvironment) -> None:
    mild: Fault = fault("row-remap-pending", Rung.RESET_GPU).model_copy(update={"severity": Severity.WARNING})
    async with incident_bench(time_skipping, jobs=JOBS[:1], fault=mild) as bench:
        with time_skipping.with_time_skipping_disabled():
            await bench.start(mild)
            await bench.until_act("tell_jobs")
            (trouble,) = bench.world.troubles
            assert trouble.urgency is Urgency.NEXT_CHECKPOINT
            assert trouble.until > datetime.now(UTC) + JobsPolicy().checkpoint_deadline
            await answer(bench, JOBS[0], AnswerKind.LATER)
            await answer(bench, JOBS[0], AnswerKind.LEFT)
            await bench.until_act("drain_node")
            await bench.handle.terminate()


async def test_an_answer_about_another_node_of_that_name_is_none(time_skipping: WorkflowEnvironment) -> None:
    async with incident_bench(time_skipping, jobs=JOBS[:1]) as bench:
        with time_skipping.with_time_skipping_disabled():
            await bench.start()
            await bench.until_act("tell_jobs")
            await answer(bench, JOBS[0], AnswerKind.LEFT, node_uid="uid-of-another")
            view = await bench.until(lambda view: JOBS[0] in view.waiting_for)
            assert not any(AnswerKind.LEFT in entry.text for entry in view.timeline)
            await bench.handle.terminate()
        assert bench.world.acts["drain_node"] == 0


async def test_a_permit_lost_while_jobs_leave_drains_nothing(time_skipping: WorkflowEnvironment) -> None:
    async with incident_bench(time_skipping, budget="grant", jobs=JOBS[:1]) as bench:
        with time_skipping.with_time_skipping_disabled():
            await bench.start()
            await bench.until_act("tell_jobs")
            await bench.take_permit_back()
            await answer(bench, JOBS[0], AnswerKind.LEFT)
            await bench.until_act("tell_jobs", 2)
            assert bench.world.acts["drain_node"] == 0
            await bench.handle.terminate()


async def test_a_cancelled_incident_tells_the_jobs_too(time_skipping: WorkflowEnvironment) -> None:
    async with incident_bench(time_skipping, jobs=JOBS[:1]) as bench:
        with time_skipping.with_time_skipping_disabled():
            await bench.start()
            await bench.until(lambda view: JOBS[0] in view.waiting_for)
            await bench.handle.cancel()
            await bench.until_act("tell_jobs_over")
        assert [over.well for over in bench.world.overs] == [False]
