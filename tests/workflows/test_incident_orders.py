"""Orders and faults that come at the worst moment: in the middle of a drain, of the last look, of the undoing."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest
from temporalio.client import WorkflowFailureError
from temporalio.testing import WorkflowEnvironment

from sickbay.faults import FaultClass, Rung
from sickbay.incident import CommandKind, HandoverReason, Outcome, Stage
from sickbay.nodes import OwnerKind
from tests.workflows.fake_world import fault
from tests.workflows.incident_bench import Bench, incident_bench, leaves_nothing, quick_policy

pytestmark = pytest.mark.asyncio(loop_scope="session")

WORSE = fault("xid-79", Rung.REBOOT)


def assert_drain_stopped_before(bench: Bench, later: str) -> None:
    assert bench.world.log.index("drain stopped") < bench.world.log.index(later)


async def test_a_hold_stops_the_drain_and_its_release_begins_it_anew(time_skipping: WorkflowEnvironment) -> None:
    async with incident_bench(time_skipping, budget="grant", drain_hangs=True) as bench:
        with time_skipping.with_time_skipping_disabled():
            await bench.start()
            await bench.until_act("drain_node")
            await bench.say(CommandKind.HOLD)
            await bench.until(Stage.HELD)
            assert "drain stopped" in bench.world.log
            assert bench.world.acts["reset_gpus"] == 0
            bench.world.drain_hangs = False
            await bench.say(CommandKind.RELEASE)
            await bench.until(Stage.SOAKING)
            assert bench.world.acts["drain_node"] == 2
            await bench.handle.terminate()


async def test_a_hold_that_is_released_while_the_drain_still_stops_ends_nothing(
    time_skipping: WorkflowEnvironment,
) -> None:
    async with incident_bench(time_skipping, budget="grant", drain_hangs=True) as bench:
        with time_skipping.with_time_skipping_disabled():
            await bench.start()
            await bench.until_act("drain_node")
            await bench.say(CommandKind.HOLD)
            await bench.say(CommandKind.RELEASE)
            bench.world.drain_hangs = False
            await bench.until(Stage.SOAKING)
            await bench.handle.terminate()


async def test_a_withdrawal_stops_the_drain_before_marks_are_undone(time_skipping: WorkflowEnvironment) -> None:
    async with incident_bench(time_skipping, budget="grant", drain_hangs=True) as bench:
        with time_skipping.with_time_skipping_disabled():
            await bench.start()
            await bench.until_act("drain_node")
            await bench.say(CommandKind.WITHDRAW)
            assert (await bench.result()).outcome is Outcome.WITHDRAWN
        assert_drain_stopped_before(bench, "release_node")
        assert leaves_nothing(bench.world)


async def test_a_cancellation_stops_the_drain_before_marks_are_undone(time_skipping: WorkflowEnvironment) -> None:
    async with incident_bench(time_skipping, budget="grant", drain_hangs=True) as bench:
        with time_skipping.with_time_skipping_disabled():
            await bench.start()
            await bench.until_act("drain_node")
            await _cancelled(bench)
        assert_drain_stopped_before(bench, "release_node")
        assert leaves_nothing(bench.world)
        assert not bench.world.cordoned


async def test_a_worse_fault_stops_the_drain_and_empties_the_node_for_the_stronger_rung(
    time_skipping: WorkflowEnvironment,
) -> None:
    async with incident_bench(time_skipping, budget="grant", drain_hangs=True, cured_by=Rung.REBOOT) as bench:
        with time_skipping.with_time_skipping_disabled():
            await bench.start()
            await bench.until_act("drain_node")
            await bench.report(WORSE)
            await bench.until_act("drain_node", 2)
            bench.world.drain_hangs = False
            view = await bench.until(Stage.SOAKING)
            await bench.handle.terminate()
        assert [intent.rung for intent in view.intents] == [Rung.REBOOT]
        assert bench.world.acts["reset_gpus"] == 0


async def test_a_fault_that_passes_stops_the_drain(time_skipping: WorkflowEnvironment) -> None:
    async with incident_bench(time_skipping, budget="grant", drain_hangs=True) as bench:
        with time_skipping.with_time_skipping_disabled():
            await bench.start()
            await bench.until_act("drain_node")
            await bench.clear()
            await bench.until(lambda view: "stay away" in view.waiting_for)
            await bench.skip(timedelta(minutes=6))
            assert (await bench.result()).outcome is Outcome.WITHDRAWN
        assert "drain stopped" in bench.world.log


@pytest.mark.parametrize("kind", [CommandKind.HOLD, CommandKind.WITHDRAW])
async def test_an_order_during_the_last_probe_keeps_the_rung_from_acting(
    time_skipping: WorkflowEnvironment, kind: CommandKind
) -> None:
    async with incident_bench(time_skipping, budget="grant") as bench:
        with time_skipping.with_time_skipping_disabled():
            bench.world.gates["probe_host"] = asyncio.Event()
            await bench.start()
            await bench.until_act("probe_host")
            await bench.say(kind)
            bench.world.gates["probe_host"].set()
            await bench.until(Stage.HELD if kind is CommandKind.HOLD else Stage.CLOSED)
            await bench.handle.terminate() if kind is CommandKind.HOLD else await bench.result()
        assert bench.world.acts["reset_gpus"] == 0


async def test_an_uncordon_before_the_drain_keeps_it_from_beginning(time_skipping: WorkflowEnvironment) -> None:
    async with incident_bench(time_skipping, budget="grant", owner=OwnerKind.NOBODY) as bench:
        with time_skipping.with_time_skipping_disabled():

            def uncordoned() -> None:
                bench.world.uncordoned_by_person = bench.world.acts["observe_node"] > 1

            bench.world.on["observe_node"] = uncordoned
            await bench.start()
            view = await bench.until(Stage.HANDED_OVER)
            await bench.handle.terminate()
        assert view.handover is HandoverReason.PERSON_RELEASED
        assert bench.world.acts["drain_node"] == 0


async def test_a_hold_in_the_soak_has_the_node_verified_and_soaked_anew(time_skipping: WorkflowEnvironment) -> None:
    async with incident_bench(time_skipping, budget="grant") as bench:
        with time_skipping.with_time_skipping_disabled():
            await bench.start()
            first = await bench.until(Stage.SOAKING)
            await bench.say(CommandKind.HOLD)
            await bench.until(Stage.HELD)
            await bench.say(CommandKind.RELEASE)
            again = await bench.until(Stage.SOAKING)
            assert first.waiting_until is not None
            assert again.waiting_until is not None
            assert again.waiting_until > first.waiting_until
            await bench.skip(timedelta(minutes=20))
            result = await bench.result()
        assert (result.outcome, result.rung) == (Outcome.RETURNED, Rung.RESET_GPU)
        assert bench.world.acts["reset_gpus"] == 1


async def test_a_relapse_while_it_is_held_in_the_soak_is_a_failed_verification(
    time_skipping: WorkflowEnvironment,
) -> None:
    async with incident_bench(time_skipping, budget="grant") as bench:
        with time_skipping.with_time_skipping_disabled():
            await bench.start()
            await bench.until(Stage.SOAKING)
            await bench.say(CommandKind.HOLD)
            await bench.until(Stage.HELD)
            await bench.report(WORSE)
            await bench.say(CommandKind.RELEASE)
            view = await bench.until(lambda view: view.rung is Rung.REBOOT and view.stage is Stage.SOAKING)
            await bench.handle.terminate()
        assert "xid-79" in view.intents[0].failure


@asynccontextmanager
async def ended_by(environment: WorkflowEnvironment, kind: CommandKind) -> AsyncIterator[Bench]:
    """An incident that a person has ended, and whose marks are being undone while the block runs."""
    found = fault("driver-mismatch", Rung.HUMAN, FaultClass.DRIVER)
    async with incident_bench(environment, budget="grant", fault=found) as bench:
        with environment.with_time_skipping_disabled():
            bench.world.gates["release_node"] = asyncio.Event()
            await bench.start()
            await bench.until(Stage.HANDED_OVER)
            await bench.say(kind)
            await bench.until_act("release_node")
            yield bench


async def test_while_marks_are_undone_no_order_is_taken_any_more(time_skipping: WorkflowEnvironment) -> None:
    async with ended_by(time_skipping, CommandKind.CLOSE) as bench:
        assert "closed" in await bench.refused(CommandKind.CHOOSE_RUNG, rung=Rung.REBOOT)
        bench.world.gates["release_node"].set()
        assert (await bench.result()).outcome is Outcome.HANDED_OVER
        assert leaves_nothing(bench.world)


async def test_a_fault_that_comes_while_marks_are_undone_is_nobodys_decision(
    time_skipping: WorkflowEnvironment,
) -> None:
    async with ended_by(time_skipping, CommandKind.WITHDRAW) as bench:
        await bench.report(fault("xid-79", Rung.REBOOT))
        bench.world.gates["release_node"].set()
        # The watch takes the faults of a withdrawn incident for known to the person who withdrew it.
        assert [each.code for each in (await bench.result()).view.faults] == ["driver-mismatch"]


async def test_a_cancellation_while_marks_are_undone_leaves_none(time_skipping: WorkflowEnvironment) -> None:
    async with ended_by(time_skipping, CommandKind.CLOSE) as bench:
        await bench.handle.cancel()
        bench.world.gates["release_node"].set()
        assert (await bench.result()).outcome is Outcome.HANDED_OVER
        assert leaves_nothing(bench.world)
        assert not bench.world.cordoned


async def test_a_cancellation_that_an_ending_activity_swallows_is_heeded_all_the_same(
    time_skipping: WorkflowEnvironment,
) -> None:
    async with incident_bench(time_skipping, budget="grant") as bench:
        with time_skipping.with_time_skipping_disabled():
            bench.world.gates["reset_gpus"] = asyncio.Event()
            await bench.start()
            await bench.until_act("reset_gpus")
            await bench.handle.cancel()
            await asyncio.sleep(0.2)
            bench.world.gates["reset_gpus"].set()
            with pytest.raises(WorkflowFailureError):
                await asyncio.wait_for(bench.handle.result(), 60)
        assert leaves_nothing(bench.world)
        assert not bench.world.cordoned


async def test_a_withdrawal_is_obeyed_while_somebody_else_takes_the_node(time_skipping: WorkflowEnvironment) -> None:
    async with incident_bench(time_skipping, claim_deleting=True) as bench:
        with time_skipping.with_time_skipping_disabled():
            await bench.start()
            await bench.until(lambda view: "to go" in view.waiting_for)
            await bench.say(CommandKind.WITHDRAW)
            assert (await bench.result()).outcome is Outcome.WITHDRAWN
        assert leaves_nothing(bench.world)


async def test_a_removal_by_somebody_else_that_does_not_end_goes_to_a_person(
    time_skipping: WorkflowEnvironment,
) -> None:
    policy = quick_policy(verify_every=timedelta(minutes=30))
    async with incident_bench(time_skipping, policy, claim_deleting=True) as bench:
        await bench.start()
        result = await bench.result()
        assert (result.outcome, result.handover) == (Outcome.HANDED_OVER, HandoverReason.FOREIGN_LOCK)
        assert bench.world.acts["drain_node"] == 0


async def _cancelled(bench: Bench) -> None:
    await bench.handle.cancel()
    with pytest.raises(WorkflowFailureError):
        await asyncio.wait_for(bench.handle.result(), 60)
