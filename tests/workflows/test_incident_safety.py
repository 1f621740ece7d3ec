"""What must hold at the moment of an act, whatever happened since it was decided."""

from datetime import timedelta

import pytest
from temporalio.exceptions import ApplicationError
from temporalio.testing import WorkflowEnvironment

from sickbay import search_attributes
from sickbay.faults import Rung
from sickbay.incident import CommandKind, Outcome, Stage
from sickbay.policy.model import ApprovalNeed, RungPolicy
from tests.workflows.fake_world import fault
from tests.workflows.incident_bench import incident_bench, leaves_nothing, quick_policy

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_a_node_that_took_new_work_after_its_drain_is_drained_anew(time_skipping: WorkflowEnvironment) -> None:
    async with incident_bench(time_skipping) as bench:
        world = bench.world

        def uncordoned_by_software() -> None:
            world.cordoned = world.acts["drain_node"] > 1

        def cordoned_again() -> None:
            world.cordoned = True

        world.on |= {"drain_node": uncordoned_by_software, "contain_node": cordoned_again}
        await bench.start()
        assert (await bench.result()).outcome is Outcome.RETURNED
        acts = [act for act in world.log if act in ("contain_node", "drain_node", "reset_gpus")]
        assert acts == ["contain_node", "drain_node", "contain_node", "drain_node", "reset_gpus"]
        assert leaves_nothing(world)


async def test_a_yes_is_spent_once_nothing_is_asked_any_more(time_skipping: WorkflowEnvironment) -> None:
    asks = RungPolicy(approval=ApprovalNeed.ALWAYS, deadline=timedelta(hours=1))
    async with incident_bench(time_skipping, quick_policy(reset_gpu=asks), budget="silent") as bench:
        with time_skipping.with_time_skipping_disabled():
            await bench.start()
            await bench.until(Stage.AWAITING_APPROVAL)
            await bench.say(CommandKind.APPROVE, rung=Rung.RESET_GPU)
            await bench.until(Stage.AWAITING_PERMIT)
            await bench.clear()
            await bench.until(Stage.OBSERVING)
            await bench.report(fault("xid-95", Rung.RESET_GPU))
            await bench.until(Stage.AWAITING_APPROVAL)
            await bench.say(CommandKind.WITHDRAW)
            assert (await bench.result()).outcome is Outcome.WITHDRAWN
        assert bench.world.acts["reset_gpus"] == 0


async def test_a_slow_host_is_waited_for_though_it_cannot_be_rebooted_from_outside(
    time_skipping: WorkflowEnvironment,
) -> None:
    denied = ApplicationError("ec2:RebootInstances is denied", type="aws-denied", non_retryable=True)
    async with incident_bench(
        time_skipping, fault=fault("xid-79", Rung.REBOOT), cured_by=Rung.REBOOT, reboot_works=False
    ) as bench:
        world = bench.world

        def back_at_last() -> None:
            if world.acts["wait_for_boot"] == 2:
                world.boot_id, world.sick = "boot-2", False

        world.on["wait_for_boot"] = back_at_last
        world.fails["reboot_instance"] = denied
        await bench.start()
        result = await bench.result()
        assert (result.outcome, result.rung) == (Outcome.RETURNED, Rung.REBOOT)
        assert world.acts["reboot_host"] == world.acts["reboot_instance"] == 1


async def test_an_attribute_that_the_namespace_lacks_does_not_stop_an_incident(
    time_skipping: WorkflowEnvironment,
) -> None:
    async with incident_bench(time_skipping) as bench:
        await bench.start(attributes_missing=(search_attributes.STAGE.name, search_attributes.OUTCOME.name))
        assert (await bench.result()).outcome is Outcome.RETURNED
        known = (await bench.handle.describe()).typed_search_attributes
        assert known.get(search_attributes.STAGE) is None
        assert known.get(search_attributes.OUTCOME) is None
        assert known[search_attributes.RUNG] == Rung.RESET_GPU
