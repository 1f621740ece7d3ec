"""The ladder on real processes: each fault is cured by the gentlest rung that can, by whoever owns the node."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from sickbay.faults import Rung
from sickbay.incident import CommandKind, HandoverReason, IncidentResult, Outcome, Stage
from simulator.machine import Power
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
  - {name: p5, kind: karpenter, nodes: 6}
  - {name: group, kind: autoscaling, nodes: 2}
  - {name: bare, kind: nobody, nodes: 1, instance_type: g5.xlarge}
jobs:
  - {name: llama, pool: p5, workers: 4}
"""
IMPATIENT_GROUP = """
pools:
  group: {host_pickup: 5s, faults: {node-not-ready: {tolerance: 2s}}}
"""


def ended(result: IncidentResult) -> tuple[Outcome, Rung]:
    return result.outcome, result.rung


async def a_fault_that_passes_by_itself_is_withdrawn_without_a_repair(stage: Cluster) -> None:
    case = await Case.of(stage, "p5-0")
    await case.falls_ill(faults.SILENT_FOR_A_WHILE)
    assert ended(await case.ends()) == (Outcome.WITHDRAWN, Rung.NONE)
    machine = await case.machine()
    assert (machine.boots, machine.gpu_resets) == (1, 0)


async def a_gpu_reset_cures_what_a_reset_can(stage: Cluster) -> None:
    case = await Case.of(stage, "p5-1")
    await case.falls_ill(faults.NEEDS_RESET)
    result = await case.ends()
    assert ended(result) == (Outcome.RETURNED, Rung.RESET_GPU)
    assert result.proof == "the same 8 GPUs answer and ask for nothing"
    machine = await case.machine()
    assert (machine.boots, machine.gpu_resets) == (1, 1)


async def a_lost_gpu_is_cured_by_a_reboot_at_once(stage: Cluster) -> None:
    case = await Case.of(stage, "p5-2")
    before = (await case.machine()).boot_id
    await case.falls_ill(faults.NEEDS_REBOOT)
    result = await case.ends()
    assert ended(result) == (Outcome.RETURNED, Rung.REBOOT)
    machine = await case.machine()
    assert (machine.boots, machine.gpu_resets) == (2, 0)
    assert before in result.proof
    assert machine.boot_id in result.proof


async def a_worn_out_gpu_has_its_node_replaced_once_a_person_says_yes(stage: Cluster) -> None:
    case = await Case.of(stage, "p5-3")
    await case.falls_ill(faults.NEEDS_REPLACEMENT)
    await case.comes_to(Stage.AWAITING_APPROVAL)
    assert (await case.machine()).power is Power.RUNNING
    await seen("a person is told", lambda: stage.events(case.name, "SickbayApprovalNeeded"))
    machines = await case.pool_machines()
    await case.order(CommandKind.APPROVE, Rung.REPLACE)
    result = await case.ends()
    assert ended(result) == (Outcome.REPLACED, Rung.REPLACE)
    assert case.instance_id in result.proof
    assert (await case.machine()).power is Power.OFF
    assert await case.pool_machines() == machines + 1


async def a_reset_that_does_not_cure_is_followed_by_a_reboot(stage: Cluster) -> None:
    case = await Case.of(stage, "p5-4")
    await case.falls_ill(faults.RESET_DOES_NOT_HELP)
    result = await case.ends()
    assert ended(result) == (Outcome.RETURNED, Rung.REBOOT)
    assert [intent.rung for intent in result.view.intents] == [Rung.RESET_GPU, Rung.REBOOT]
    assert result.view.intents[0].failure
    machine = await case.machine()
    assert (machine.boots, machine.gpu_resets) == (2, 1)


async def a_hung_host_is_rebooted_from_outside_though_ec2_throttles(stage: Cluster) -> None:
    case = await Case.of(stage, "group-0")
    await stage.throttle(2, "RebootInstances")
    await case.falls_ill(faults.HANGS)
    assert ended(await case.ends()) == (Outcome.RETURNED, Rung.REBOOT)
    assert (await case.machine()).boots == 2


async def an_auto_scaling_group_replaces_its_node(stage: Cluster) -> None:
    case = await Case.of(stage, "group-1")
    await case.falls_ill(faults.NEEDS_REPLACEMENT)
    await case.comes_to(Stage.AWAITING_APPROVAL)
    await case.order(CommandKind.APPROVE, Rung.REPLACE)
    assert ended(await case.ends()) == (Outcome.REPLACED, Rung.REPLACE)
    assert (await case.machine()).power is Power.OFF
    assert await case.pool_machines() == 3


async def a_node_that_nobody_makes_is_handed_over_and_stays_with_people(stage: Cluster) -> None:
    case = await Case.of(stage, "bare-0")
    await case.falls_ill(faults.NEEDS_REPLACEMENT)
    await case.comes_to(Stage.AWAITING_APPROVAL)
    await case.order(CommandKind.APPROVE, Rung.REPLACE)
    await case.comes_to(Stage.HANDED_OVER)
    assert (await case.view()).handover is HandoverReason.NO_OWNER
    assert (await case.machine()).power is Power.RUNNING
    await case.order(CommandKind.CLOSE)
    assert (await case.ends()).outcome is Outcome.HANDED_OVER
    assert (await case.machine()).boots == 1


STORIES: tuple[Story, ...] = (
    a_fault_that_passes_by_itself_is_withdrawn_without_a_repair,
    a_gpu_reset_cures_what_a_reset_can,
    a_lost_gpu_is_cured_by_a_reboot_at_once,
    a_worn_out_gpu_has_its_node_replaced_once_a_person_says_yes,
    a_reset_that_does_not_cure_is_followed_by_a_reboot,
    a_hung_host_is_rebooted_from_outside_though_ec2_throttles,
    an_auto_scaling_group_replaces_its_node,
    a_node_that_nobody_makes_is_handed_over_and_stays_with_people,
)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def told(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Stories]:
    async with telling(SCENARIO, POLICY + IMPATIENT_GROUP, tmp_path_factory.mktemp("repairs"), STORIES) as stories:
        yield stories


@pytest.mark.parametrize("story", STORIES, ids=title)
async def test_story(told: Stories, story: Story) -> None:
    await told.end_of(story)
