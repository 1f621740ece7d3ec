"""The watch of an attempt, over a simulated API server; ranks' pages and checkpoints come from the test."""

import asyncio
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from activities.errors import FinalError, PassingError
from activities.job_watch import JobWatchActivities, Rhythm, WatchAttempt
from activities.jobs import CreateAttempt, JobActivities
from sickbay.checkpoints.model import Checkpoint, CheckpointListing, CheckpointQuery, Level
from sickbay.ranks.model import NodeRanks, RankPlace, RankWindow
from sickbay.training.attempts import AttemptLook, AttemptRef, AttemptState, WatchRequest
from simulator.kube.faults import RequestFault
from tests.activities.attempts import JOBS, PLAN, REF, SPEC, make_pod
from tests.eventually import eventually
from tests.kube_under_test import KubeUnderTest
from tests.sickbay.training.manifests.given import checkpoint

pytestmark = pytest.mark.kube

MOMENT = timedelta(milliseconds=10)
ALL_THE_TIME = Rhythm(look=MOMENT, ranks=MOMENT, checkpoints=MOMENT)
LONG = timedelta(seconds=60)
"""Until when a watch may last that must return by itself much sooner."""
SHORT = timedelta(milliseconds=300)
"""A watch in which nothing happens."""
PLACE = CheckpointQuery(place=SPEC.checkpoints)


class Outside:
    """What the test says of ranks and checkpoints."""

    def __init__(self) -> None:
        self.pages: tuple[NodeRanks, ...] = ()
        self.listed: tuple[Checkpoint, ...] = ()
        self.store_trouble: Exception | None = None
        self.store_hangs = False
        self.stopped = False
        """Whether a listing that hung was ended."""
        self.queries: list[CheckpointQuery] = []
        self.asked: list[tuple[str, ...]] = []

    async def fetch(self, ref: AttemptRef, nodes: Iterable[str]) -> tuple[NodeRanks, ...]:
        self.asked.append(tuple(nodes))
        return self.pages

    async def list_checkpoints(self, query: CheckpointQuery) -> CheckpointListing:
        self.queries.append(query)
        if self.store_hangs:
            try:
                await asyncio.sleep(3600)
            finally:
                self.stopped = True
        if self.store_trouble is not None:
            raise self.store_trouble
        return CheckpointListing(observed_at=datetime.now(UTC), complete=True, checkpoints=self.listed)


class Bench:
    """An attempt of two pods that run, and its watch."""

    def __init__(self, kube: KubeUnderTest) -> None:
        self.kube = kube
        self.outside = Outside()
        self.jobs = JobActivities(kube.api_client(), look_every=MOMENT)
        self.watches = JobWatchActivities(
            self.jobs, self.outside, self.outside.list_checkpoints, rhythm=ALL_THE_TIME, slow_at_least=timedelta()
        )

    async def set_up(self) -> None:
        await self.jobs.create_attempt(CreateAttempt(spec=SPEC, plan=PLAN))
        for rank in (0, 1):
            await self.kube.create_node(f"node-{rank}")
            await make_pod(self.kube, rank, node=f"node-{rank}")

    def watch(self, lasting: timedelta = LONG, **request: Any) -> "asyncio.Task[AttemptLook]":
        """A watch under way, by a workflow that knows the attempt to run."""
        known = {"state": AttemptState.RUNNING, **request}
        wanted = WatchRequest(ref=REF, until=datetime.now(UTC) + lasting, **known)
        return asyncio.create_task(self.watches.watch_attempt(WatchAttempt(spec=SPEC, request=wanted)))


@pytest.fixture
async def bench(kube_server: KubeUnderTest) -> Bench:
    made = Bench(kube_server)
    await made.set_up()
    return made


def page(rank: int = 0, step: int = 7, last: timedelta = timedelta(seconds=1)) -> NodeRanks:
    """One node's page: its rank finished `step` so long ago, by steps of a second."""
    now = datetime.now(UTC)
    window = RankWindow(
        job="default/llama",
        attempt=REF.attempt,
        place=RankPlace(rank=rank),
        node=f"node-{rank}",
        first_step=1,
        last_step=step,
        first_at=now - last - timedelta(seconds=step),
        last_at=now - last,
        steps=min(step, 50),
        step_ms=1000,
        compute_ms=900,
        collective_ms=50,
        data_ms=10,
        checkpoint_ms_total=0,
        tokens=0,
    )
    return NodeRanks(node=window.node, boot_id="boot-1", at=now, window=timedelta(seconds=60), windows=(window,))


async def test_a_watch_in_which_nothing_happens_lasts_its_time_and_tells_what_it_saw(bench: Bench) -> None:
    seen = await bench.watch(SHORT)
    assert (seen.state, seen.running) == (AttemptState.RUNNING, 2)
    assert bench.outside.asked[0] == ("node-0", "node-1")
    assert bench.outside.queries == []


@pytest.mark.parametrize("known", [AttemptState.PENDING, AttemptState.ENDED])
async def test_another_state_than_the_known_one_returns_at_once(bench: Bench, known: AttemptState) -> None:
    assert (await bench.watch(state=known)).state is AttemptState.RUNNING


async def test_a_pod_that_fails_returns(bench: Bench) -> None:
    watching = bench.watch()
    await bench.kube.set_pod_status(f"{REF.name}-1", phase="Failed")
    seen = await watching
    assert (seen.state, seen.why) == (AttemptState.FAILED, f"{REF.name}-1 failed: no reason is told")


