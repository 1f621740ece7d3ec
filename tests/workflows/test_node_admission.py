"""One admission against a fake world, its hours skipped (detection 8.14: a GPU that never comes back has an end)."""

from datetime import timedelta
from typing import Any

import pytest
from temporalio.client import WorkflowFailureError
from temporalio.exceptions import CancelledError
from temporalio.testing import WorkflowEnvironment

from sickbay.admission import ROUNDS, AdmissionOutcome
from sickbay.checks import ActiveDepth
from sickbay.faults import Rung
from tests.workflows.admission_bench import AdmissionBench, admission_bench, quick_admission
from tests.workflows.fake_world import fault

LOAD_FAULT = fault("gpu-lost", Rung.REBOOT)


def codes_of(bench: AdmissionBench) -> list[list[str]]:
    """What each incident was opened for."""
    return [[each.code for each in opening.report.faults] for opening in bench.world.opened]


async def test_a_node_that_is_well_without_load_and_under_it_may_work(time_skipping: WorkflowEnvironment) -> None:
    async with admission_bench(time_skipping) as bench:
        await bench.start()
        result = await bench.result()
        assert result.outcome is AdmissionOutcome.ADMITTED
        assert result.boot_id == bench.world.boot_id == bench.world.admitted_boot
        assert bench.world.depths == [ActiveDepth.NONE, ActiveDepth.BURN_IN]
        assert not bench.world.tainted
        assert bench.world.opened == []
        assert bench.world.events == ["SickbayAdmitted"]


async def test_devices_and_checks_that_are_still_starting_are_waited_for(time_skipping: WorkflowEnvironment) -> None:
    """detection 8.14: a bounded wait for devices and fabric, and then a verdict."""
    async with admission_bench(time_skipping, late_looks=3, starting_passes=4) as bench:
        await bench.start()
        result = await bench.result()
        assert result.outcome is AdmissionOutcome.ADMITTED
        assert bench.world.acts["observe_node"] == 3 + 4 + 1
        assert bench.world.depths == [ActiveDepth.NONE] * 5 + [ActiveDepth.BURN_IN]
        assert bench.world.opened == []
        assert any("0 of 8 GPUs are allocatable" in entry.text for entry in result.view.timeline)


async def test_a_node_that_fails_under_load_is_repaired_by_its_incident_and_judged_again(
    time_skipping: WorkflowEnvironment,
) -> None:
    async with admission_bench(time_skipping, fails_under_load=LOAD_FAULT) as bench:

        def repaired() -> None:
            bench.world.fails_under_load, bench.world.boot_id = None, "boot-2"

        bench.world.at_its_end = repaired
        await bench.start()
        result = await bench.result()
        assert codes_of(bench) == [["gpu-lost"]]
        assert bench.world.opened[0].start.expected_gpus == 8
        assert (result.outcome, result.boot_id) == (AdmissionOutcome.ADMITTED, "boot-2")
        assert bench.world.events == ["SickbayAdmissionFailed", "SickbayAdmitted"]


async def test_a_node_that_is_replaced_by_its_incident_ends_its_admission(time_skipping: WorkflowEnvironment) -> None:
    async with admission_bench(time_skipping, fails_under_load=LOAD_FAULT) as bench:

        def replaced() -> None:
            bench.world.exists = False

        bench.world.at_its_end = replaced
        await bench.start()
        assert (await bench.result()).outcome is AdmissionOutcome.GONE
        assert bench.world.acts["admit_node"] == 0


async def test_a_person_is_asked_at_the_deadline_and_a_node_that_comes_late_is_let_in(
    time_skipping: WorkflowEnvironment,
) -> None:
    looks_in_time = 10
    policy = quick_admission(deadline=timedelta(minutes=10), look_every=timedelta(minutes=1))
    async with admission_bench(time_skipping, policy, late_looks=looks_in_time + 3, repair_looks=100) as bench:
        await bench.start()
        result = await bench.result()
        assert codes_of(bench) == [["admission-overdue"]]
        (trouble,) = bench.world.opened[0].report.faults
        assert trouble.rung is Rung.HUMAN
        assert "0 of 8 GPUs are allocatable" in trouble.evidence[0]
        assert [clearing.cleared.codes for clearing in bench.world.cleared] == [("admission-overdue",)]
        assert result.outcome is AdmissionOutcome.ADMITTED


