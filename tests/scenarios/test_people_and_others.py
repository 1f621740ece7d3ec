"""Sickbay among people and other software: what it must leave alone, whom it must obey, and what it must survive."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from sickbay import names
from sickbay.faults import Rung
from sickbay.incident import CommandKind, HandoverReason, Outcome, Stage
from sickbay.node_marks import DO_NOT_DISRUPT
from sickbay.policy.model import TaintPolicy
from simulator.machine import Power
from tests.scenarios import faults
from tests.scenarios.case import Case
from tests.scenarios.cluster import Cluster
from tests.scenarios.stories import POLICY, Stories, Story, telling, title
from tests.scenarios.waiting import never, seen

pytestmark = [pytest.mark.scenario, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(300)]

SCENARIO = """
speed: 20
times: {boot: 20, reboot: 60, gpu_reset: 40}
pools:
  - {name: p5, kind: karpenter, nodes: 6}
  - {name: guarded, kind: karpenter, nodes: 1}
  - {name: narrow, kind: karpenter, nodes: 2}
  - {name: silent, kind: karpenter, nodes: 1}
jobs:
  - {name: llama, pool: guarded, workers: 1, min_available: 1}
"""
POOLS = """
pools:
  guarded: {drain: {deadline: 5s}}
  narrow: {taint: {enabled: true}, budget: {max_unavailable: {count: 1, percent: 100}}}
  silent: {host_pickup: 5s, faults: {node-not-ready: {tolerance: 2s}}}
"""
PROTECTED = "p5-0"
"""Somebody keeps Karpenter away from this node."""
RECONCILED_SECONDS = 7.0
"""The stage's controller looks at all nodes anew every five: by then it has done all that it would do."""
UNKNOWN_XID = "NVRM: Xid (PCI:0000:53:00): 987, pid='<unknown>', name=<unknown>, Something new"


async def a_node_that_a_person_cordoned_before_stays_cordoned_and_protected(stage: Cluster) -> None:
    case = await Case.of(stage, PROTECTED)
    await stage.cordon(case.name)
    await case.falls_ill(faults.NEEDS_RESET)
    result = await case.ends()
    assert (result.outcome, result.rung) == (Outcome.RETURNED, Rung.RESET_GPU)
    node = await case.node()
    assert node.spec.unschedulable
    assert node.metadata.annotations[DO_NOT_DISRUPT] == "true"


async def a_person_s_uncordon_is_obeyed(stage: Cluster) -> None:
    case = await Case.of(stage, "p5-1")
    await case.falls_ill(faults.NEEDS_REPLACEMENT)
    await case.comes_to(Stage.AWAITING_APPROVAL)
    await stage.cordon(case.name, on=False)
    await case.comes_to(Stage.HANDED_OVER)
    assert (await case.view()).handover is HandoverReason.PERSON_RELEASED

    async def cordoned() -> bool:
        return (await case.node()).spec.unschedulable

    await never("the node is cordoned again", cordoned, RECONCILED_SECONDS)
    await case.order(CommandKind.CLOSE)
    assert (await case.ends()).outcome is Outcome.HANDED_OVER
    await never("the node is cordoned again after the close", cordoned, RECONCILED_SECONDS)
    assert await case.incidents() == 1


async def an_application_s_faults_open_nothing(stage: Cluster) -> None:
    case = await Case.of(stage, "p5-2")
    await case.falls_ill(faults.APPLICATION_TROUBLE)

    async def reported() -> bool:
        return "xid-43" in (await case.node()).metadata.annotations[names.ANNOTATION_FAULTS]

    await seen("the agent reports them", reported)
    await left_alone(case)


async def an_unknown_xid_opens_nothing_and_is_told_to_people(stage: Cluster) -> None:
    case = await Case.of(stage, "p5-3")
    await stage.write_kernel_log(case.instance_id, UNKNOWN_XID)
    (event,) = await seen("an Event", lambda: stage.events(case.name, "UnknownFault"))
    assert "xid-987" in event.message
    await left_alone(case)
    assert len(await stage.events(case.name, "UnknownFault")) == 1


async def left_alone(case: Case) -> None:
    """Nothing is done to the node, and no incident is opened."""

    async def touched() -> bool:
        return (await case.node()).spec.unschedulable or await case.stage() is not None

    await never(f"{case.name} is touched", touched, RECONCILED_SECONDS)


