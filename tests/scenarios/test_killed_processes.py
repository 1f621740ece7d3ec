"""kill -9 of the controller in each stage of an incident, and of Temporal: all end the same, and no step happens twice.

Stages and steps are observed from outside: by Temporal's own record, which needs no controller, and by what happened to
the machines.
"""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from sickbay.faults import Rung
from sickbay.incident import CommandKind, IncidentResult, Outcome, Stage
from simulator.machine import Power
from tests.scenarios import faults
from tests.scenarios.case import Case
from tests.scenarios.cluster import Cluster
from tests.scenarios.stories import POLICY, Stories, Story, telling, title
from tests.scenarios.temporal_process import killed_and_started_again
from tests.scenarios.waiting import seen

pytestmark = [pytest.mark.scenario, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(400)]

SCENARIO = """
speed: 20
times: {boot: 20, reboot: 80, gpu_reset: 60}
pools:
  - {name: p5, kind: karpenter, nodes: 4}
  - {name: narrow, kind: karpenter, nodes: 2}
jobs:
  - {name: llama, pool: p5, workers: 4, stop_seconds: 40}
"""
POOLS = """
pools:
  narrow: {budget: {max_unavailable: {count: 1, percent: 100}}}
  p5: {tolerance: 10s, faults: {xid-79: {tolerance: 0s}, xid-64: {tolerance: 0s}}}
"""


async def kill_in(stage: Stage, case: Case) -> None:
    """SIGKILL for the controller when the incident is first seen in this stage; another one is started."""
    controller = case.cluster.controller
    await case.comes_to(stage)
    async with controller.turn:
        await controller.kill()
        assert await case.stage() is stage, f"{case.name} went on before the kill"
        await controller.start()


async def told_once(case: Case, *reasons: str) -> None:
    """Each of these Events is on the node once."""
    for reason in ("SickbayIncidentOpened", *reasons):
        assert len(await case.cluster.events(case.name, reason)) == 1, reason


async def returned_by(case: Case, result: IncidentResult, rung: Rung, *, boots: int, resets: int) -> None:
    """The incident ended as it would have without any kill."""
    assert (result.outcome, result.rung) == (Outcome.RETURNED, rung), await case.account()
    assert [(intent.rung, intent.attempt) for intent in result.view.intents] == [(rung, 1)]
    machine = await case.machine()
    assert (machine.boots, machine.gpu_resets) == (boots, resets)
    assert await case.incidents() == 1
    await told_once(case, "SickbayIncidentClosed")


async def killed_while_contained_awaiting_a_permit_and_resetting(stage: Cluster) -> None:
    case = await Case.of(stage, "narrow-0")
    await stage.cordon("narrow-1")  # a person's: it takes up the pool's budget
    await stage.delay("POST", "/events$", seconds=3, times=1)
    await case.falls_ill(faults.NEEDS_RESET)
    await kill_in(Stage.CONTAINED, case)
    await kill_in(Stage.AWAITING_PERMIT, case)
    await stage.cordon("narrow-1", on=False)
    await kill_in(Stage.REPAIRING, case)
    await returned_by(case, await case.ends(), Rung.RESET_GPU, boots=1, resets=1)


async def killed_while_observing_draining_verifying_and_soaking(stage: Cluster) -> None:
    case = await Case.of(stage, "p5-0")
    await seen("the first kill", lambda: started_again(stage))
    await case.falls_ill(faults.NEEDS_RESET)
    for killed_in in (Stage.OBSERVING, Stage.DRAINING, Stage.VERIFYING, Stage.SOAKING):
        await kill_in(killed_in, case)
    await returned_by(case, await case.ends(), Rung.RESET_GPU, boots=1, resets=1)


async def started_again(stage: Cluster) -> bool:
    return stage.controller.starts > 1


async def past_observing(stage: Cluster) -> None:
    """A kill would make the story that is killed while it observes miss its moment."""
    await (await Case.of(stage, "p5-0")).comes_to(Stage.DRAINING)


async def killed_during_a_reboot(stage: Cluster) -> None:
    case = await Case.of(stage, "p5-1")
    await past_observing(stage)
    await case.falls_ill(faults.NEEDS_REBOOT)
    await kill_in(Stage.REPAIRING, case)
    await returned_by(case, await case.ends(), Rung.REBOOT, boots=2, resets=0)


async def killed_while_awaiting_approval_and_during_a_replacement(stage: Cluster) -> None:
    case = await Case.of(stage, "p5-2")
    machines = await case.pool_machines()
    await past_observing(stage)
    await case.falls_ill(faults.NEEDS_REPLACEMENT)
    await kill_in(Stage.AWAITING_APPROVAL, case)
    await case.order(CommandKind.APPROVE, Rung.REPLACE)
    await kill_in(Stage.REPAIRING, case)
    result = await case.ends()
    assert (result.outcome, result.rung) == (Outcome.REPLACED, Rung.REPLACE), await case.account()
    assert len(result.view.intents) == 1
    assert (await case.machine()).power is Power.OFF
    assert await case.pool_machines() == machines + 1
    await told_once(case, "SickbayApprovalNeeded")


STORIES: tuple[Story, ...] = (
    killed_while_contained_awaiting_a_permit_and_resetting,
    killed_while_observing_draining_verifying_and_soaking,
    killed_during_a_reboot,
    killed_while_awaiting_approval_and_during_a_replacement,
)


async def temporal_killed_in_the_middle_of_a_reset(stage: Cluster) -> None:
    case = await Case.of(stage, "p5-3")
    await case.falls_ill(faults.NEEDS_RESET)
    await case.comes_to(Stage.REPAIRING)
    async with killed_and_started_again(stage.stage.folder):
        await returned_by(case, await case.ends(), Rung.RESET_GPU, boots=1, resets=1)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def told(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Stories]:
    async with telling(SCENARIO, POLICY + POOLS, tmp_path_factory.mktemp("killed"), STORIES) as stories:
        yield stories


@pytest.mark.parametrize("story", STORIES, ids=title)
async def test_story_of_the_controller(told: Stories, story: Story) -> None:
    await told.end_of(story)


async def test_story_of_temporal(told: Stories) -> None:
    await told.all_over()  # whose own deaths are enough for them
    await told.tell(temporal_killed_in_the_middle_of_a_reset)
