"""What an incident does on the word of others: monitors that are silent, other agents, and EC2."""

from datetime import UTC, datetime, timedelta

import pytest
from temporalio.testing import WorkflowEnvironment

from sickbay.catalogue import fault_of
from sickbay.faults import Component, ComponentKind, Fault, Rung
from sickbay.incident import FaultReport, HandoverReason, Outcome, Stage
from tests.workflows.incident_bench import incident_bench, quick_policy
from workflows.node_incident import NodeIncident

pytestmark = pytest.mark.asyncio(loop_scope="session")


def told(code: str) -> Fault:
    return fault_of(code, Component(kind=ComponentKind.HOST, id="node-1"), seen=datetime.now(UTC))


@pytest.mark.parametrize("code", ["monitor-silent", "agent-missing", "reported-monitor", "reported-gpu"])
async def test_a_silent_agent_or_anothers_word_blocks_new_work_until_a_person_comes(
    time_skipping: WorkflowEnvironment, code: str
) -> None:
    """Detection 8.12, peer-nvsentinel 4.24."""
    async with incident_bench(time_skipping, fault=told(code)) as bench:
        await bench.start()
        result = await bench.result()
        assert (result.outcome, result.handover) == (Outcome.HANDED_OVER, HandoverReason.VERDICT)
        acts = bench.world.acts
        assert (acts["contain_node"], acts["drain_node"], acts["reset_gpus"], acts["reboot_host"]) == (1, 0, 0, 0)


async def test_another_agents_word_during_the_soak_is_no_failed_repair(time_skipping: WorkflowEnvironment) -> None:
    async with incident_bench(time_skipping) as bench:
        with time_skipping.with_time_skipping_disabled():
            await bench.start()
            await bench.until(Stage.SOAKING)
            late = told("reported-gpu").model_copy(update={"last_seen": datetime.now(UTC) + timedelta(minutes=1)})
            await bench.handle.signal(
                NodeIncident.report_faults, FaultReport(faults=(late,), observed_at=datetime.now(UTC))
            )
            await bench.skip(timedelta(minutes=20))
            result = await bench.result()
        assert (result.outcome, result.rung) == (Outcome.RETURNED, Rung.RESET_GPU)


async def test_an_event_that_still_stands_after_the_reboot_is_not_taken_for_cured(
    time_skipping: WorkflowEnvironment,
) -> None:
    event = told("instance-reboot-scheduled")
    async with incident_bench(time_skipping, fault=event, said=(event,), cured_by=Rung.REBOOT) as bench:
        with time_skipping.with_time_skipping_disabled():
            await bench.start()
            await bench.until(Stage.VERIFYING)
            await bench.skip(timedelta(hours=1))
            await bench.until(Stage.AWAITING_APPROVAL)
            view = await bench.view()
            assert view.rung is Rung.REPLACE
            assert "EC2 still tells instance-reboot-scheduled" in view.intents[0].failure
            await bench.handle.terminate()


async def test_an_event_that_ec2_takes_back_after_the_reboot_lets_the_node_return(
    time_skipping: WorkflowEnvironment,
) -> None:
    event = told("instance-reboot-scheduled")
    async with incident_bench(time_skipping, fault=event, said=(event,), cured_by=Rung.REBOOT) as bench:
        bench.world.on["wait_for_boot"] = lambda: setattr(bench.world, "said", ())
        await bench.start()
        result = await bench.result()
        assert (result.outcome, result.rung) == (Outcome.RETURNED, Rung.REBOOT)


async def test_a_retirement_waits_for_a_persons_yes_to_the_replacement(time_skipping: WorkflowEnvironment) -> None:
    event = told("instance-retirement-scheduled")
    async with incident_bench(time_skipping, quick_policy(), fault=event, said=(event,)) as bench:
        with time_skipping.with_time_skipping_disabled():
            await bench.start()
            view = await bench.until(Stage.AWAITING_APPROVAL)
            assert (view.rung, bench.world.acts["delete_node_claim"]) == (Rung.REPLACE, 0)
            await bench.handle.terminate()
