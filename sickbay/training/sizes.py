"""How many nodes an attempt runs on, and how its global batch stays what it was (facts: training, 4).

Changing the batch silently changes the training; changing the accumulation only slows it. So an elastic job takes only
sizes whose data-parallel ranks divide the micro-batches of a step, and whole replicas of its model. Without a size that
fits, it waits: that is not a failure.
"""

from datetime import datetime

from sickbay.model import Frozen
from sickbay.training.job import Elasticity, TrainingSpec


class Size(Frozen):
    """One size that an attempt may have."""

    nodes: int
    accumulation: int | None = None
    """Micro-batches per step and rank; None where the script sees to its batch itself."""


def next_size(spec: TrainingSpec, template_nodes: int, fitting: int) -> Size | None:
    """The largest size that fits on so many nodes now; None while even the smallest does not."""
    elastic = spec.elasticity
    if elastic is None:
        return Size(nodes=template_nodes) if fitting >= template_nodes else None
    return next((size for size in sizes_of(elastic) if size.nodes <= fitting), None)


def sizes_of(elastic: Elasticity) -> tuple[Size, ...]:
    """Every size that the job may have, largest first."""
    nodes = range(elastic.max_nodes, elastic.min_nodes - 1, -1)
    found = (_size(elastic, count) for count in nodes if count % elastic.model_nodes == 0)
    return tuple(size for size in found if size is not None)


def may_grow(spec: TrainingSpec, current: int, fitting: int, since: datetime, now: datetime) -> Size | None:
    """The larger size that a running job may have after its dwell; `fitting` counts its own nodes too."""
    elastic = spec.elasticity
    if elastic is None or now < since + elastic.grow_after:
        return None
    size = next((size for size in sizes_of(elastic) if size.nodes <= fitting), None)
    return size if size is not None and size.nodes > current else None


def _size(elastic: Elasticity, nodes: int) -> Size | None:
    """The size of so many nodes; None if the global batch cannot stay."""
    if elastic.global_batch is None:
        return Size(nodes=nodes)
    replicas = nodes // elastic.model_nodes * elastic.ranks_per_node
    micro_batches, rest = divmod(elastic.global_batch, elastic.micro_batch)
    if rest or micro_batches % replicas:
        return None
    return Size(nodes=nodes, accumulation=micro_batches // replicas)


def size_to_ask_for(spec: TrainingSpec, template_nodes: int, fitting: int) -> Size:
    """The size of the next attempt: what fits now, else the smallest that may wait for room.

    Waiting pods are what makes an autoscaler bring nodes; a job that waited without them would wait for ever.
    """
    size = next_size(spec, template_nodes, fitting)
    if size is not None:
        return size
    elastic = spec.elasticity
    smallest = sizes_of(elastic)[-1:] if elastic is not None else ()
    return smallest[0] if smallest else Size(nodes=template_nodes)
