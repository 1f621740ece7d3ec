"""GPU clients that run as pods, on real processes: a reset needs them out of the way, and puts them back."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from sickbay.faults import Rung
from sickbay.gpu_clients import DEPLOY_LABEL
from sickbay.incident import Outcome
from tests.scenarios import faults
from tests.scenarios.case import Case
from tests.scenarios.cluster import Cluster
from tests.scenarios.stories import POLICY, Stories, Story, telling, title
from tests.scenarios.waiting import seen

pytestmark = [pytest.mark.scenario, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(300)]

SCENARIO = """
speed: 20
times: {boot: 20, reboot: 60, gpu_reset: 20}
pools:
  - {name: p5, kind: karpenter, nodes: 1, gpu_operator: true}
  - {name: unpaused, kind: karpenter, nodes: 1, gpu_operator: true}
"""
UNPAUSED_POOL = """
pools:
  unpaused: {gpu_clients: {operands: []}}
"""
RUNNING = ("dcgm-exporter", "device-plugin")


async def deploy_labels(case: Case) -> dict[str, str]:
    labels = (await case.node()).metadata.labels
    return {label: value for label, value in labels.items() if label.startswith(DEPLOY_LABEL)}


async def operands_run(case: Case) -> None:
    """Wait until the operator's pods are on the node and its GPUs are allocatable."""

    async def there() -> bool:
        pods = await case.cluster.pods_on(case.name)
        allocatable = (await case.node()).status.allocatable.get("nvidia.com/gpu")
        return allocatable == "8" and all(any(operand in pod for pod in pods) for operand in RUNNING)

    await seen(f"{case.name} runs its operands", there)


async def a_reset_pauses_the_operators_pods_and_puts_them_back_as_they_were(stage: Cluster) -> None:
    case = await Case.of(stage, "p5-0")
    await stage.change_node(case.name, {"metadata": {"labels": {f"{DEPLOY_LABEL}mig-manager": "false"}}})
    await operands_run(case)
    labels, pods = await deploy_labels(case), await stage.pods_on(case.name)
    await case.falls_ill(faults.NEEDS_RESET)
    result = await case.ends()
    assert (result.outcome, result.rung) == (Outcome.RETURNED, Rung.RESET_GPU), await case.account()
    machine = await case.machine()
    assert (machine.boots, machine.gpu_resets) == (1, 1)
    assert await deploy_labels(case) == labels
    await operands_run(case)
    assert set((await stage.pods_on(case.name)).values()).isdisjoint(pods.values())
    assert "GPU clients paused: dcgm-exporter, device-plugin" in await case.account()


async def without_a_pause_the_reset_is_refused_and_the_ladder_climbs(stage: Cluster) -> None:
    case = await Case.of(stage, "unpaused-0")
    await operands_run(case)
    await case.falls_ill(faults.NEEDS_RESET)
    result = await case.ends()
    assert (result.outcome, result.rung) == (Outcome.RETURNED, Rung.REBOOT), await case.account()
    machine = await case.machine()
    assert (machine.boots, machine.gpu_resets) == (2, 0)
    assert "a process still uses the GPU" in result.view.intents[0].failure


STORIES: tuple[Story, ...] = (
    a_reset_pauses_the_operators_pods_and_puts_them_back_as_they_were,
    without_a_pause_the_reset_is_refused_and_the_ladder_climbs,
)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def told(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Stories]:
    folder = tmp_path_factory.mktemp("gpu-clients")
    async with telling(SCENARIO, POLICY + UNPAUSED_POOL, folder, STORIES) as stories:
        yield stories


@pytest.mark.parametrize("story", STORIES, ids=title)
async def test_story(told: Stories, story: Story) -> None:
    await told.end_of(story)