async def test_gpus_that_do_not_answer_at_the_deadline_are_missing_by_their_own_rung(
    time_skipping: WorkflowEnvironment,
) -> None:
    policy = quick_admission(gpus=9, deadline=timedelta(minutes=2), look_every=timedelta(minutes=1))
    async with admission_bench(time_skipping, policy) as bench:

        def replaced() -> None:
            bench.world.exists = False

        bench.world.at_its_end = replaced
        await bench.start()
        await bench.result()
        (trouble,) = bench.world.opened[0].report.faults
        assert (trouble.code, trouble.rung) == ("gpu-missing", Rung.REBOOT)
        assert "8 of 9 GPUs answer" in trouble.evidence[0]


async def test_what_no_incident_cures_is_left_to_people_with_its_taint(time_skipping: WorkflowEnvironment) -> None:
    async with admission_bench(time_skipping, fails_under_load=LOAD_FAULT, repair_looks=0) as bench:
        await bench.start()
        result = await bench.result()
        assert result.outcome is AdmissionOutcome.LEFT_TO_PEOPLE
        assert len(bench.world.opened) == ROUNDS
        assert bench.world.tainted
        assert bench.world.events[-1] == "SickbayNotAdmitted"


async def test_an_incident_of_the_watch_is_waited_for_before_anything_is_judged(
    time_skipping: WorkflowEnvironment,
) -> None:
    async with admission_bench(time_skipping, incident_open=True, repair_looks=3) as bench:
        await bench.start()
        assert (await bench.result()).outcome is AdmissionOutcome.ADMITTED
        assert bench.world.log.index("probe_host") > bench.world.log.index("check_holders") + 3
        assert bench.world.opened == []


async def test_an_incident_that_never_ends_does_not_keep_the_admission_for_ever(
    time_skipping: WorkflowEnvironment,
) -> None:
    brief = quick_admission(deadline=timedelta(minutes=2), look_every=timedelta(minutes=1))
    policy = brief.model_copy(update={"handover_deadline": timedelta(hours=1)})
    async with admission_bench(time_skipping, policy, incident_open=True, repair_looks=10_000) as bench:
        await bench.start()
        assert (await bench.result()).outcome is AdmissionOutcome.LEFT_TO_PEOPLE
        assert bench.world.tainted


@pytest.mark.parametrize(
    ("states", "outcome", "opened"),
    [
        pytest.param(["pending", "rebooting", "success"], AdmissionOutcome.ADMITTED, [], id="a layout under way"),
        pytest.param(["", "success"], AdmissionOutcome.ADMITTED, [], id="a mig-manager that has not begun"),
        pytest.param(["pending", "failed", "success"], AdmissionOutcome.ADMITTED, [["mig-layout-failed"]], id="failed"),
    ],
)
async def test_the_mig_layout_must_be_as_wished(
    time_skipping: WorkflowEnvironment, states: list[str], outcome: AdmissionOutcome, opened: list[list[str]]
) -> None:
    async with admission_bench(time_skipping, mig_config="all-1g.10gb", mig_state=states[0], repair_looks=0) as bench:
        rest = iter([*states, *states[-1:] * 20])

        def next_state() -> None:
            bench.world.mig_state = next(rest)

        bench.world.on["observe_node"] = next_state
        await bench.start()
        assert (await bench.result()).outcome is outcome
        assert codes_of(bench) == opened


async def test_a_reboot_in_the_middle_is_no_admission_of_the_new_boot(time_skipping: WorkflowEnvironment) -> None:
    async with admission_bench(time_skipping) as bench:

        def reboot_once() -> None:
            del bench.world.on["admit_node"]
            bench.world.boot_id = "boot-2"

        bench.world.on["admit_node"] = reboot_once
        await bench.start()
        result = await bench.result()
        assert result.boot_id == bench.world.admitted_boot == "boot-2"
        assert bench.world.depths.count(ActiveDepth.BURN_IN) == 2


async def test_an_incident_under_another_id_is_waited_for_like_the_nodes_own(
    time_skipping: WorkflowEnvironment,
) -> None:
    """The cluster was renamed, or the provider id came late: loading the node meanwhile would be for nothing."""
    other: dict[str, Any] = {"incident_open": True, "incident_name": "incident-old-name", "mark": "incident-old-name"}
    async with admission_bench(time_skipping, **other) as bench:
        bench.world.at_its_end = lambda: setattr(bench.world, "mark", None)
        await bench.start()
        result = await bench.result()
        assert result.outcome is AdmissionOutcome.ADMITTED
        assert bench.world.depths == [ActiveDepth.NONE, ActiveDepth.BURN_IN]


