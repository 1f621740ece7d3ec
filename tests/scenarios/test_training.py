"""Training jobs on real processes: killed, hung, fed with nonsense and robbed of their checkpoint, they end bit-equal.

Each story runs a small NumPy trainer as pods of a simulated cluster, its checkpoints in simulated S3. Whatever happens
to it, the weights at the target are those of a run that nobody disturbed, to the last bit.
"""

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import pytest_asyncio

from console import demo_job, job_desk
from console.stage import CLUSTER
from sickbay.incident import Outcome
from sickbay.names import ANNOTATION_INCIDENT
from sickbay.training.job import JobDeadlines, JobInput, JobOutcome, JobResult, JobView, TrainingSpec
from simulator.trainer.saving import WEIGHTS
from tests.scenarios import faults
from tests.scenarios.case import Case
from tests.scenarios.cluster import Cluster
from tests.scenarios.stories import POLICY, Stories, Story, telling, title
from tests.scenarios.waiting import seen

pytestmark = [pytest.mark.scenario, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(400)]

SCENARIO = """
speed: 20
times: {boot: 20, reboot: 60, gpu_reset: 20}
pools:
  - {name: p5, kind: karpenter, nodes: 10}
"""
STEPS = 160
QUICK = JobDeadlines(hang_floor=timedelta(seconds=8), evidence=timedelta(seconds=20), teardown=timedelta(minutes=2))


class Run:
    """One job of a story."""

    def __init__(self, stage: Cluster, spec: TrainingSpec, handle: job_desk.Handle) -> None:
        self.stage = stage
        self.spec = spec
        self.handle = handle

    @classmethod
    async def begin(cls, stage: Cluster, name: str, nodes: int = 1, steps: int = STEPS) -> "Run":
        """Submit it, as `sickbay train submit` does."""
        spec = demo_job.training_spec(stage.stage, name, nodes=nodes, steps=steps, deadlines=QUICK)
        start = JobInput(cluster=CLUSTER, spec=spec, submitted_by="a test", submitted_at=datetime.now(UTC))
        return cls(stage, spec, await job_desk.submit(stage.client, start))

    async def view(self) -> JobView:
        return await job_desk.read(self.handle)

    async def until(self, what: str, reached: Callable[[JobView], bool]) -> JobView:
        """Wait until the job shows it."""

        async def look() -> bool:
            return reached(await self.view())

        await seen(what, look)
        return await self.view()

    async def durable(self, step: int) -> JobView:
        """Wait for a durable checkpoint of at least this step, with the job's pods placed."""
        return await self.until(
            f"step {step} of {self.spec.name} is durable",
            lambda view: (view.history.durable_step or 0) >= step and bool(view.placements),
        )

    async def ends(self) -> JobResult:
        """Its end, which must be a success with the weights of an undisturbed run."""
        result = await asyncio.wait_for(self.handle.result(), 240)
        told = "\n".join(entry.text for entry in result.view.timeline)
        assert result.outcome is JobOutcome.SUCCEEDED, told
        undisturbed = await demo_job.undisturbed_weights(self.spec.target.step or 0)
        assert demo_job.last_weights(self.stage.stage, result.view) == undisturbed, told
        return result

    def process(self, view: JobView, rank: int = 0) -> int:
        """The process of one rank."""
        pod = next(place for place in view.placements if place.rank == rank)
        folder = self.stage.stage.folder / "cluster" / "pods" / f"{pod.pod}-{pod.pod_uid[:8]}"
        return int((folder / "pid").read_text())


