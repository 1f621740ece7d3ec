"""Sizes of an elastic job: the global batch stays, whole replicas, never below the minimum."""

from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from sickbay.training.job import Elasticity, TrainingSpec
from sickbay.training.sizes import Size, may_grow, next_size, sizes_of
from tests.sickbay.training.records import spec

NOW = datetime(2026, 11, 1, 12, tzinfo=UTC)


def elastic(**values: Any) -> TrainingSpec:
    return spec(elasticity=Elasticity(**{"min_nodes": 2, "max_nodes": 8, **values}))


def test_a_job_without_elasticity_runs_as_its_template_says_or_waits() -> None:
    assert next_size(spec(), 4, 5) == Size(nodes=4)
    assert next_size(spec(), 4, 3) is None


def test_an_elastic_job_shrinks_to_what_fits_and_never_below_its_minimum() -> None:
    assert next_size(elastic(), 8, 5) == Size(nodes=5)
    assert next_size(elastic(), 8, 100) == Size(nodes=8)
    assert next_size(elastic(), 8, 1) is None


def test_only_whole_model_replicas_are_taken() -> None:
    assert next_size(elastic(model_nodes=2), 8, 7) == Size(nodes=6)


def test_the_nearest_lower_size_that_keeps_the_global_batch_is_taken() -> None:
    job = elastic(global_batch=64, micro_batch=2, ranks_per_node=2)
    assert next_size(job, 8, 8) == Size(nodes=8, accumulation=2)
    assert next_size(job, 8, 7) == Size(nodes=4, accumulation=4)


def test_a_job_grows_back_only_after_its_dwell_and_only_to_a_larger_size() -> None:
    job = elastic(grow_after=timedelta(minutes=30))
    since = NOW - timedelta(minutes=30)
    assert may_grow(job, 4, 6, since, NOW) == Size(nodes=6)
    assert may_grow(job, 4, 6, since + timedelta(seconds=1), NOW) is None
    assert may_grow(job, 6, 6, since, NOW) is None
    assert may_grow(spec(), 4, 6, since, NOW) is None


@given(
    least=st.integers(1, 6),
    more=st.integers(0, 20),
    model=st.integers(1, 4),
    ranks=st.integers(1, 8),
    micro=st.integers(1, 4),
    batches=st.integers(1, 512),
    fitting=st.integers(0, 40),
)
def test_no_size_changes_the_global_batch_or_leaves_the_bounds(
    least: int, more: int, model: int, ranks: int, micro: int, batches: int, fitting: int
) -> None:
    rules = Elasticity(
        min_nodes=least,
        max_nodes=least + more,
        model_nodes=model,
        ranks_per_node=ranks,
        micro_batch=micro,
        global_batch=micro * batches,
    )
    for size in sizes_of(rules):
        assert least <= size.nodes <= least + more
        assert size.nodes % model == 0
        assert size.accumulation is not None
        assert size.accumulation * micro * (size.nodes // model) * ranks == rules.global_batch
    chosen = next_size(spec(elasticity=rules), least, fitting)
    assert chosen is None or chosen.nodes <= fitting