async def test_a_mark_that_nobody_takes_away_has_an_end_and_loads_no_gpu(time_skipping: WorkflowEnvironment) -> None:
    policy = quick_admission(deadline=timedelta(minutes=5), look_every=timedelta(minutes=1))
    async with admission_bench(time_skipping, policy, mark="incident-lost") as bench:
        bench.world.at_its_end = lambda: setattr(bench.world, "mark", None)
        await bench.start()
        assert (await bench.result()).outcome is AdmissionOutcome.ADMITTED
        assert codes_of(bench) == [["admission-overdue"]]
        assert bench.world.depths.count(ActiveDepth.BURN_IN) == 1


async def test_a_node_that_passed_and_is_not_let_in_is_told_in_the_end_and_loaded_once_a_round(
    time_skipping: WorkflowEnvironment,
) -> None:
    policy = quick_admission(deadline=timedelta(minutes=5), look_every=timedelta(minutes=1))
    async with admission_bench(time_skipping, policy, refused="the API server forbids it") as bench:
        bench.world.at_its_end = lambda: setattr(bench.world, "refused", "")
        await bench.start()
        result = await bench.result()
        assert result.outcome is AdmissionOutcome.ADMITTED
        assert codes_of(bench) == [["admission-overdue"]]
        assert bench.world.depths.count(ActiveDepth.BURN_IN) == 2
        assert any("the API server forbids it" in entry.text for entry in result.view.timeline)


async def test_a_taint_that_a_person_takes_away_is_an_order(time_skipping: WorkflowEnvironment) -> None:
    async with admission_bench(time_skipping, tainted=False) as bench:
        await bench.start()
        assert (await bench.result()).outcome is AdmissionOutcome.TAINT_GONE
        assert bench.world.acts["probe_host"] == 0


@pytest.mark.parametrize("world", [{"exists": False}, {"claim_deleting": True}], ids=["gone", "being deleted"])
async def test_a_node_that_is_going_needs_no_admission(
    time_skipping: WorkflowEnvironment, world: dict[str, Any]
) -> None:
    async with admission_bench(time_skipping, **world) as bench:
        await bench.start()
        assert (await bench.result()).outcome is AdmissionOutcome.GONE
        assert bench.world.acts["admit_node"] == 0


async def test_a_silent_agent_is_not_taken_for_a_healthy_node(time_skipping: WorkflowEnvironment) -> None:
    policy = quick_admission(deadline=timedelta(minutes=2), look_every=timedelta(minutes=1))
    async with admission_bench(time_skipping, policy, host_silent=True, repair_looks=0) as bench:

        def replaced() -> None:
            bench.world.exists = False

        bench.world.at_its_end = replaced
        await bench.start()
        await bench.result()
        assert codes_of(bench) == [["admission-overdue"]]
        assert "did not answer" in bench.world.opened[0].report.faults[0].evidence[0]


async def test_a_cancelled_admission_leaves_the_taint_and_says_so(dev_server: WorkflowEnvironment) -> None:
    async with admission_bench(dev_server, late_looks=10_000) as bench:
        await bench.start()
        await bench.until(lambda view: bool(view.waiting_for))
        await bench.handle.cancel()
        with pytest.raises(WorkflowFailureError) as caught:
            await bench.result()
        assert isinstance(caught.value.cause, CancelledError)
        assert bench.world.tainted
        assert bench.world.events == ["SickbayNotAdmitted"]


async def test_two_starts_are_one_admission(dev_server: WorkflowEnvironment) -> None:
    async with admission_bench(dev_server, late_looks=2, repair_looks=0) as bench:
        bench.policy = quick_admission(look_every=timedelta(milliseconds=200))
        await bench.start()
        first = bench.handle.first_execution_run_id
        await bench.start()
        assert bench.handle.first_execution_run_id == first
        await bench.result()
        assert bench.world.acts["admit_node"] == 1


async def test_people_see_what_it_waits_for_and_until_when(dev_server: WorkflowEnvironment) -> None:
    async with admission_bench(dev_server, late_looks=10_000) as bench:
        await bench.start()
        view = await bench.until(lambda view: bool(view.waiting_for))
        assert view.waiting_for == "0 of 8 GPUs are allocatable"
        assert view.waiting_until is not None
        assert view.waiting_until - view.started_at == timedelta(minutes=30)
        await bench.handle.terminate()