async def a_node_deleted_by_somebody_else_ends_its_incident(stage: Cluster) -> None:
    case = await Case.of(stage, "p5-4")
    await case.falls_ill(faults.NEEDS_REPLACEMENT)
    await case.comes_to(Stage.AWAITING_APPROVAL)
    machines = await case.pool_machines()
    await stage.delete_claim_of(await case.node())
    result = await case.ends()
    assert (result.outcome, result.rung) == (Outcome.NODE_GONE, Rung.NONE)
    assert (await case.machine()).power is Power.OFF
    assert await case.pool_machines() == machines + 1


async def a_hung_kubelet_leads_to_a_reboot_from_outside(stage: Cluster) -> None:
    case = await Case.of(stage, "silent-0")
    await case.falls_ill(faults.HANGS)
    result = await case.ends()
    assert (result.outcome, result.rung) == (Outcome.RETURNED, Rung.REBOOT)
    assert (await case.machine()).boots == 2


async def an_agent_killed_in_the_middle_of_a_reset_costs_no_reboot(stage: Cluster) -> None:
    case = await Case.of(stage, "p5-5")
    await case.falls_ill(faults.NEEDS_RESET)
    await case.comes_to(Stage.REPAIRING)
    await stage.kill_agent(case.instance_id)
    result = await case.ends()
    assert (result.outcome, result.rung) == (Outcome.RETURNED, Rung.RESET_GPU)
    machine = await case.machine()
    assert (machine.boots, machine.agent_starts) == (1, 2)


async def a_drain_that_a_disruption_budget_blocks_is_handed_over_with_its_name(stage: Cluster) -> None:
    case = await Case.of(stage, "guarded-0")

    async def pods() -> dict[str, str]:
        return dict(await stage.pods_on(case.name))

    before = await seen("the job's worker runs", pods)
    await case.falls_ill(faults.NEEDS_RESET)
    await case.comes_to(Stage.HANDED_OVER)
    view = await case.view()
    assert view.handover is HandoverReason.DRAIN_BLOCKED
    assert any("PodDisruptionBudget llama" in entry.text for entry in view.timeline)
    assert await pods() == before
    assert (await case.machine()).gpu_resets == 0
    await case.order(CommandKind.CLOSE)
    assert (await case.ends()).outcome is Outcome.HANDED_OVER


async def of_two_sick_nodes_the_second_waits_for_the_first_and_says_so(stage: Cluster) -> None:
    first, second = await Case.of(stage, "narrow-0"), await Case.of(stage, "narrow-1")
    await first.falls_ill(faults.NEEDS_REBOOT)
    await first.comes_to(Stage.DRAINING)
    assert TaintPolicy().effect in [taint.effect for taint in (await first.node()).spec.taints]
    await second.falls_ill(faults.NEEDS_RESET)
    await second.comes_to(Stage.AWAITING_PERMIT)

    async def names_the_first() -> bool:
        return first.name in (await second.view()).waiting_for

    await seen("it shows for whom it waits", names_the_first)
    ahead, behind = await first.ends(), await second.ends()
    assert (ahead.outcome, behind.outcome) == (Outcome.RETURNED, Outcome.RETURNED)
    (intent,) = behind.view.intents
    assert intent.recorded_at >= ahead.closed_at


STORIES: tuple[Story, ...] = (
    a_node_that_a_person_cordoned_before_stays_cordoned_and_protected,
    a_person_s_uncordon_is_obeyed,
    an_application_s_faults_open_nothing,
    an_unknown_xid_opens_nothing_and_is_told_to_people,
    a_node_deleted_by_somebody_else_ends_its_incident,
    a_hung_kubelet_leads_to_a_reboot_from_outside,
    an_agent_killed_in_the_middle_of_a_reset_costs_no_reboot,
    a_drain_that_a_disruption_budget_blocks_is_handed_over_with_its_name,
    of_two_sick_nodes_the_second_waits_for_the_first_and_says_so,
)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def told(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Stories]:
    folder = tmp_path_factory.mktemp("people")
    async with telling(SCENARIO, POLICY + POOLS, folder, STORIES, protected=[PROTECTED]) as stories:
        yield stories


@pytest.mark.parametrize("story", STORIES, ids=title)
async def test_story(told: Stories, story: Story) -> None:
    await told.end_of(story)
