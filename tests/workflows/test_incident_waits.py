"""What an incident waits for, what it shows meanwhile, and what it does when the world does not answer."""

import asyncio
from datetime import timedelta

import pytest
from temporalio.exceptions import ApplicationError
from temporalio.testing import WorkflowEnvironment

from sickbay.faults import FaultClass, Rung
from sickbay.incident import CommandKind, HandoverReason, Outcome, Stage
from sickbay.names import budget_id
from sickbay.nodes import OwnerKind
from sickbay.policy.model import RungPolicy
from tests.workflows.fake_world import fault
from tests.workflows.incident_bench import incident_bench, leaves_nothing, quick_policy

pytestmark = pytest.mark.asyncio(loop_scope="session")

REFUSED = ApplicationError("the API server is out of order", non_retryable=True)


async def test_whom_a_permit_waits_for_is_shown(time_skipping: WorkflowEnvironment) -> None:
    async with incident_bench(time_skipping, budget="wait") as bench:
        with time_skipping.with_time_skipping_disabled():
            await bench.start()
            view = await bench.until(lambda view: "node-7 is out" in view.waiting_for)
            assert view.stage is Stage.AWAITING_PERMIT
            assert view.waiting_until is not None
            await bench.handle.terminate()


async def test_a_permit_that_is_taken_back_stops_the_drain_and_is_asked_for_anew(
    time_skipping: WorkflowEnvironment,
) -> None:
    async with incident_bench(time_skipping, budget="grant", drain_hangs=True) as bench:
        with time_skipping.with_time_skipping_disabled():
            await bench.start()
            await bench.until_act("drain_node")
            await bench.take_permit_back()
            await bench.until_act("drain_node", 2)
            assert "drain stopped" in bench.world.log
            assert bench.world.acts["reset_gpus"] == 0
            await bench.handle.terminate()


async def test_a_grant_that_comes_too_late_is_no_permit(time_skipping: WorkflowEnvironment) -> None:
    async with incident_bench(time_skipping, budget="refuse") as bench:
        with time_skipping.with_time_skipping_disabled():
            await bench.start()
            await bench.until(Stage.HANDED_OVER)
            await bench.grant()
            await bench.say(CommandKind.CHOOSE_RUNG, rung=Rung.RESET_GPU)
            await bench.until(lambda view: view.stage is Stage.HANDED_OVER and len(view.timeline) > 5)
            await bench.handle.terminate()
        assert bench.world.acts["drain_node"] == 0


async def test_a_permit_is_renewed_before_the_last_look(time_skipping: WorkflowEnvironment) -> None:
    async with incident_bench(time_skipping, budget="grant") as bench:
        with time_skipping.with_time_skipping_disabled():
            await bench.start()
            await bench.until(Stage.SOAKING)
            assert await bench.permit_renewals() == 1
            await bench.handle.terminate()


async def test_a_permit_that_no_budget_counts_any_more_disrupts_nothing(time_skipping: WorkflowEnvironment) -> None:
    async with incident_bench(time_skipping, budget="grant", drain_hangs=True) as bench:
        with time_skipping.with_time_skipping_disabled():
            await bench.start()
            await bench.until_act("drain_node")
            await bench.environment.client.get_workflow_handle(budget_id(bench.world.node.cluster)).terminate()
            bench.world.drain_hangs = False
            view = await bench.until(Stage.HANDED_OVER)
            await bench.handle.terminate()
        assert view.handover is HandoverReason.PERMIT_REFUSED
        assert bench.world.acts["reset_gpus"] == 0


@pytest.mark.parametrize(("owner", "times"), [(OwnerKind.KARPENTER, 1), (OwnerKind.AUTOSCALING_GROUP, 0)])
async def test_only_karpenter_is_asked_to_keep_its_hands_off_and_only_for_the_incident(
    time_skipping: WorkflowEnvironment, owner: OwnerKind, times: int
) -> None:
    async with incident_bench(time_skipping, owner=owner) as bench:
        protected_during_drain = []
        bench.world.on["drain_node"] = lambda: protected_during_drain.append(bench.world.protected)
        await bench.start()
        await bench.result()
        assert protected_during_drain == [bool(times)]
        assert (bench.world.acts["protect_node"], bench.world.acts["unprotect_node"]) == (times, times)
        assert leaves_nothing(bench.world)


