"""The ladder for every class of fault, and every way out, on the time-skipping server."""

from datetime import UTC, datetime, timedelta

import pytest
from temporalio.testing import WorkflowEnvironment

from activities.incidents import PastIncident
from sickbay.faults import Component, ComponentKind, FaultClass, Rung
from sickbay.incident import CommandKind, FaultReport, FaultsCleared, HandoverReason, Outcome, Stage
from sickbay.nodes import DrainOutcome, OwnerKind
from sickbay.policy.model import ApprovalNeed, RungPolicy
from tests.workflows.fake_world import fault
from tests.workflows.incident_bench import incident_bench, leaves_nothing, quick_policy
from workflows.node_incident import NodeIncident

pytestmark = pytest.mark.asyncio(loop_scope="session")

FREE = RungPolicy(approval=ApprovalNeed.NEVER, deadline=timedelta(hours=1))


async def test_a_reset_cures_and_the_node_returns_with_proof(time_skipping: WorkflowEnvironment) -> None:
    async with incident_bench(time_skipping, budget="grant") as bench:
        with time_skipping.with_time_skipping_disabled():
            await bench.start()
            await bench.until(Stage.SOAKING)
            assert await bench.permit_holders() == [bench.handle.id]
            await bench.skip(timedelta(minutes=20))
            result = await bench.result()
        assert (result.outcome, result.rung) == (Outcome.RETURNED, Rung.RESET_GPU)
        assert "GPUs answer" in result.proof
        assert bench.world.acts["reset_gpus"] == 1
        assert not bench.world.cordoned
        assert leaves_nothing(bench.world)
        assert await bench.permit_holders() == []


async def test_a_fault_that_a_reset_does_not_cure_climbs_to_a_reboot(time_skipping: WorkflowEnvironment) -> None:
    async with incident_bench(time_skipping, cured_by=Rung.REBOOT) as bench:
        await bench.start()
        result = await bench.result()
        assert (result.outcome, result.rung) == (Outcome.RETURNED, Rung.REBOOT)
        assert "boot-2 after boot-1" in result.proof
        assert (bench.world.acts["reset_gpus"], bench.world.acts["reboot_host"]) == (1, 1)


async def test_a_refused_reset_climbs_without_verifying_it(time_skipping: WorkflowEnvironment) -> None:
    async with incident_bench(time_skipping, cured_by=Rung.REBOOT, reset_refused="in use") as bench:
        await bench.start()
        result = await bench.result()
        assert result.rung is Rung.REBOOT
        assert "in use" in result.view.intents[0].failure


@pytest.mark.parametrize(
    ("fault_class", "first"),
    [
        (FaultClass.GPU, Rung.STOP_WORKLOAD),
        (FaultClass.GPU, Rung.RESET_GPU),
        (FaultClass.FABRIC, Rung.RESET_GPU),
        (FaultClass.GPU, Rung.REBOOT),
        (FaultClass.NETWORK, Rung.REBOOT),
        (FaultClass.STORAGE, Rung.REBOOT),
        (FaultClass.DRIVER, Rung.REBOOT),
        (FaultClass.HOST, Rung.REBOOT),
        (FaultClass.APPLICATION, Rung.STOP_WORKLOAD),
    ],
)
async def test_each_class_starts_at_its_own_rung(
    time_skipping: WorkflowEnvironment, fault_class: FaultClass, first: Rung
) -> None:
    found = fault("some-fault", first, fault_class, component=Component(kind=ComponentKind.GPU, id="unknown"))
    async with incident_bench(time_skipping, cured_by=first, fault=found) as bench:
        if first is Rung.STOP_WORKLOAD:
            bench.world.on["drain_node"] = lambda: setattr(bench.world, "sick", False)
        await bench.start()
        result = await bench.result()
        assert (result.outcome, result.rung) == (Outcome.RETURNED, first)


async def test_replacement_waits_for_a_person_and_ends_with_a_successor(time_skipping: WorkflowEnvironment) -> None:
    async with incident_bench(time_skipping, budget="grant", fault=fault("row-remap-failed", Rung.REPLACE)) as bench:
        with time_skipping.with_time_skipping_disabled():
            await bench.start()
            view = await bench.until(Stage.AWAITING_APPROVAL)
            assert "approval of replace" in view.waiting_for
            assert view.waiting_until is not None
            assert "only" in await bench.refused(CommandKind.CLOSE)
            assert "not for reboot" in await bench.refused(CommandKind.APPROVE, rung=Rung.REBOOT)
            assert "name the rung" in await bench.refused(CommandKind.APPROVE)
            assert "attempt 1" in await bench.refused(CommandKind.APPROVE, rung=Rung.REPLACE, attempt=2)
            assert "who you are" in await bench.refused(CommandKind.APPROVE, rung=Rung.REPLACE, by=" ")
            assert "say why" in await bench.refused(CommandKind.APPROVE, rung=Rung.REPLACE, reason="")
            reply = await bench.say(CommandKind.APPROVE, rung=Rung.REPLACE, request_id="r1")
            assert "approved" in reply.message
            again = await bench.say(CommandKind.APPROVE, rung=Rung.REPLACE, request_id="r1")
            assert "before" in again.message
            result = await bench.result()
        assert (result.outcome, result.rung) == (Outcome.REPLACED, Rung.REPLACE)
        assert "SickbayApprovalNeeded" in bench.world.events
        assert bench.world.acts["delete_node_claim"] == 1
        assert [approval.by for approval in result.view.approvals] == ["ada"]
        assert leaves_nothing(bench.world)


