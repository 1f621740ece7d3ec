"""An incident whose history grows too long goes on in a new run, and nothing that it knows is lost.

On a server that suggests this after a few events, in real time.
"""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest
import pytest_asyncio
from temporalio.client import WorkflowExecutionStatus
from temporalio.testing import WorkflowEnvironment

from sickbay.faults import Rung
from sickbay.incident import CommandKind, HandoverReason, IncidentView, Outcome, Stage
from sickbay.policy.model import IncidentPolicy, RungPolicy
from tests.temporal_servers import start_dev_server
from tests.workflows.fake_world import fault
from tests.workflows.incident_bench import Bench, incident_bench, leaves_nothing, quick_policy
from workflows.node_incident import NodeIncident

pytestmark = pytest.mark.asyncio(loop_scope="session")

LASTING = ("stage", "rung", "attempt", "verdict", "intents", "contained_at", "waiting_for", "waiting_until")
"""What a person sees of an incident that must not change when it continues."""


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def short_runs() -> AsyncIterator[WorkflowEnvironment]:
    async with await start_dev_server("--dynamic-config-value", "limit.historyCount.suggestContinueAsNew=80") as server:
        yield server


async def continued(bench: Bench) -> IncidentView:
    """The incident after a flood of repeats has made it continue as new."""
    run = (await bench.handle.describe()).run_id
    first = bench.environment.client.get_workflow_handle(bench.handle.id, run_id=run)
    async with asyncio.timeout(30):
        while (await first.describe()).status is not WorkflowExecutionStatus.CONTINUED_AS_NEW:
            await asyncio.gather(*(bench.report(bench.world.fault) for _ in range(5)))
    bench.handle = bench.environment.client.get_workflow_handle_for(NodeIncident.run, bench.handle.id)
    return await bench.view()


def lasting(view: IncidentView) -> dict[str, object]:
    return {name: getattr(view, name) for name in LASTING}


async def test_a_question_to_people_keeps_its_deadline_and_all_that_led_to_it(short_runs: WorkflowEnvironment) -> None:
    soon_without_proof = RungPolicy(deadline=timedelta(seconds=1))
    policy = quick_policy(verify_every=timedelta(milliseconds=200), reset_gpu=soon_without_proof)
    async with incident_bench(short_runs, policy, budget="grant", cured_by=Rung.REPLACE) as bench:
        await bench.start()
        await bench.until(Stage.AWAITING_APPROVAL)
        await bench.say(CommandKind.HOLD, request_id="hold-1")
        await bench.say(CommandKind.RELEASE)
        before = await bench.until(
            lambda view: view.stage is Stage.AWAITING_APPROVAL and view.waiting_until is not None
        )
        after = await continued(bench)
        assert [intent.rung for intent in before.intents] == [Rung.RESET_GPU, Rung.REBOOT]
        assert lasting(after) == lasting(before)
        assert "before" in (await bench.say(CommandKind.HOLD, request_id="hold-1")).message
        await bench.say(CommandKind.APPROVE, rung=Rung.REPLACE)
        result = await bench.result()
        assert result.outcome is Outcome.REPLACED
        assert [approval.by for approval in result.view.approvals] == ["ada"]
        acts = bench.world.acts
        assert (acts["contain_node"], acts["reset_gpus"], acts["reboot_host"], acts["delete_node_claim"]) == (
            1,
            1,
            1,
            1,
        )


async def test_a_soak_keeps_its_end_its_permit_and_its_repair(short_runs: WorkflowEnvironment) -> None:
    async with incident_bench(short_runs, budget="grant") as bench:
        await bench.start()
        before = await bench.until(lambda view: view.stage is Stage.SOAKING and view.waiting_for == "the soak to end")
        after = await continued(bench)
        assert lasting(after) == lasting(before)
        assert await bench.permit_holders() == [bench.handle.id]
        await bench.report(fault("xid-79", Rung.REBOOT, count=2))
        view = await bench.until(lambda view: view.rung is Rung.REBOOT and view.stage is Stage.SOAKING)
        assert "xid-79" in view.intents[0].failure
        assert bench.world.acts["reset_gpus"] == 1
        await bench.say(CommandKind.WITHDRAW)
        await bench.result()
        assert await bench.permit_holders() == []
        assert leaves_nothing(bench.world)


async def test_an_incident_that_is_held_after_its_repair_neither_repeats_it_nor_climbs_on(
    short_runs: WorkflowEnvironment,
) -> None:
    async with incident_bench(short_runs, quick_policy(soak=timedelta(seconds=1)), budget="grant") as bench:
        await bench.start()
        await bench.until(Stage.SOAKING)
        await bench.say(CommandKind.HOLD)
        await bench.until(Stage.HELD)
        assert (await continued(bench)).stage is Stage.HELD
        await bench.say(CommandKind.RELEASE)
        result = await bench.result()
        assert (result.outcome, result.rung) == (Outcome.RETURNED, Rung.RESET_GPU)
        assert (bench.world.acts["reset_gpus"], bench.world.acts["reboot_host"]) == (1, 0)


async def test_a_wait_for_a_permit_keeps_its_deadline_and_its_place(short_runs: WorkflowEnvironment) -> None:
    async with incident_bench(short_runs, budget="silent") as bench:
        await bench.start()
        before = await bench.until(lambda view: view.waiting_for == "a permit")
        await continued(bench)
        after = await bench.until(lambda view: view.waiting_for == "a permit")
        assert lasting(after) == lasting(before)
        await bench.grant()
        await bench.until(Stage.SOAKING)
        await bench.handle.terminate()


async def test_a_lock_of_somebody_else_reaches_a_person_over_any_number_of_runs(
    short_runs: WorkflowEnvironment,
) -> None:
    policy = quick_policy(foreign_lock_deadline=timedelta(seconds=4), verify_every=timedelta(milliseconds=20))
    async with incident_bench(short_runs, policy, budget="grant", foreign_locks=("driver upgrade",)) as bench:
        await bench.start()
        view = await bench.until(Stage.HANDED_OVER)
        assert view.handover is HandoverReason.FOREIGN_LOCK
        run = await bench.environment.client.get_workflow_handle(bench.handle.id).describe()
        assert run.run_id != bench.handle.first_execution_run_id
        await bench.handle.terminate()


async def test_trouble_that_is_only_watched_reaches_a_person_over_any_number_of_runs(
    short_runs: WorkflowEnvironment,
) -> None:
    policy = IncidentPolicy(watch_deadline=timedelta(seconds=4), look_every=timedelta(milliseconds=20))
    found = fault("nvml-silent", Rung.BLOCK_NEW_WORK)
    async with incident_bench(short_runs, policy, budget="grant", fault=found) as bench:
        await bench.start()
        assert (await bench.until(Stage.HANDED_OVER)).handover is HandoverReason.VERDICT
        await bench.handle.terminate()
