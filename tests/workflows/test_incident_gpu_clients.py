"""GPU clients that run as pods, around the reset of an incident: paused before, resumed on every way out of it."""

import asyncio

import pytest
from temporalio.client import WorkflowFailureError
from temporalio.exceptions import ApplicationError
from temporalio.testing import WorkflowEnvironment

from sickbay.faults import Rung
from sickbay.incident import IncidentResult, Outcome
from tests.workflows.fake_world import FakeWorld
from tests.workflows.incident_bench import incident_bench

pytestmark = pytest.mark.asyncio(loop_scope="session")

CLIENTS = ("dcgm-exporter", "device-plugin")
BROKEN = ApplicationError("the server is out of order", non_retryable=True)


def timeline(result: IncidentResult) -> str:
    return "\n".join(entry.text for entry in result.view.timeline)


def assert_all_resumed(world: FakeWorld) -> None:
    assert world.acts["pause_gpu_clients"] >= 1
    assert world.acts["resume_gpu_clients"] >= 1
    assert world.paused_clients == ()


async def test_a_reset_finds_no_client_and_leaves_none_paused(time_skipping: WorkflowEnvironment) -> None:
    async with incident_bench(time_skipping, gpu_clients=CLIENTS) as bench:
        await bench.start()
        result = await bench.result()
        assert (result.outcome, result.rung) == (Outcome.RETURNED, Rung.RESET_GPU)
        assert_all_resumed(bench.world)
        assert "GPU clients paused: dcgm-exporter, device-plugin" in timeline(result)
        assert "GPU clients resumed: dcgm-exporter, device-plugin" in timeline(result)


async def test_pods_that_latch_are_restarted_after_a_proven_reset_alone(time_skipping: WorkflowEnvironment) -> None:
    async with incident_bench(time_skipping) as bench:
        await bench.start()
        assert "restarted kube-system/monitor" in timeline(await bench.result())
        assert bench.world.acts["restart_latched_pods"] == 1
    async with incident_bench(time_skipping, cured_by=Rung.REBOOT, reset_refused="in use") as bench:
        await bench.start()
        await bench.result()
        assert bench.world.acts["restart_latched_pods"] == 0


async def test_a_client_that_stays_means_no_reset_but_the_next_rung(time_skipping: WorkflowEnvironment) -> None:
    stay = ("gpu-operator/dcgm-0",)
    async with incident_bench(time_skipping, cured_by=Rung.RESET_GPU, gpu_clients=CLIENTS, clients_stay=stay) as bench:
        await bench.start()
        result = await bench.result()
        assert result.rung is Rung.REBOOT
        assert bench.world.acts["reset_gpus"] == 0
        assert_all_resumed(bench.world)
        assert "GPU clients stay: gpu-operator/dcgm-0" in timeline(result)


async def test_a_lock_that_appears_during_the_pause_forbids_the_reset(time_skipping: WorkflowEnvironment) -> None:
    async with incident_bench(time_skipping, gpu_clients=CLIENTS) as bench:
        bench.world.on["pause_gpu_clients"] = lambda: setattr(bench.world, "foreign_locks", ("a driver upgrade",))
        bench.world.on["resume_gpu_clients"] = lambda: setattr(bench.world, "foreign_locks", ())
        await bench.start()
        result = await bench.result()
        assert bench.world.acts["reset_gpus"] == 0
        assert "a driver upgrade" in result.view.intents[0].failure
        assert_all_resumed(bench.world)


@pytest.mark.parametrize("failing", ["pause_gpu_clients", "reset_gpus"])
async def test_clients_are_resumed_when_a_step_fails(time_skipping: WorkflowEnvironment, failing: str) -> None:
    async with incident_bench(time_skipping, gpu_clients=CLIENTS, fails={failing: BROKEN}) as bench:
        await bench.start()
        result = await bench.result()
        assert result.outcome is Outcome.HANDED_OVER
        assert_all_resumed(bench.world)


async def test_clients_that_cannot_be_resumed_are_told_and_leave_the_ladder_going(
    time_skipping: WorkflowEnvironment,
) -> None:
    async with incident_bench(time_skipping, gpu_clients=CLIENTS, fails={"resume_gpu_clients": BROKEN}) as bench:
        await bench.start()
        result = await bench.result()
        assert result.outcome is Outcome.RETURNED
        assert "GPU clients could not be resumed, which is tried again at the end" in timeline(result)


async def test_a_restart_that_fails_harms_no_proof(time_skipping: WorkflowEnvironment) -> None:
    async with incident_bench(time_skipping, fails={"restart_latched_pods": BROKEN}) as bench:
        await bench.start()
        result = await bench.result()
        assert (result.outcome, result.rung) == (Outcome.RETURNED, Rung.RESET_GPU)
        assert "could not be restarted" in timeline(result)


async def test_cancelled_in_the_middle_of_a_reset_it_resumes_clients_and_undoes_every_mark(
    time_skipping: WorkflowEnvironment,
) -> None:
    async with incident_bench(time_skipping, gpu_clients=CLIENTS, reset_hangs=True, budget="grant") as bench:
        with time_skipping.with_time_skipping_disabled():
            resetting = asyncio.Event()
            bench.world.on["reset_gpus"] = resetting.set
            await bench.start()
            await asyncio.wait_for(resetting.wait(), 60)
            await bench.handle.cancel()
            with pytest.raises(WorkflowFailureError):
                await asyncio.wait_for(bench.handle.result(), 60)
        assert_all_resumed(bench.world)
        assert bench.world.mark is None
        assert not bench.world.cordoned