async def test_a_group_replaces_its_member(time_skipping: WorkflowEnvironment) -> None:
    policy = quick_policy(replace=FREE)
    found = fault("row-remap-failed", Rung.REPLACE)
    async with incident_bench(time_skipping, policy, fault=found, owner=OwnerKind.AUTOSCALING_GROUP) as bench:
        await bench.start()
        assert (await bench.result()).outcome is Outcome.REPLACED
        assert bench.world.acts["replace_member"] == 1


async def test_a_node_that_nobody_makes_is_handed_over(time_skipping: WorkflowEnvironment) -> None:
    policy = quick_policy(replace=FREE)
    found = fault("row-remap-failed", Rung.REPLACE)
    async with incident_bench(time_skipping, policy, fault=found, owner=OwnerKind.NOBODY) as bench:
        assert await bench.handed_over() is HandoverReason.NO_OWNER


async def test_a_rejected_replacement_is_handed_over_and_closed_by_a_person(
    time_skipping: WorkflowEnvironment,
) -> None:
    async with incident_bench(time_skipping, budget="grant", fault=fault("row-remap-failed", Rung.REPLACE)) as bench:
        with time_skipping.with_time_skipping_disabled():
            await bench.start()
            await bench.until(Stage.AWAITING_APPROVAL)
            await bench.say(CommandKind.REJECT)
            view = await bench.until(Stage.HANDED_OVER)
            assert view.handover is HandoverReason.REJECTED
            assert await bench.permit_holders() == []
            await bench.say(CommandKind.CLOSE, keep_cordon=True)
            result = await bench.result()
        assert result.outcome is Outcome.HANDED_OVER
        assert bench.world.cordoned
        assert leaves_nothing(bench.world)


async def test_an_approval_that_nobody_gives_expires_and_in_the_end_the_cordon_is_left_to_people(
    time_skipping: WorkflowEnvironment,
) -> None:
    async with incident_bench(time_skipping, fault=fault("row-remap-failed", Rung.REPLACE)) as bench:
        await bench.start()
        result = await bench.result()
        assert (result.outcome, result.handover) == (Outcome.HANDED_OVER, HandoverReason.APPROVAL_EXPIRED)
        assert bench.world.cordoned
        assert leaves_nothing(bench.world)
        assert bench.world.acts["delete_node_claim"] == 0


@pytest.mark.parametrize("answer", ["refuse", "silent", "none"])
async def test_without_a_permit_nothing_is_disrupted(time_skipping: WorkflowEnvironment, answer: str) -> None:
    async with incident_bench(time_skipping, budget=answer) as bench:
        await bench.start()
        result = await bench.result()
        assert result.handover is HandoverReason.PERMIT_REFUSED
        assert bench.world.acts["drain_node"] == bench.world.acts["reset_gpus"] == 0
        assert leaves_nothing(bench.world)


@pytest.mark.parametrize("outcome", [DrainOutcome.BLOCKED, DrainOutcome.TIMED_OUT])
async def test_only_drained_is_drained(time_skipping: WorkflowEnvironment, outcome: DrainOutcome) -> None:
    async with incident_bench(time_skipping, drain=outcome) as bench:
        assert await bench.handed_over() is HandoverReason.DRAIN_BLOCKED
        assert bench.world.acts["reset_gpus"] == 0


async def test_a_node_that_goes_during_the_drain_ends_the_incident(time_skipping: WorkflowEnvironment) -> None:
    async with incident_bench(time_skipping, drain=DrainOutcome.NODE_GONE) as bench:
        await bench.start()
        assert (await bench.result()).outcome is Outcome.NODE_GONE
        assert await bench.permit_holders() == []


async def test_a_node_that_is_gone_at_the_opening_ends_it(time_skipping: WorkflowEnvironment) -> None:
    async with incident_bench(time_skipping, exists=False) as bench:
        await bench.start()
        assert (await bench.result()).outcome is Outcome.NODE_GONE


async def test_a_fault_that_passes_by_itself_withdraws_the_incident(time_skipping: WorkflowEnvironment) -> None:
    found = fault(
        "node-not-ready", Rung.REBOOT, FaultClass.HOST, component=Component(kind=ComponentKind.HOST, id="host")
    )
    async with incident_bench(time_skipping, fault=found) as bench:
        with time_skipping.with_time_skipping_disabled():
            await bench.start()
            view = await bench.until(lambda view: "to pass" in view.waiting_for)
            assert bench.world.cordoned
            await bench.handle.signal(NodeIncident.clear_faults, FaultsCleared(observed_at=datetime.now(UTC)))
            view = await bench.until(lambda view: "stay away" in view.waiting_for)
            assert view.faults == ()
            await bench.skip(timedelta(minutes=10))
            result = await bench.result()
        assert result.outcome is Outcome.WITHDRAWN
        assert bench.world.acts["drain_node"] == 0
        assert not bench.world.cordoned


