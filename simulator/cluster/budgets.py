"""The disruption controller: how many pods each PodDisruptionBudget lets go now.

Percentages and `maxUnavailable` are reckoned from the pods that match, since no kind with a scale is simulated here.
"""

import math
from datetime import timedelta

from sickbay.model import Frozen
from simulator.cluster.objects import BudgetSpec, BudgetStatus, Pod, PodDisruptionBudget
from simulator.cluster.stamps import stamp
from simulator.cluster.world import World

DISRUPTED_FOR = timedelta(minutes=2)
"""How long a granted eviction counts as a pod gone although the pod is still there; Kubernetes' own figure."""


class BudgetCount(Frozen):
    """What a budget comes to."""

    expected: int
    desired_healthy: int
    healthy: int

    @property
    def allowed(self) -> int:
        """Disruptions allowed now."""
        return max(self.healthy - self.desired_healthy, 0) if self.expected else 0


def count(spec: BudgetSpec, expected: int, healthy: int) -> BudgetCount:
    """A budget over so many pods. Percentages round up, as in Kubernetes."""
    if spec.max_unavailable is not None:
        desired = max(expected - _amount(spec.max_unavailable, expected), 0)
    else:
        desired = _amount(spec.min_available if spec.min_available is not None else 1, expected)
    return BudgetCount(expected=expected, desired_healthy=desired, healthy=healthy)


def _amount(value: int | str, total: int) -> int:
    if isinstance(value, str) and value.endswith("%"):
        return math.ceil(total * int(value.removesuffix("%")) / 100)
    return int(value)


class Budgets:
    """Keeps every budget's status."""

    def __init__(self, world: World) -> None:
        self._world = world

    async def run(self) -> None:
        """For ever."""
        await self._world.keep("disruption controller", self._count_all, (self._world.pods, self._world.budgets))

    async def _count_all(self) -> None:
        await self._world.each(self._world.budgets, self._count)

    async def _count(self, budget: PodDisruptionBudget) -> None:
        pods = [pod for pod in self._world.pods if self._is_meant(budget, pod)]
        disrupted = {
            name: since
            for name, since in budget.status.disrupted_pods.items()
            if self._world.clock.since(since) < DISRUPTED_FOR.total_seconds()
            and any(pod.name == name and not pod.deleting for pod in pods)
        }
        healthy = sum(pod.ready and not pod.deleting and pod.name not in disrupted for pod in pods)
        counted = count(budget.spec, len(pods), healthy)
        status = BudgetStatus(
            observed_generation=budget.metadata.generation,
            disruptions_allowed=counted.allowed,
            current_healthy=counted.healthy,
            desired_healthy=counted.desired_healthy,
            expected_pods=counted.expected,
            disrupted_pods=disrupted,
        )
        if status != budget.status:
            await self._write(budget, status)

    async def _write(self, budget: PodDisruptionBudget, status: BudgetStatus) -> None:
        # A merge patch keeps the keys it does not name: pods that are no longer disrupted are taken out by null.
        disrupted = dict.fromkeys(budget.status.disrupted_pods) | {
            name: stamp(since) for name, since in status.disrupted_pods.items()
        }
        body = {**status.model_dump(mode="json", by_alias=True), "disruptedPods": disrupted}
        # An eviction that was granted since we counted has changed this status: then count again.
        version = {"resourceVersion": budget.metadata.resource_version}
        await self._world.budgets.patch(budget, {"metadata": version, "status": body}, subresource="status")

    @staticmethod
    def _is_meant(budget: PodDisruptionBudget, pod: Pod) -> bool:
        same_place = pod.metadata.namespace == budget.metadata.namespace
        return same_place and not pod.finished and budget.spec.selector.selects(pod.metadata.labels)