async def test_a_pod_that_vanishes_returns_though_another_came_for_it(bench: Bench) -> None:
    watching = bench.watch()
    await eventually(lambda: bool(bench.outside.asked))
    await bench.kube.finish_pod(f"{REF.name}-1")
    seen = await watching
    assert (seen.state, seen.why) == (AttemptState.FAILED, f"{REF.name}-1 is gone from node-1 without a word")
    # And where another watch saw it last.
    placements = seen.placements
    await bench.kube.finish_pod(f"{REF.name}-0")
    for rank in (0, 1):
        await make_pod(bench.kube, rank, node=f"node-{rank}", suffix="-again")
    again = await bench.watch(placements=placements)
    assert again.state is AttemptState.FAILED


async def test_an_object_that_somebody_deletes_returns(bench: Bench) -> None:
    watching = bench.watch()
    await bench.kube.request("DELETE", f"{JOBS}/{REF.name}", {"propagationPolicy": "Background"})
    assert (await watching).state is AttemptState.ABSENT


async def test_a_newer_durable_checkpoint_returns_and_others_do_not(bench: Bench) -> None:
    short = checkpoint(300).model_copy(update={"level": Level.LISTED})
    tainted = checkpoint(250).model_copy(update={"tainted": "node-x was wrong"})
    bench.outside.listed = (short, tainted, checkpoint(100))
    seen = await bench.watch(SHORT, checkpoints=PLACE, newest_step=100)
    assert seen.newest == checkpoint(100)
    assert {query.known for query in bench.outside.queries} == {(), bench.outside.listed}
    watching = bench.watch(checkpoints=PLACE, newest_step=100)
    bench.outside.listed = (checkpoint(200), *bench.outside.listed)
    assert (await watching).newest == checkpoint(200)


@pytest.mark.parametrize("trouble", [PassingError("503"), FinalError("403"), OSError("no route")])
async def test_a_store_that_is_away_does_not_end_the_watch(bench: Bench, trouble: Exception) -> None:
    bench.outside.listed, bench.outside.store_trouble = (checkpoint(200),), trouble
    watching = bench.watch(checkpoints=PLACE)
    await eventually(lambda: len(bench.outside.queries) > 1)
    assert not watching.done()
    bench.outside.store_trouble = None
    assert (await watching).newest == checkpoint(200)


async def test_a_store_that_does_not_answer_holds_no_failure_up(bench: Bench) -> None:
    bench.outside.store_hangs = True
    watching = bench.watch(checkpoints=PLACE)
    await eventually(lambda: bool(bench.outside.queries))
    await bench.kube.set_pod_status(f"{REF.name}-1", phase="Failed")
    assert (await watching).state is AttemptState.FAILED
    assert len(bench.outside.queries) == 1


async def test_the_first_step_returns_and_then_the_wanted_one(bench: Bench) -> None:
    bench.outside.pages = (page(0), page(1))
    first = await bench.watch()
    assert first.ranks is not None
    assert (first.ranks.step, first.ranks.reporting) == (7, 2)
    assert (await bench.watch(step=5, step_wanted=7)).ranks is not None
    watching = bench.watch(step=5, step_wanted=9)
    await eventually(lambda: len(bench.outside.asked) > 4)
    assert not watching.done()
    bench.outside.pages = (page(0, step=9), page(1, step=9))
    assert (await watching).ranks is not None


async def test_a_standstill_returns(bench: Bench) -> None:
    ago = timedelta(minutes=30)
    bench.outside.pages = (page(0, step=900, last=ago), page(1, step=900, last=ago))
    seen = await bench.watch(step=900, hang_floor_seconds=1)
    assert seen.ranks is not None
    assert seen.ranks.hang is not None
    assert seen.ranks.hang.last_step == 900


async def test_an_api_server_that_is_away_is_no_failure_of_the_job(bench: Bench) -> None:
    if bench.kube.simulator is None:
        pytest.skip("a real API server is not away on order")
    watching = bench.watch(timedelta(seconds=1))
    await eventually(lambda: bool(bench.outside.asked))
    bench.kube.simulator.faults.add(RequestFault(path="/apis/batch", status=503, times=100_000))
    seen = await watching
    assert (seen.state, seen.running) == (AttemptState.RUNNING, 2)
    assert seen.why.startswith("not seen since ")


async def test_a_watch_that_never_saw_anything_says_so(bench: Bench) -> None:
    if bench.kube.simulator is None:
        pytest.skip("a real API server is not away on order")
    bench.kube.simulator.faults.add(RequestFault(path="/apis/batch", status=503, times=100_000))
    with pytest.raises(PassingError):
        await bench.watch(SHORT)


async def test_a_watch_without_the_right_to_look_ends_for_good(bench: Bench) -> None:
    if bench.kube.simulator is None:
        pytest.skip("a real API server refuses nothing on order")
    bench.kube.simulator.faults.add(RequestFault(path="/pods", status=403, times=100_000))
    with pytest.raises(FinalError):
        await bench.watch()


async def test_a_watch_that_is_cancelled_leaves_no_listing_behind(bench: Bench) -> None:
    bench.outside.store_hangs = True
    watching = bench.watch(checkpoints=PLACE)
    await eventually(lambda: bool(bench.outside.queries))
    watching.cancel()
    with pytest.raises(asyncio.CancelledError):
        await watching
    assert bench.outside.stopped
