"""What people, bots and other software do to an incident, and what it leaves of theirs."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest
from temporalio.client import WorkflowFailureError
from temporalio.exceptions import ApplicationError, CancelledError
from temporalio.testing import WorkflowEnvironment

from sickbay.faults import FaultClass, Rung
from sickbay.incident import CommandKind, FaultsCleared, HandoverReason, Outcome, Stage
from sickbay.policy.model import ApprovalNeed, RungPolicy
from tests.workflows.fake_world import fault
from tests.workflows.incident_bench import incident_bench, leaves_nothing, quick_policy
from workflows.node_incident import NodeIncident

pytestmark = pytest.mark.asyncio(loop_scope="session")

FREE = RungPolicy(approval=ApprovalNeed.NEVER, deadline=timedelta(hours=1))


async def test_hold_stops_it_and_release_lets_it_go_on(time_skipping: WorkflowEnvironment) -> None:
    async with incident_bench(time_skipping, budget="grant", fault=fault("row-remap-failed", Rung.REPLACE)) as bench:
        with time_skipping.with_time_skipping_disabled():
            await bench.start()
            await bench.until(Stage.AWAITING_APPROVAL)
            await bench.say(CommandKind.HOLD)
            await bench.until(Stage.HELD)
            assert "already holds" in await bench.refused(CommandKind.HOLD)
            assert "no approval" in await bench.refused(CommandKind.APPROVE, rung=Rung.REPLACE)
            await bench.say(CommandKind.RELEASE)
            await bench.until(Stage.AWAITING_APPROVAL)
            assert "not held" in await bench.refused(CommandKind.RELEASE)
            await bench.say(CommandKind.WITHDRAW)
            assert (await bench.result()).outcome is Outcome.WITHDRAWN


async def test_a_signal_is_checked_by_the_same_rules_and_its_refusal_is_shown(
    time_skipping: WorkflowEnvironment,
) -> None:
    async with incident_bench(time_skipping, budget="grant", fault=fault("row-remap-failed", Rung.REPLACE)) as bench:
        with time_skipping.with_time_skipping_disabled():
            await bench.start()
            await bench.until(Stage.AWAITING_APPROVAL)
            await bench.signal(CommandKind.APPROVE, rung=Rung.REBOOT)
            view = await bench.until(lambda view: any("was refused" in entry.text for entry in view.timeline))
            assert view.stage is Stage.AWAITING_APPROVAL
            await bench.signal(CommandKind.APPROVE, rung=Rung.REPLACE)
            assert (await bench.result()).outcome is Outcome.REPLACED


async def test_a_person_chooses_a_rung_after_the_handover(time_skipping: WorkflowEnvironment) -> None:
    found = fault("driver-mismatch", Rung.HUMAN, FaultClass.DRIVER)
    async with incident_bench(time_skipping, budget="grant", fault=found) as bench:
        with time_skipping.with_time_skipping_disabled():
            await bench.start()
            await bench.until(Stage.HANDED_OVER)
            await bench.say(CommandKind.CHOOSE_RUNG, rung=Rung.REBOOT)
            await bench.until(Stage.SOAKING)
            await bench.skip(timedelta(minutes=20))
            result = await bench.result()
        assert (result.outcome, result.rung) == (Outcome.RETURNED, Rung.REBOOT)


async def test_a_persons_uncordon_is_an_order(time_skipping: WorkflowEnvironment) -> None:
    async with incident_bench(time_skipping, uncordoned_by_person=True) as bench:
        with time_skipping.with_time_skipping_disabled():
            await bench.start()
            view = await bench.until(Stage.HANDED_OVER)
            assert view.handover is HandoverReason.PERSON_RELEASED
            await bench.handle.signal(NodeIncident.clear_faults, FaultsCleared(observed_at=datetime.now(UTC)))
            assert (await bench.result()).outcome is Outcome.WITHDRAWN
        assert bench.world.acts["reset_gpus"] == 0


async def test_a_node_that_somebody_deletes_is_only_watched(time_skipping: WorkflowEnvironment) -> None:
    async with incident_bench(time_skipping, claim_deleting=True) as bench:
        looks = iter(range(100))

        def goes_at_last() -> None:
            bench.world.exists = next(looks) < 5

        bench.world.on["observe_node"] = goes_at_last
        await bench.start()
        assert (await bench.result()).outcome is Outcome.NODE_GONE
        assert bench.world.acts["drain_node"] == bench.world.acts["delete_node_claim"] == 0


async def test_a_foreign_lock_is_respected_until_a_person_is_asked(time_skipping: WorkflowEnvironment) -> None:
    async with incident_bench(time_skipping, foreign_locks=("GPU driver upgrade: drain-required",)) as bench:
        assert await bench.handed_over() is HandoverReason.FOREIGN_LOCK
        assert bench.world.acts["reset_gpus"] == 0


async def test_an_error_that_is_final_goes_to_a_person(time_skipping: WorkflowEnvironment) -> None:
    refused = ApplicationError("instance is protected", type="aws-policy", non_retryable=True)
    async with incident_bench(
        time_skipping,
        quick_policy(replace=FREE),
        fault=fault("row-remap-failed", Rung.REPLACE),
        fails={"delete_node_claim": refused},
    ) as bench:
        assert await bench.handed_over() is HandoverReason.FINAL_ERROR


async def test_a_node_cordoned_by_a_person_stays_cordoned(time_skipping: WorkflowEnvironment) -> None:
    async with incident_bench(time_skipping, cordoned=True) as bench:
        await bench.start()
        assert (await bench.result()).outcome is Outcome.RETURNED
        assert bench.world.cordoned
        assert leaves_nothing(bench.world)


@pytest.mark.parametrize("stage", [Stage.AWAITING_APPROVAL, Stage.HANDED_OVER, Stage.SOAKING])
async def test_cancellation_undoes_every_mark(time_skipping: WorkflowEnvironment, stage: Stage) -> None:
    found = {
        Stage.AWAITING_APPROVAL: fault("row-remap-failed", Rung.REPLACE),
        Stage.HANDED_OVER: fault("driver-mismatch", Rung.HUMAN, FaultClass.DRIVER),
        Stage.SOAKING: fault("xid-119", Rung.RESET_GPU),
    }[stage]
    async with incident_bench(time_skipping, fault=found, budget="grant") as bench:
        with time_skipping.with_time_skipping_disabled():
            await bench.start()
            await bench.until(stage)
            await bench.handle.cancel()
            with pytest.raises(WorkflowFailureError) as caught:
                await asyncio.wait_for(bench.handle.result(), 60)
            assert isinstance(caught.value.cause, CancelledError)
        assert leaves_nothing(bench.world)
        assert not bench.world.cordoned
