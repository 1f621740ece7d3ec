"""A training job, attempt by attempt: success by proof, failures and what follows, one writer at a time."""

from datetime import timedelta

import pytest
from temporalio.exceptions import ApplicationError
from temporalio.testing import WorkflowEnvironment

from sickbay.checkpoints.model import Level
from sickbay.training.evidence import Ending
from sickbay.training.history import AttemptEnd
from sickbay.training.job import Elasticity, JobCommandKind, JobDeadlines, JobOutcome, JobStage
from sickbay.training.verdicts import BudgetKind, FailureAction, NodeBlame
from tests.sickbay.training.records import verdict
from tests.workflows.training_bench import checkpoint, training_bench

pytestmark = pytest.mark.asyncio(loop_scope="session")

REFUSED = ApplicationError("the API server is out of order", non_retryable=True)
DONE = ["run", "step 10", "durable 100", "end"]
PLATFORM = verdict(
    BudgetKind.PLATFORM,
    "xid 79",
    blamed=(NodeBlame(node="n1", reason="Xid 79", hardware=True),),
    culprits=("rank 0 (n1)",),
)


async def test_a_job_runs_to_its_target_and_succeeds_by_proof(time_skipping: WorkflowEnvironment) -> None:
    async with training_bench(time_skipping, DONE) as bench:
        await bench.start()
        result = await bench.result()
        assert (result.outcome, result.proof) == (JobOutcome.SUCCEEDED, "step 100")
        assert bench.cluster.alive == set()
        assert result.view.history.attempts[0].end is AttemptEnd.REACHED_TARGET


async def test_a_job_whose_target_is_reached_already_is_never_launched(time_skipping: WorkflowEnvironment) -> None:
    async with training_bench(time_skipping, checkpoints=[checkpoint(100)]) as bench:
        await bench.start()
        assert (await bench.result()).outcome is JobOutcome.SUCCEEDED
        assert bench.cluster.plans == []


async def test_exit_0_before_the_target_is_not_success(time_skipping: WorkflowEnvironment) -> None:
    async with training_bench(time_skipping, ["run", "durable 40", "end"], DONE) as bench:
        await bench.start()
        result = await bench.result()
        assert result.outcome is JobOutcome.SUCCEEDED
        assert [plan.resume.step if plan.resume else None for plan in bench.cluster.plans] == [None, 40]
        assert bench.cluster.evidence[0].ending is Ending.ENDED


async def test_a_lost_node_is_left_out_reported_and_the_job_resumes_from_the_last_checkpoint(
    time_skipping: WorkflowEnvironment,
) -> None:
    async with training_bench(
        time_skipping, ["run", "step 10", "durable 40", "fail"], DONE, verdicts=[PLATFORM]
    ) as bench:
        await bench.start()
        result = await bench.result()
        assert result.outcome is JobOutcome.SUCCEEDED
        second = bench.cluster.plans[1]
        assert second.resume is not None
        assert second.resume.step == 40
        assert [each.node for each in second.exclusions] == ["n1"]
        assert bench.cluster.reported == ["n1 job-hardware-error"]
        assert [(one.node.name, one.explained) for one in bench.cluster.hurt] == [("n1", True)]


async def test_evidence_is_collected_before_anything_is_removed(time_skipping: WorkflowEnvironment) -> None:
    async with training_bench(time_skipping, ["run", "fail"], DONE) as bench:
        await bench.start()
        await bench.result()
        log = bench.cluster.log
        assert log.index("collect_evidence") < log.index("delete_attempt") < log.index("wait_attempt_gone")


async def test_a_bug_is_tried_once_more_and_then_stops_the_job(time_skipping: WorkflowEnvironment) -> None:
    bug = verdict(BudgetKind.CONFIRMATION, "ValueError", reason="ValueError in the script")
    async with training_bench(time_skipping, ["run", "fail"], ["run", "fail"], verdicts=[bug]) as bench:
        await bench.start()
        result = await bench.result()
        assert result.outcome is JobOutcome.FAILED
        assert "ValueError in the script" in result.reason
        assert len(bench.cluster.plans) == 2


async def test_a_verdict_to_stop_stops_at_once(time_skipping: WorkflowEnvironment) -> None:
    config = verdict(BudgetKind.CONFIRMATION, action=FailureAction.STOP)
    async with training_bench(time_skipping, ["run", "fail"], verdicts=[config]) as bench:
        await bench.start()
        assert (await bench.result()).outcome is JobOutcome.FAILED
        assert len(bench.cluster.plans) == 1


async def test_thirty_five_lost_nodes_in_a_row_are_capped_per_hour(time_skipping: WorkflowEnvironment) -> None:
    blameless = verdict(BudgetKind.PLATFORM, "node lost")
    scripts = [["run", "step 1", "fail"] for _ in range(35)]
    async with training_bench(time_skipping, *scripts, DONE, verdicts=[blameless]) as bench:
        await bench.start()
        result = await bench.result()
        assert result.outcome is JobOutcome.SUCCEEDED
        starts = [record.planned_at for record in result.view.history.attempts]
        created = [record.created_at for record in result.view.history.attempts]
        assert len(starts) == 36
        for index, first in enumerate(created[:-6]):
            later = created[index + 6]
            assert first is not None
            assert later is not None
            assert later - first >= timedelta(minutes=59)


