"""What only a further layer of health sees, on real processes: from the reading on the host to the incident's end."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from sickbay import names
from sickbay.faults import Rung
from sickbay.incident import CommandKind, Outcome, Stage
from simulator.host.cuda_trouble import CudaTrouble
from simulator.host.faults import Cure, HostFault, HostTrouble
from simulator.host.gpu import GpuTrouble
from tests.scenarios.case import Case
from tests.scenarios.cluster import Cluster
from tests.scenarios.stories import POLICY, Stories, Story, telling, title
from tests.scenarios.waiting import seen

pytestmark = [pytest.mark.scenario, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(300)]

SCENARIO = """
speed: 20
times: {boot: 20, reboot: 60, gpu_reset: 20}
pools:
  - {name: p5, kind: karpenter, nodes: 3}
"""

FAILS_AT_WORK = HostFault(
    name="answers every query, and computes wrongly",
    gpu=3,
    gpu_trouble=GpuTrouble(cuda=CudaTrouble(wrong_result=True)),
    cured_by=Cure.RESET,
)
FABRIC_MANAGER_DEAD = HostFault(
    name="no fabric manager", host_trouble=HostTrouble(fabric_manager_dead=True), cured_by=Cure.REPLACE
)
DRIVER_HANGS = HostFault(
    name="the driver answers nobody for a while",
    host_trouble=HostTrouble(driver_hangs=True),
    cured_by=Cure.ITSELF,
    passes_after=700,
)


async def condition(case: Case, name: str) -> tuple[str, str]:
    """Status and message of one of our conditions."""
    found = (await case.node()).condition(name)
    return (found.status, found.message) if found else ("", "")


async def a_gpu_that_fails_only_at_work_is_found_while_idle_and_reset(stage: Cluster) -> None:
    case = await Case.of(stage, "p5-0")
    await case.falls_ill(FAILS_AT_WORK)
    result = await case.ends()
    assert (result.outcome, result.rung) == (Outcome.RETURNED, Rung.RESET_GPU), await case.account()
    assert "opened: gpu-wrong-result on gpu" in await case.account()
    assert (await case.machine()).gpu_resets == 1


async def a_dead_fabric_manager_is_told_to_people_though_the_gpus_read_well(stage: Cluster) -> None:
    case = await Case.of(stage, "p5-1")
    await case.falls_ill(FABRIC_MANAGER_DEAD)
    # A new agent looks at everything at once.
    await stage.kill_agent(case.instance_id)
    await case.comes_to(Stage.HANDED_OVER)
    status, message = await condition(case, names.CONDITION_FABRIC)
    assert status == "False"
    assert "fabric-manager-down" in message
    assert "since" in message
    machine = await case.machine()
    assert (machine.boots, machine.gpu_resets) == (1, 0)
    await case.order(CommandKind.CLOSE)
    await case.ends()


async def a_driver_that_hangs_blocks_new_work_and_nothing_is_done_to_the_node(stage: Cluster) -> None:
    case = await Case.of(stage, "p5-2")
    await case.falls_ill(DRIVER_HANGS)
    await case.comes_to(Stage.OBSERVING)
    assert (await case.node()).spec.unschedulable

    async def unknown() -> bool:
        return (await condition(case, names.CONDITION_GPU))[0] == "Unknown"

    await seen("nobody knows how the GPUs are", unknown)
    result = await case.ends()
    assert (result.outcome, result.rung) == (Outcome.WITHDRAWN, Rung.NONE), await case.account()
    machine = await case.machine()
    assert (machine.boots, machine.gpu_resets) == (1, 0)


STORIES: tuple[Story, ...] = (
    a_gpu_that_fails_only_at_work_is_found_while_idle_and_reset,
    a_dead_fabric_manager_is_told_to_people_though_the_gpus_read_well,
    a_driver_that_hangs_blocks_new_work_and_nothing_is_done_to_the_node,
)
AGENT_SETTINGS = {"SICKBAY_ACTIVE_SECONDS": "10", "SICKBAY_NVML_SECONDS": "2"}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def told(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Stories]:
    folder = tmp_path_factory.mktemp("health-layers")
    async with telling(SCENARIO, POLICY, folder, STORIES, agent_settings=AGENT_SETTINGS) as stories:
        yield stories


@pytest.mark.parametrize("story", STORIES, ids=title)
async def test_story(told: Stories, story: Story) -> None:
    await told.end_of(story)