async def test_an_outage_in_the_opening_is_shown_and_outlived(time_skipping: WorkflowEnvironment) -> None:
    policy = quick_policy(look_every=timedelta(minutes=10))
    async with incident_bench(time_skipping, policy, budget="grant", fails={"contain_node": REFUSED}) as bench:
        with time_skipping.with_time_skipping_disabled():
            await bench.start()
            view = await bench.until(lambda view: "out of order" in view.waiting_for)
            assert (view.stage, view.contained_at) == (Stage.OPENED, None)
            assert view.waiting_until is not None
            del bench.world.fails["contain_node"]
            await bench.skip(timedelta(minutes=11))
            await bench.until(Stage.SOAKING)
            await bench.handle.terminate()


async def test_an_incident_that_cannot_even_open_can_be_withdrawn(time_skipping: WorkflowEnvironment) -> None:
    async with incident_bench(time_skipping, budget="grant", fails={"contain_node": REFUSED}) as bench:
        with time_skipping.with_time_skipping_disabled():
            await bench.start()
            await bench.until(lambda view: "out of order" in view.waiting_for)
            await bench.say(CommandKind.WITHDRAW)
            assert (await bench.result()).outcome is Outcome.WITHDRAWN


async def test_after_an_outage_it_shows_again_what_it_waits_for(time_skipping: WorkflowEnvironment) -> None:
    policy = quick_policy(look_every=timedelta(hours=1), approval_deadline=timedelta(days=2))
    found = fault("row-remap-failed", Rung.REPLACE)
    async with incident_bench(time_skipping, policy, budget="grant", fault=found) as bench:
        with time_skipping.with_time_skipping_disabled():
            await bench.start()
            before = await bench.until(Stage.AWAITING_APPROVAL)
            bench.world.fails["observe_node"] = REFUSED
            await bench.skip(timedelta(minutes=61))
            await bench.until(lambda view: "out of order" in view.waiting_for)
            del bench.world.fails["observe_node"]
            await bench.skip(timedelta(minutes=61))
            after = await bench.until(lambda view: "approval" in view.waiting_for)
            await bench.handle.terminate()
        assert after.waiting_until == before.waiting_until


async def test_a_machine_that_never_passes_its_verification_climbs_to_a_person(
    time_skipping: WorkflowEnvironment,
) -> None:
    policy = quick_policy(
        replace=RungPolicy(enabled=False, deadline=timedelta(hours=1)), verify_every=timedelta(minutes=5)
    )
    async with incident_bench(time_skipping, policy, unhealthy=True) as bench:
        await bench.start()
        result = await bench.result()
        assert (result.outcome, result.handover) == (Outcome.HANDED_OVER, HandoverReason.LADDER_EXHAUSTED)
        assert [intent.rung for intent in result.view.intents] == [Rung.RESET_GPU, Rung.REBOOT]
        assert all(intent.proof and "health condition" in intent.failure for intent in result.view.intents)


async def test_monitor_trouble_that_passes_while_it_is_watched_withdraws_the_incident(
    time_skipping: WorkflowEnvironment,
) -> None:
    found = fault("nvml-silent", Rung.BLOCK_NEW_WORK, FaultClass.MONITOR_UNAVAILABLE)
    async with incident_bench(time_skipping, budget="grant", fault=found) as bench:
        with time_skipping.with_time_skipping_disabled():
            await bench.start()
            await bench.until(lambda view: "the trouble to pass" in view.waiting_for)
            assert bench.world.cordoned
            await bench.clear()
            await bench.until(lambda view: "stay away" in view.waiting_for)
            await bench.skip(timedelta(minutes=6))
            assert (await bench.result()).outcome is Outcome.WITHDRAWN
        assert bench.world.acts["drain_node"] == 0
        assert not bench.world.cordoned