async def test_alternating_failures_do_not_reset_each_other(time_skipping: WorkflowEnvironment) -> None:
    odd, even = verdict(fingerprint="odd"), verdict(fingerprint="even")
    scripts = [["run", "fail"] for _ in range(8)]
    async with training_bench(time_skipping, *scripts, verdicts=[odd, even] * 4) as bench:
        with time_skipping.with_time_skipping_disabled():
            pass
        await bench.start()
        result = await bench.result()
        assert result.outcome is JobOutcome.FAILED
        assert "nobody decided" in result.reason
        assert len(bench.cluster.plans) == 4


async def test_an_object_that_somebody_deleted_is_a_failure_and_gives_no_budget_back(
    time_skipping: WorkflowEnvironment,
) -> None:
    scripts = [["run", "absent"] for _ in range(8)]
    async with training_bench(time_skipping, *scripts) as bench:
        await bench.start()
        assert (await bench.result()).outcome is JobOutcome.FAILED
        assert len(bench.cluster.plans) == 4


async def test_a_pod_that_will_not_go_keeps_the_next_attempt_from_starting(time_skipping: WorkflowEnvironment) -> None:
    async with training_bench(time_skipping, ["run", "fail"], DONE, stays=True) as bench:
        with time_skipping.with_time_skipping_disabled():
            await bench.start()
            view = await bench.until(lambda view: view.stage is JobStage.HELD and "p0 on n1" in view.waiting_for)
            assert len(bench.cluster.plans) == 1
            assert view.stage is JobStage.HELD
            bench.cluster.stays = False
            await time_skipping.fast_forward(bench.handle, timedelta(minutes=16))
            assert (await bench.result()).outcome is JobOutcome.SUCCEEDED


async def test_evidence_that_cannot_be_had_is_told_as_missing_and_blames_nobody(
    time_skipping: WorkflowEnvironment,
) -> None:
    async with training_bench(time_skipping, ["run", "fail"], DONE, fails={"collect_evidence": REFUSED}) as bench:
        await bench.start()
        result = await bench.result()
        assert result.outcome is JobOutcome.SUCCEEDED
        assert bench.cluster.plans[1].exclusions == ()


async def test_a_hang_ends_the_attempt_with_its_evidence(time_skipping: WorkflowEnvironment) -> None:
    async with training_bench(time_skipping, ["run", "step 10", "hang"], DONE) as bench:
        await bench.start()
        result = await bench.result()
        assert bench.cluster.evidence[0].ending is Ending.HANG
        assert result.view.history.attempts[0].end is AttemptEnd.HANG


async def test_an_attempt_without_a_first_step_in_time_is_over(time_skipping: WorkflowEnvironment) -> None:
    quick = JobDeadlines(start=timedelta(minutes=1))
    looks = ["run"] * 40
    async with training_bench(time_skipping, looks, DONE, spec={"deadlines": quick}) as bench:
        await bench.start()
        result = await bench.result()
        assert "no first step" in result.view.history.attempts[0].why
        assert result.outcome is JobOutcome.SUCCEEDED


async def test_a_slow_rank_is_told_and_its_node_is_checked(time_skipping: WorkflowEnvironment) -> None:
    async with training_bench(time_skipping, ["run", "step 10", "slow", "slow", "durable 100", "end"]) as bench:
        await bench.start()
        result = await bench.result()
        assert bench.cluster.reported == ["n2 slow-rank"]
        assert any("slow" in entry.text for entry in result.view.timeline)


async def test_a_slow_node_that_costs_more_than_a_restart_is_left_with_a_new_checkpoint_and_checked(
    time_skipping: WorkflowEnvironment,
) -> None:
    async with training_bench(time_skipping, ["run", "step 10", "durable 20", "dear"], DONE) as bench:
        await bench.start()
        result = await bench.result()
        assert result.outcome is JobOutcome.SUCCEEDED
        assert bench.cluster.reported == ["n2 slow-rank"]
        second = bench.cluster.plans[1]
        assert (second.resume and second.resume.step, [each.node for each in second.exclusions]) == (21, ["n2"])
        assert result.view.history.attempts[0].end is AttemptEnd.STOPPED


