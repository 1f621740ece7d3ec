"""Many stories on one stage, told at once: a stage costs ten seconds, and most of a story is waiting."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from tests.scenarios.cluster import Cluster, cluster
from tests.scenarios.invariants import ForeignMarks, assert_marks_are_right, plant_foreign_marks

Story = Callable[[Cluster], Coroutine[None, None, None]]

POLICY = """
version: scenarios-1
defaults:
  recovery_soak: 2s
  stop_workload: {deadline: 30s}
  reset_gpu: {deadline: 1m}
  reboot: {deadline: 90s}
  replace: {deadline: 3m}
  drain: {deadline: 1m, dead_kubelet_grace: 2s, evictions_per_minute: 600}
  host_pickup: 1m
  verify_deadline: 1m
  verify_every: 1s
  verification: {burn_in: 1s}
  soak: 3s
  approval_deadline: 10m
  look_every: 2s
  budget: {max_unavailable: {count: 20, percent: 100}}
faults:
  node-not-ready: {tolerance: 30s}
containment:
  cap: {count: 50, percent: 100}
"""
"""What the modules' policies begin with: short waits, and room for all stories at once."""


class Stories:
    """The stories of one module, under way; the invariant must hold at the end of each."""

    def __init__(self, stage: Cluster, stories: Sequence[Story], planted: dict[str, ForeignMarks]) -> None:
        self.stage = stage
        self._planted = planted
        self._tasks = {story: asyncio.ensure_future(self.tell(story)) for story in stories}

    async def tell(self, story: Story) -> None:
        """One story to its end."""
        await story(self.stage)
        await assert_marks_are_right(self.stage, self._planted)

    async def end_of(self, story: Story) -> None:
        """Wait for a story that is under way; raises what failed it."""
        await self._tasks[story]

    async def all_over(self) -> None:
        """Wait for all, whatever became of them."""
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    async def stop(self) -> None:
        """End those that nobody waits for."""
        for task in self._tasks.values():
            task.cancel()
        await self.all_over()


@asynccontextmanager
async def telling(
    scenario: str,
    policy: str,
    folder: Path,
    stories: Sequence[Story],
    *,
    protected: Sequence[str] = (),
    agent_settings: Mapping[str, str] | None = None,
    set_up: Callable[[Cluster], None] | None = None,
) -> AsyncIterator[Stories]:
    """Begin all stories at once on a stage of their own, on whose nodes others have their marks too.

    `protected` names nodes that others keep from Karpenter; `set_up` is called before the first story begins.
    """
    async with cluster(scenario, policy, folder, agent_settings) as stage:
        if set_up is not None:
            set_up(stage)
        told = Stories(stage, stories, await plant_foreign_marks(stage, protected))
        try:
            yield told
        finally:
            await told.stop()


def title(story: Story) -> str:
    """What a story shows, as the id of its test."""
    return story.__name__
