"""Whatever happens in whatever order: an incident ends, leaves no mark, touches none of others, acts only as it may."""

import asyncio
from collections import Counter
from datetime import timedelta

import pytest
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st
from temporalio.client import WorkflowFailureError
from temporalio.testing import WorkflowEnvironment

from sickbay.faults import Rung
from sickbay.incident import IncidentResult, Outcome
from sickbay.nodes import OwnerKind
from sickbay.policy.model import RungPolicy
from tests.workflows.incident_bench import Bench, incident_bench, leaves_nothing, quick_policy
from tests.workflows.interleaving import ACTS, EVENTS, Watch

pytestmark = pytest.mark.asyncio(loop_scope="session")

POLICY = quick_policy(replace=RungPolicy(deadline=timedelta(hours=1)), verify_every=timedelta(minutes=20))
"""Few looks over a long wait, and no question before a replacement, so that each rung is reached."""
MOMENTS = 30
"""Activities that an incident begins on its way through two rungs."""


async def end_of(bench: Bench, watch: Watch) -> IncidentResult | None:
    """How it ended; None if it was cancelled."""
    await bench.start()
    watch.started.set()
    try:
        return await bench.result()
    except WorkflowFailureError:
        return None


@given(
    events=st.lists(st.tuples(st.integers(0, MOMENTS), st.sampled_from(sorted(EVENTS))), min_size=1, max_size=5),
    cured_by=st.sampled_from([Rung.RESET_GPU, Rung.REBOOT, Rung.REPLACE]),
    owner=st.sampled_from(list(OwnerKind)),
    cordoned=st.booleans(),
)
@example(events=[(13, "hold"), (14, "release")], cured_by=Rung.RESET_GPU, owner=OwnerKind.KARPENTER, cordoned=True)
@example(events=[(5, "uncordon"), (9, "clear")], cured_by=Rung.RESET_GPU, owner=OwnerKind.NOBODY, cordoned=False)
@settings(
    max_examples=15,
    derandomize=True,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=[HealthCheck.too_slow],
)
async def test_any_interleaving_ends_without_a_mark_of_ours_or_a_forbidden_act(
    time_skipping: WorkflowEnvironment,
    events: list[tuple[int, str]],
    cured_by: Rung,
    owner: OwnerKind,
    cordoned: bool,
) -> None:
    async with incident_bench(time_skipping, POLICY, cured_by=cured_by, owner=owner, cordoned=cordoned) as bench:
        watch = Watch(bench, events)
        bench.world.watcher = watch
        result = await asyncio.wait_for(end_of(bench, watch), 60)
        world = bench.world
        assert watch.violations == []
        assert leaves_nothing(world)
        assert world.paused_clients == ()
        if world.exists and watch.uncordoned:
            assert not world.cordoned
        elif world.exists and cordoned:
            assert world.cordoned
        elif result is None or result.outcome is not Outcome.HANDED_OVER:
            assert not world.cordoned
        if result is not None:
            tried = Counter(intent.rung for intent in result.view.intents)
            assert all(world.acts[act] <= tried[rung] for act, rung in ACTS.items())