async def test_wrong_results_send_the_job_back_to_before_the_node_joined_and_a_person_decides_where_nothing_is_left(
    time_skipping: WorkflowEnvironment,
) -> None:
    wrong = NodeBlame(node="n1", reason="wrong results", hardware=True, corrupts=True)
    found = verdict(BudgetKind.PLATFORM, "sdc", blamed=(wrong,))
    async with training_bench(time_skipping, ["run", "step 10", "durable 40", "fail"], DONE, verdicts=[found]) as bench:
        await bench.start()
        view = await bench.until(JobStage.HELD)
        assert any("n1 took part in it and may have computed wrong" in entry.text for entry in view.timeline)
        assert [each.node for each in view.history.taints] == ["n1"]
        await bench.say(JobCommandKind.FROM_STEP, step=0)
        assert (await bench.result()).outcome is JobOutcome.SUCCEEDED
        assert bench.cluster.plans[1].resume is None


async def test_waiting_for_capacity_is_no_failure(time_skipping: WorkflowEnvironment) -> None:
    async with training_bench(time_skipping, ["pending"] * 30 + DONE) as bench:
        await bench.start()
        result = await bench.result()
        assert result.outcome is JobOutcome.SUCCEEDED
        assert len(bench.cluster.plans) == 1


async def test_an_elastic_job_shrinks_at_once_to_what_is_well(time_skipping: WorkflowEnvironment) -> None:
    elastic = Elasticity(min_nodes=1, max_nodes=4, global_batch=16)
    async with training_bench(
        time_skipping, ["run", "durable 40", "fail"], DONE, spec={"elasticity": elastic}, verdicts=[PLATFORM]
    ) as bench:
        await bench.start()
        await bench.result()
        sizes = [(plan.nodes, plan.accumulation) for plan in bench.cluster.plans]
        assert sizes == [(4, 4), (2, 8)]


async def test_an_elastic_job_grows_back_at_a_checkpoint_after_its_dwell(time_skipping: WorkflowEnvironment) -> None:
    elastic = Elasticity(min_nodes=1, max_nodes=2, grow_after=timedelta(0))
    async with training_bench(
        time_skipping, ["run", "step 1", "durable 40", "hold"], DONE, spec={"elasticity": elastic}, fitting=("n1",)
    ) as bench:
        with time_skipping.with_time_skipping_disabled():
            await bench.start()
            await bench.until_act("create_attempt")
            bench.cluster.fitting = ("n1", "n2")
            result = await bench.result()
        assert [plan.nodes for plan in bench.cluster.plans] == [1, 2]
        assert result.outcome is JobOutcome.SUCCEEDED


async def test_a_newest_checkpoint_that_is_cut_is_passed_over_and_said_so(time_skipping: WorkflowEnvironment) -> None:
    found = [checkpoint(60, Level.LISTED), checkpoint(40)]
    async with training_bench(time_skipping, DONE, checkpoints=found) as bench:
        await bench.start()
        result = await bench.result()
        assert bench.cluster.plans[0].resume is not None
        assert bench.cluster.plans[0].resume.step == 40
        assert any("not resumed from step 60" in entry.text for entry in result.view.timeline)


async def test_without_a_checkpoint_that_can_be_used_a_person_decides(time_skipping: WorkflowEnvironment) -> None:
    async with training_bench(time_skipping, DONE, checkpoints=[checkpoint(60, Level.LISTED)]) as bench:
        with time_skipping.with_time_skipping_disabled():
            await bench.start()
            view = await bench.until(JobStage.HELD)
            assert "none can be used" in view.waiting_for
            assert "there are: none" in await bench.refused(JobCommandKind.FROM_STEP, step=60)
            await bench.say(JobCommandKind.FROM_STEP, step=0)
            assert (await bench.result()).outcome is JobOutcome.SUCCEEDED
        assert bench.cluster.plans[0].resume is None


async def test_a_listing_that_was_denied_never_means_that_there_is_nothing(time_skipping: WorkflowEnvironment) -> None:
    async with training_bench(time_skipping, DONE, listing_complete=False) as bench:
        await bench.start()
        result = await bench.result()
        assert result.outcome is JobOutcome.FAILED
        assert "denied" in result.reason
        assert bench.cluster.plans == []


async def test_a_foreign_object_of_that_name_is_never_touched(time_skipping: WorkflowEnvironment) -> None:
    async with training_bench(time_skipping, DONE, foreign="Job default/run-a1 is nobody's") as bench:
        with time_skipping.with_time_skipping_disabled():
            await bench.start()
            view = await bench.until(JobStage.HELD)
            assert "nobody's" in view.waiting_for
            bench.cluster.foreign = ""
            await bench.say(JobCommandKind.RETRY)
            assert (await bench.result()).outcome is JobOutcome.SUCCEEDED


async def test_what_the_cluster_refuses_for_good_waits_for_a_person(time_skipping: WorkflowEnvironment) -> None:
    async with training_bench(time_skipping, DONE, fails={"create_attempt": REFUSED}) as bench:
        with time_skipping.with_time_skipping_disabled():
            await bench.start()
            await bench.until(JobStage.HELD)
            bench.cluster.fails.clear()
            await bench.say(JobCommandKind.RETRY)
            assert (await bench.result()).outcome is JobOutcome.SUCCEEDED
