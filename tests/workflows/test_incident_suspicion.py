"""A node that jobs suspect: new work is kept away, and the active checks on its idle GPUs decide."""

from datetime import timedelta

import pytest
from temporalio.testing import WorkflowEnvironment

from sickbay.catalogue import fault_of
from sickbay.faults import Component, ComponentKind, Rung
from sickbay.incident import HandoverReason, Outcome
from tests.workflows.incident_bench import incident_bench, quick_policy

pytestmark = pytest.mark.asyncio(loop_scope="session")

SUSPECT = fault_of("suspect-node", Component(kind=ComponentKind.HOST, id="n"), evidence=("three jobs failed on it",))


async def test_a_suspect_that_passes_under_load_is_given_back_undisturbed(time_skipping: WorkflowEnvironment) -> None:
    async with incident_bench(time_skipping, fault=SUSPECT, sick=False) as bench:
        await bench.start(SUSPECT)
        result = await bench.result()
        assert (result.outcome, result.rung) == (Outcome.WITHDRAWN, Rung.NONE)
        assert bench.world.acts["contain_node"] == 1
        assert bench.world.acts["drain_node"] == 0
        assert any("passed under load" in entry.text for entry in result.view.timeline)


async def test_a_suspect_that_fails_under_load_is_repaired_for_what_it_shows(
    time_skipping: WorkflowEnvironment,
) -> None:
    async with incident_bench(time_skipping) as bench:
        await bench.start(SUSPECT)
        result = await bench.result()
        assert (result.outcome, result.rung) == (Outcome.RETURNED, Rung.RESET_GPU)


async def test_a_suspect_in_use_is_neither_cleared_nor_disturbed_and_a_person_is_asked_in_the_end(
    time_skipping: WorkflowEnvironment,
) -> None:
    policy = quick_policy(look_every=timedelta(hours=1))
    async with incident_bench(time_skipping, policy, fault=SUSPECT, sick=False, gpus_in_use=True) as bench:
        await bench.start(SUSPECT)
        result = await bench.result()
        assert result.handover is HandoverReason.VERDICT
        assert bench.world.acts["drain_node"] == 0