async def test_a_reboot_whose_answer_is_lost_with_the_host_is_not_asked_for_again(
    time_skipping: WorkflowEnvironment,
) -> None:
    async with incident_bench(
        time_skipping, fault=fault("xid-79", Rung.REBOOT), fails={"reboot_host": REFUSED}
    ) as bench:

        def goes_down_with_its_answer() -> None:
            bench.world.boot_id, bench.world.sick = "boot-2", False

        bench.world.on["reboot_host"] = goes_down_with_its_answer
        await bench.start()
        result = await bench.result()
        assert (result.outcome, result.rung) == (Outcome.RETURNED, Rung.REBOOT)
        assert bench.world.acts["reboot_instance"] == 0


async def test_a_probe_that_fails_after_the_reset_is_tried_again_before_a_stronger_rung(
    time_skipping: WorkflowEnvironment,
) -> None:
    async with incident_bench(time_skipping) as bench:
        left = iter(range(2))

        def fails_twice_after_the_reset() -> None:
            failing = bench.world.acts["reset_gpus"] > 0 and next(left, None) is not None
            bench.world.fails = {"probe_host": REFUSED} if failing else {}

        bench.world.on["probe_host"] = fails_twice_after_the_reset
        await bench.start()
        result = await bench.result()
        assert (result.outcome, result.rung) == (Outcome.RETURNED, Rung.RESET_GPU)


async def test_a_lock_of_somebody_else_is_told_once_however_long_it_lasts(time_skipping: WorkflowEnvironment) -> None:
    async with incident_bench(time_skipping, foreign_locks=("driver upgrade",)) as bench:
        await bench.start()
        result = await bench.result()
        assert sum("must not begin" in entry.text for entry in result.view.timeline) == 1


async def test_a_fault_that_comes_and_goes_is_kept_once(time_skipping: WorkflowEnvironment) -> None:
    async with incident_bench(time_skipping, budget="silent") as bench:
        with time_skipping.with_time_skipping_disabled():
            await bench.start()
            await bench.until(Stage.AWAITING_PERMIT)
            for _ in range(5):
                await bench.clear()
                await bench.report(bench.world.fault)
            await bench.clear()
            view = await bench.until(lambda view: not view.faults)
            await bench.handle.terminate()
        assert [found.code for found in view.cleared] == ["xid-119"]


async def test_a_flood_of_one_fault_is_one_fault(time_skipping: WorkflowEnvironment) -> None:
    async with incident_bench(time_skipping, budget="silent") as bench:
        with time_skipping.with_time_skipping_disabled():
            await bench.start()
            await bench.until(Stage.AWAITING_PERMIT)
            told = len((await bench.view()).timeline)
            repeats = [bench.world.fault.model_copy(update={"count": count}) for count in range(2, 102)]
            await asyncio.gather(*(bench.report(repeat) for repeat in repeats))
            view = await bench.until(lambda view: view.faults[0].count == 101)
            await bench.handle.terminate()
        assert len(view.faults) == 1
        assert len(view.timeline) == told


async def test_beyond_the_cap_new_work_is_blocked_only_with_a_permit(time_skipping: WorkflowEnvironment) -> None:
    async with incident_bench(time_skipping, budget="silent") as bench:
        with time_skipping.with_time_skipping_disabled():
            await bench.start(contain=False)
            await bench.until(Stage.AWAITING_PERMIT)
            assert not bench.world.cordoned
            await bench.grant()
            view = await bench.until(Stage.SOAKING)
            assert bench.world.cordoned
            assert view.contained_at is not None
            await bench.skip(timedelta(minutes=20))
            assert (await bench.result()).outcome is Outcome.RETURNED
        assert not bench.world.cordoned
        assert leaves_nothing(bench.world)