async def test_a_fault_beyond_its_tolerance_is_repaired(time_skipping: WorkflowEnvironment) -> None:
    found = fault(
        "node-not-ready", Rung.REBOOT, FaultClass.HOST, component=Component(kind=ComponentKind.HOST, id="host")
    )
    async with incident_bench(time_skipping, fault=found, cured_by=Rung.REBOOT) as bench:
        await bench.start()
        assert (await bench.result()).rung is Rung.REBOOT


async def test_monitor_trouble_blocks_new_work_and_never_disrupts(time_skipping: WorkflowEnvironment) -> None:
    found = fault("nvml-silent", Rung.BLOCK_NEW_WORK, FaultClass.MONITOR_UNAVAILABLE)
    async with incident_bench(time_skipping, fault=found) as bench:
        await bench.start()
        result = await bench.result()
        assert (result.outcome, result.handover) == (Outcome.HANDED_OVER, HandoverReason.VERDICT)
        assert bench.world.acts["drain_node"] == 0


async def test_a_silent_host_is_rebooted_from_outside(time_skipping: WorkflowEnvironment) -> None:
    found = fault("xid-79", Rung.REBOOT)
    async with incident_bench(time_skipping, fault=found, cured_by=Rung.REBOOT, host_silent=True) as bench:
        with time_skipping.with_time_skipping_disabled():
            await bench.start()
            await bench.until(Stage.VERIFYING)
        assert bench.world.acts["reboot_instance"] == 1
        assert bench.world.acts["reboot_host"] == 0
        await bench.handle.terminate()


async def test_a_reboot_that_never_comes_is_no_proof(time_skipping: WorkflowEnvironment) -> None:
    policy = quick_policy(replace=FREE)
    found = fault("xid-79", Rung.REBOOT)
    async with incident_bench(time_skipping, policy, fault=found, reboot_works=False) as bench:
        await bench.start()
        result = await bench.result()
        assert (result.outcome, result.rung) == (Outcome.REPLACED, Rung.REPLACE)
        assert "no new boot id" in result.view.intents[0].failure


async def test_a_machine_that_keeps_coming_back_starts_higher(time_skipping: WorkflowEnvironment) -> None:
    past = tuple(
        PastIncident(outcome=Outcome.RETURNED, rung=Rung.RESET_GPU, closed_at=datetime.now(UTC)) for _ in range(2)
    )
    async with incident_bench(time_skipping, quick_policy(replace=FREE), past=past) as bench:
        await bench.start()
        result = await bench.result()
        assert result.rung is Rung.REPLACE
        assert bench.world.acts["reset_gpus"] == 0


async def test_a_fault_after_the_proof_is_a_failed_verification(time_skipping: WorkflowEnvironment) -> None:
    async with incident_bench(time_skipping) as bench:
        with time_skipping.with_time_skipping_disabled():
            await bench.start()
            await bench.until(Stage.SOAKING)
            relapse = fault("xid-79", Rung.REBOOT, last_seen=datetime.now(UTC) + timedelta(minutes=1))
            report = FaultReport(faults=(relapse,), observed_at=datetime.now(UTC))
            await bench.handle.signal(NodeIncident.report_faults, report)
            await bench.until(lambda view: view.rung is Rung.REBOOT and view.stage is Stage.SOAKING)
            await bench.skip(timedelta(minutes=20))
            result = await bench.result()
        assert (result.outcome, result.rung) == (Outcome.RETURNED, Rung.REBOOT)
        assert "xid-79" in result.view.intents[0].failure


async def test_a_late_report_of_what_was_cured_changes_nothing(time_skipping: WorkflowEnvironment) -> None:
    async with incident_bench(time_skipping) as bench:
        with time_skipping.with_time_skipping_disabled():
            await bench.start()
            await bench.until(Stage.SOAKING)
            report = FaultReport(faults=(bench.world.fault,), observed_at=datetime.now(UTC))
            await bench.handle.signal(NodeIncident.report_faults, report)
            await bench.skip(timedelta(minutes=20))
            result = await bench.result()
        assert (result.outcome, result.rung) == (Outcome.RETURNED, Rung.RESET_GPU)


async def test_a_worse_fault_raises_the_rung_while_it_waits(time_skipping: WorkflowEnvironment) -> None:
    async with incident_bench(time_skipping, budget="silent", cured_by=Rung.REBOOT) as bench:
        with time_skipping.with_time_skipping_disabled():
            await bench.start()
            await bench.until(Stage.AWAITING_PERMIT)
            worse = FaultReport(faults=(fault("xid-79", Rung.REBOOT),), observed_at=datetime.now(UTC))
            await bench.handle.signal(NodeIncident.report_faults, worse)
            await bench.until(lambda view: view.verdict.rung is Rung.REBOOT)
            await bench.say(CommandKind.WITHDRAW)
            assert (await bench.result()).outcome is Outcome.WITHDRAWN
        assert leaves_nothing(bench.world)
        assert not bench.world.cordoned
