"""What must hold at the moment of an act, whatever happened since it was decided."""

import pytest
from temporalio.testing import WorkflowEnvironment

from sickbay.incident import Outcome
from tests.workflows.incident_bench import incident_bench, leaves_nothing

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
