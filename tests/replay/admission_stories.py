"""What is recorded of admissions for replay; told like the stories of incidents beside this, which list these too."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any, Final

from temporalio.client import WorkflowFailureError, WorkflowHandle
from temporalio.testing import WorkflowEnvironment

from sickbay.faults import Rung
from tests.workflows.admission_bench import AdmissionBench, admission_bench, quick_admission
from tests.workflows.fake_world import fault

MOMENT: Final = timedelta(milliseconds=200)
FAILS_UNDER_LOAD: Final = fault("gpu-lost", Rung.REBOOT)


@asynccontextmanager
async def _told(environment: WorkflowEnvironment, rules: dict[str, Any], **world: Any) -> AsyncIterator[AdmissionBench]:
    """An admission under way."""
    policy = quick_admission(**{"look_every": MOMENT, **rules}).model_copy(update={"look_every": MOMENT})
    async with admission_bench(environment, policy, **world) as bench:
        await bench.start()
        yield bench


async def admitted(environment: WorkflowEnvironment) -> list[WorkflowHandle[Any, Any]]:
    """A node whose devices come late, and whose checks start even later."""
    async with _told(environment, {}, late_looks=1, starting_passes=1) as bench:
        await bench.result()
        return [bench.handle]


async def admitted_after_a_repair(environment: WorkflowEnvironment) -> list[WorkflowHandle[Any, Any]]:
    """A node that fails under load, and whose incident cures it."""
    async with _told(environment, {}, fails_under_load=FAILS_UNDER_LOAD, repair_looks=1) as bench:

        def repaired() -> None:
            bench.world.fails_under_load, bench.world.boot_id = None, "boot-2"

        bench.world.at_its_end = repaired
        await bench.result()
        return [bench.handle]


async def admitted_though_late(environment: WorkflowEnvironment) -> list[WorkflowHandle[Any, Any]]:
    """A node that a person is asked about, and that then comes by itself."""
    async with _told(environment, {"deadline": 2 * MOMENT}, late_looks=8, repair_looks=100) as bench:
        await bench.result()
        return [bench.handle]


async def admission_left_to_people(environment: WorkflowEnvironment) -> list[WorkflowHandle[Any, Any]]:
    """A node whose MIG layout no incident mends."""
    async with _told(environment, {}, mig_config="all-1g.10gb", mig_state="failed", repair_looks=0) as bench:
        await bench.result()
        return [bench.handle]


async def admission_cancelled(environment: WorkflowEnvironment) -> list[WorkflowHandle[Any, Any]]:
    """A person cancels it while it waits."""
    async with _told(environment, {"look_every": timedelta(minutes=1)}, late_looks=100) as bench:
        await bench.until(lambda view: bool(view.waiting_for))
        await bench.handle.cancel()
        try:
            await bench.result()
        except WorkflowFailureError:
            return [bench.handle]
        raise AssertionError("it was not cancelled")


ADMISSIONS: Final = (
    admitted,
    admitted_after_a_repair,
    admitted_though_late,
    admission_left_to_people,
    admission_cancelled,
)