async def a_lost_node_costs_the_steps_since_the_last_checkpoint_and_no_more(stage: Cluster) -> None:
    run = await Run.begin(stage, "lost-node", nodes=2)
    view = await run.durable(20)
    sick = view.placements[0].node
    case = await Case.of(stage, sick)
    await case.falls_ill(faults.NEEDS_REBOOT)
    await run.until("the second attempt", lambda view: view.attempt == 2 and bool(view.placements))
    result = await run.ends()
    attempts = result.view.history.attempts
    assert attempts[1].resume_step is not None
    assert attempts[1].resume_step >= 20
    assert sick not in attempts[1].node_names
    await case.ends()
    node = await stage.node(sick)
    assert ANNOTATION_INCIDENT not in node.metadata.annotations


async def a_killed_rank_and_a_cut_checkpoint_cost_one_attempt_and_one_checkpoint(stage: Cluster) -> None:
    run = await Run.begin(stage, "killed")
    view = await run.durable(40)
    step = view.history.durable_step or 0
    newest = f"killed/1/step-{step:08d}/{WEIGHTS}"
    demo_job.bucket_client(stage.stage).put_object(Bucket=demo_job.BUCKET, Key=newest, Body=b"cut")
    os.kill(run.process(view), signal.SIGKILL)
    result = await run.ends()
    first, second = result.view.history.attempts[:2]
    assert first.verdict is not None
    assert second.resume_step is not None
    assert second.resume_step != step


async def a_rank_that_stands_still_is_found_by_the_jobs_own_pace(stage: Cluster) -> None:
    run = await Run.begin(stage, "stands-still")
    view = await run.durable(20)
    os.kill(run.process(view), signal.SIGSTOP)
    await run.until("the hang is found", lambda view: bool(view.history.attempts[0].end))
    assert "no step after" in (await run.view()).history.attempts[0].why
    await run.ends()


async def values_that_are_no_numbers_end_the_attempt_and_the_next_one_ends_well(stage: Cluster) -> None:
    run = await Run.begin(stage, "no-numbers")
    view = await run.durable(20)
    node = await stage.node(view.placements[0].node)
    machine = next(each for each in await stage.machines() if each.node == node.metadata.name)
    trouble = Path(machine.folder) / "host" / "trouble.json"
    trouble.write_text(json.dumps({"nan": True}))
    await run.until("the attempt is over", lambda view: bool(view.history.attempts[0].verdict))
    trouble.unlink()
    result = await run.ends()
    verdict = result.view.history.attempts[0].verdict
    assert verdict is not None
    assert verdict.rule == "row-25-not-a-number"


async def a_slowed_rank_is_told_and_its_node_is_suspected(stage: Cluster) -> None:
    run = await Run.begin(stage, "slowed", nodes=4, steps=320)
    view = await run.durable(20)
    slow = next(place for place in view.placements if place.rank == 1)
    case = await Case.of(stage, slow.node)
    machine = next(each for each in await stage.machines() if each.node == slow.node)
    (Path(machine.folder) / "host" / "trouble.json").write_text(json.dumps({"slow": 4}))
    await run.until("the slow rank is told", lambda view: any("rank 1 on" in entry.text for entry in view.timeline))
    await run.ends()
    # Its own checks find nothing, once the job has left it: a suspicion is no verdict.
    assert (await case.ends()).outcome is Outcome.WITHDRAWN


STORIES: list[Story] = [
    a_lost_node_costs_the_steps_since_the_last_checkpoint_and_no_more,
    a_killed_rank_and_a_cut_checkpoint_cost_one_attempt_and_one_checkpoint,
    a_rank_that_stands_still_is_found_by_the_jobs_own_pace,
    values_that_are_no_numbers_end_the_attempt_and_the_next_one_ends_well,
    a_slowed_rank_is_told_and_its_node_is_suspected,
]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stories(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Stories]:
    def bucket(stage: Cluster) -> None:
        demo_job.make_bucket(stage.stage)

    async with telling(SCENARIO, POLICY, tmp_path_factory.mktemp("training"), STORIES, set_up=bucket) as told:
        yield told


@pytest.mark.parametrize("story", STORIES, ids=title)
async def test_story(stories: Stories, story: Story) -> None:
    await stories.end_of(story)
