"""What is recorded for replay: one story for each branch, on a real server, against the fake world.

Each story gives the runs to record. Their clocks are quick, since the server's time is real.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any, Final
from uuid import uuid4

from temporalio.client import WorkflowFailureError, WorkflowHandle
from temporalio.testing import WorkflowEnvironment

from sickbay import suspicions
from sickbay.catalogue import fault_of
from sickbay.faults import Component, ComponentKind, FaultClass, Rung
from sickbay.incident import CommandKind, Stage
from sickbay.nodes import DrainOutcome, OwnerKind
from sickbay.permits import PermitRequest
from sickbay.policy.model import ApprovalNeed, FaultPolicy, IncidentPolicy, JobsPolicy, Limit, RungPolicy
from sickbay.training.handshake import AnswerKind, JobAnswer
from tests.eventually import eventually
from tests.replay.admission_stories import ADMISSIONS
from tests.replay.training_stories import TRAININGS
from tests.workflows.budget_worker import LONG_AGO, FakePools, budget_worker, node
from tests.workflows.fake_world import fault
from tests.workflows.incident_bench import Bench, incident_bench, quick_policy
from tests.workflows.permit_holder import HolderInput, PermitHolder
from workflows.disruption_budget import BudgetInput, DisruptionBudget

Run = WorkflowHandle[Any, Any]
Story = Callable[[WorkflowEnvironment], Awaitable[list[Run]]]

SOON: Final = timedelta(seconds=1)
FREE: Final = RungPolicy(approval=ApprovalNeed.NEVER, deadline=timedelta(minutes=1))
WORN_OUT: Final = fault("row-remap-failed", Rung.REPLACE)
NOT_READY: Final = fault(
    "node-not-ready", Rung.REBOOT, FaultClass.HOST, component=Component(kind=ComponentKind.HOST, id="host")
)


def policy(**values: Any) -> IncidentPolicy:
    """A policy that waits for little."""
    quick = {"soak": SOON, "recovery_soak": SOON, "verify_every": timedelta(milliseconds=200)}
    return quick_policy(**{**quick, **values})


@asynccontextmanager
async def told(
    environment: WorkflowEnvironment, rules: IncidentPolicy | None = None, **world: Any
) -> AsyncIterator[Bench]:
    """An incident under way."""
    async with incident_bench(environment, rules or policy(), **{"budget": "grant", **world}) as bench:
        await bench.start()
        yield bench


async def returned_by_reset(environment: WorkflowEnvironment) -> list[Run]:
    async with told(environment, gpu_clients=("dcgm", "device-plugin")) as bench:
        await bench.result()
        return [bench.handle]


async def returned_by_reboot(environment: WorkflowEnvironment) -> list[Run]:
    async with told(environment, cured_by=Rung.REBOOT, reset_refused="in use") as bench:
        await bench.result()
        return [bench.handle]


async def rebooted_from_outside(environment: WorkflowEnvironment) -> list[Run]:
    async with told(environment, fault=fault("xid-79", Rung.REBOOT), cured_by=Rung.REBOOT, host_silent=True) as bench:
        await bench.until(Stage.VERIFYING)
        await bench.handle.cancel()
        await _ends_cancelled(bench)
        return [bench.handle]


async def relapsed_in_the_soak(environment: WorkflowEnvironment) -> list[Run]:
    async with told(environment, policy(soak=timedelta(seconds=3))) as bench:
        await bench.until(Stage.SOAKING)
        await bench.report(fault("xid-79", Rung.REBOOT))
        await bench.result()
        return [bench.handle]


async def left_by_its_jobs(environment: WorkflowEnvironment) -> list[Run]:
    jobs = ("job-c-default-a", "job-c-default-b")
    quick = policy(jobs=JobsPolicy(checkpoint_deadline=timedelta(seconds=4)))
    async with told(environment, quick, jobs=jobs) as bench:
        await bench.until_act("tell_jobs")
        for kind in (AnswerKind.CHECKPOINTED, AnswerKind.LEFT):
            answer = JobAnswer(job_id=jobs[0], node_uid="uid-1", kind=kind, step=70, at=LONG_AGO)
            await bench.handle.signal("job_answer", answer)
        await bench.result()
        return [bench.handle]


async def suspected_for_nothing(environment: WorkflowEnvironment) -> list[Run]:
    suspect = fault_of(suspicions.SUSPECT, Component(kind=ComponentKind.HOST, id="host"))
    async with told(environment, fault=suspect, sick=False) as bench:
        await bench.result()
        return [bench.handle]


async def replaced_by_karpenter(environment: WorkflowEnvironment) -> list[Run]:
    async with told(environment, fault=WORN_OUT) as bench:
        await bench.until(Stage.AWAITING_APPROVAL)
        await bench.refused(CommandKind.APPROVE, rung=Rung.REBOOT)
        await bench.say(CommandKind.APPROVE, rung=Rung.REPLACE, request_id="approval-1")
        await bench.result()
        return [bench.handle]


async def replaced_by_a_group(environment: WorkflowEnvironment) -> list[Run]:
    async with told(environment, policy(replace=FREE), fault=WORN_OUT, owner=OwnerKind.AUTOSCALING_GROUP) as bench:
        await bench.result()
        return [bench.handle]


async def withdrawn_by_itself(environment: WorkflowEnvironment) -> list[Run]:
    tolerant = FaultPolicy(code="node-not-ready", tolerance=timedelta(hours=1))
    async with told(environment, policy(faults=(tolerant,)), fault=NOT_READY) as bench:
        await bench.until(Stage.OBSERVING)
        await bench.clear()
        await bench.result()
        return [bench.handle]


async def withdrawn_by_a_person(environment: WorkflowEnvironment) -> list[Run]:
    async with told(environment, fault=WORN_OUT) as bench:
        await bench.until(Stage.AWAITING_APPROVAL)
        await bench.say(CommandKind.HOLD)
        await bench.until(Stage.HELD)
        await bench.signal(CommandKind.APPROVE, rung=Rung.REPLACE)
        await bench.say(CommandKind.RELEASE)
        await bench.until(Stage.AWAITING_APPROVAL)
        await bench.signal(CommandKind.WITHDRAW)
        await bench.result()
        return [bench.handle]


async def handed_over_and_closed(environment: WorkflowEnvironment) -> list[Run]:
    async with told(environment, fault=WORN_OUT) as bench:
        await bench.until(Stage.AWAITING_APPROVAL)
        await bench.say(CommandKind.REJECT)
        await bench.until(Stage.HANDED_OVER)
        await bench.say(CommandKind.CLOSE, keep_cordon=True)
        await bench.result()
        return [bench.handle]


async def approval_expired(environment: WorkflowEnvironment) -> list[Run]:
    async with told(environment, policy(approval_deadline=SOON, handover_deadline=2 * SOON), fault=WORN_OUT) as bench:
        await bench.result()
        return [bench.handle]


async def permit_refused(environment: WorkflowEnvironment) -> list[Run]:
    async with told(environment, policy(handover_deadline=SOON), budget="refuse") as bench:
        await bench.result()
        return [bench.handle]


async def drain_blocked_and_rung_chosen(environment: WorkflowEnvironment) -> list[Run]:
    async with told(environment, drain=DrainOutcome.BLOCKED) as bench:
        await bench.until(Stage.HANDED_OVER)
        bench.world.drain = DrainOutcome.DRAINED
        await bench.say(CommandKind.CHOOSE_RUNG, rung=Rung.REBOOT)
        await bench.result()
        return [bench.handle]


async def locked_by_others(environment: WorkflowEnvironment) -> list[Run]:
    rules = policy(foreign_lock_deadline=SOON, handover_deadline=SOON)
    async with told(environment, rules, foreign_locks=("driver upgrade",)) as bench:
        await bench.result()
        return [bench.handle]


async def node_gone(environment: WorkflowEnvironment) -> list[Run]:
    async with told(environment, drain=DrainOutcome.NODE_GONE) as bench:
        await bench.result()
        return [bench.handle]


async def cancelled_in_a_drain(environment: WorkflowEnvironment) -> list[Run]:
    async with told(environment, drain_hangs=True) as bench:
        await bench.until_act("drain_node")
        await bench.handle.cancel()
        await _ends_cancelled(bench)
        return [bench.handle]


async def continued(environment: WorkflowEnvironment) -> list[Run]:
    """On a server that suggests it after few events; both runs."""
    async with told(environment, fault=WORN_OUT) as bench:
        await bench.until(Stage.AWAITING_APPROVAL)
        first = (await bench.handle.describe()).run_id
        handle = bench.environment.client.get_workflow_handle(bench.handle.id)
        async with asyncio.timeout(30):
            while (newest := (await handle.describe()).run_id) == first:
                await bench.report(bench.world.fault)
        await handle.signal("command_signal", {"kind": "withdraw", "by": "ada", "reason": "seen it"})
        await handle.result()
        return [environment.client.get_workflow_handle(handle.id, run_id=run) for run in (first, newest)]


async def budget_with_two_holders(environment: WorkflowEnvironment) -> list[Run]:
    queue = f"budget-{uuid4()}"
    client = environment.client
    async with budget_worker(client, queue, pools := FakePools("abcd")):
        start = BudgetInput(cluster="lab", look_every=timedelta(milliseconds=200), sweep_every=SOON)
        budget = await client.start_workflow(DisruptionBudget.run, start, id=queue, task_queue=queue)
        pools.out = {"a"}
        first = await _holder(environment, queue, "a")
        await eventually(lambda: _hears(first, "permits"))
        second = await _holder(environment, queue, "b")
        await eventually(lambda: _hears(second, "waits"))
        pools.out = set()
        for holder in (first, second):
            await holder.signal(PermitHolder.finish)
            await holder.result()
        await eventually(lambda: _is_empty(budget))
        await budget.terminate()
        return [budget]


async def _holder(environment: WorkflowEnvironment, queue: str, name: str) -> WorkflowHandle[PermitHolder, None]:
    holder = f"incident-{name}-{uuid4()}"
    request = PermitRequest(
        holder=holder,
        node=node(name),
        rung=Rung.REBOOT,
        limit=Limit(count=1, percent=100),
        lease=timedelta(hours=1),
        requested_at=LONG_AGO,
    )
    start = HolderInput(budget_id=queue, request=request)
    return await environment.client.start_workflow(PermitHolder.run, start, id=holder, task_queue=queue)


async def _hears(holder: WorkflowHandle[PermitHolder, None], what: str) -> bool:
    return bool(getattr(await holder.query(PermitHolder.heard), what))


async def _is_empty(budget: WorkflowHandle[DisruptionBudget, None]) -> bool:
    return not (await budget.query(DisruptionBudget.ledger)).holders


async def _ends_cancelled(bench: Bench) -> None:
    try:
        await bench.result()
    except WorkflowFailureError:
        return
    raise AssertionError("it was not cancelled")


STORIES: Final[dict[str, Story]] = {
    story.__name__: story
    for story in (
        returned_by_reset,
        returned_by_reboot,
        rebooted_from_outside,
        relapsed_in_the_soak,
        left_by_its_jobs,
        suspected_for_nothing,
        replaced_by_karpenter,
        replaced_by_a_group,
        withdrawn_by_itself,
        withdrawn_by_a_person,
        handed_over_and_closed,
        approval_expired,
        permit_refused,
        drain_blocked_and_rung_chosen,
        locked_by_others,
        node_gone,
        cancelled_in_a_drain,
        continued,
        budget_with_two_holders,
        *ADMISSIONS,
        *TRAININGS,
    )
}
