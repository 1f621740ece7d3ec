"""Emptying a node by the Eviction API.

Called by workflows from the controller's queue. It looks, evicts what the rules of `sickbay.eviction` let go, and looks
again, since pods come after the list and an accepted eviction is not yet a pod gone. It never deletes a pod past its
disruption budget. A retried attempt takes up the first one's deadline and its list of evicted pods.
"""

import asyncio
from collections import Counter
from datetime import datetime, timedelta
from typing import Final

from kubernetes.aio.client import ApiClient
from pydantic import JsonValue
from temporalio import activity

from activities.errors import PassingError
from activities.kube import KubeFinalError, KubePassingError, Refusal, call, list_all, path
from activities.node_reads import get_node
from activities.waiting import Clock, heartbeats, started_at, told_before, utc_now
from sickbay import eviction
from sickbay.cordons import uncordoned_by_person
from sickbay.eviction import EvictionAnswer, Handling, PodPlan
from sickbay.kube_objects import Pod, PodDisruptionBudget, Status
from sickbay.model import Frozen
from sickbay.nodes import Blocker, DrainGoal, DrainOutcome, DrainReport, NodeRef
from sickbay.pod_needs import budgets_of
from sickbay.policy.model import DrainPolicy

LOOK_EVERY: Final = timedelta(seconds=2)
"""Between two looks at the node's pods."""
LOOK_HOLDS: Final = timedelta(seconds=10)
"""How long evictions may go on by one look: what it saw may have changed."""
CLEAR_LOOKS: Final = 2
"""Looks in a row that must find the node empty: a scheduler may still place a pod by what it knew before the cordon."""
BUDGET_RETRY: Final = timedelta(seconds=5)
"""Between two tries against a disruption budget, as kubectl waits."""
TROUBLE_PAUSE: Final = timedelta(seconds=10)
"""Pause of all evictions after the server was busy or in trouble and named no time of its own."""


class DrainRequest(Frozen):
    """Move the pods that stand in the way of `goal` off the node."""

    node: NodeRef
    incident_id: str
    goal: DrainGoal
    policy: DrainPolicy


class _OrderedToStop(Exception):  # noqa: N818 - a person's order, not an error
    """A person made the node schedulable again: no further pod leaves it."""


class DrainActivities:
    """The activity that empties a node, over one injected API client."""

    def __init__(self, api: ApiClient, *, look_every: timedelta = LOOK_EVERY, clock: Clock = utc_now) -> None:
        self._api = api
        self._look_every = look_every
        self._clock = clock

    @activity.defn
    async def drain_node(self, request: DrainRequest) -> DrainReport:
        """Empty the node as far as the goal asks, until the policy's deadline.

        A workflow's cancellation is answered with the outcome `CANCELLED`; a worker's shutdown is not, since another
        attempt goes on. Raises FinalError if we may not evict.
        """
        drain = _Drain(self._api, request, self._look_every, self._clock)
        try:
            async with heartbeats(drain.evicted):
                return await drain.run()
        except asyncio.CancelledError:
            details = activity.cancellation_details() if activity.in_activity() else None
            if details is None or not details.cancel_requested:
                raise
            return drain.report(DrainOutcome.CANCELLED)


class _Drain:
    """One drain under way. Pods are told apart by UID: a new pod may bear an old name."""

    def __init__(self, api: ApiClient, request: DrainRequest, look_every: timedelta, clock: Clock) -> None:
        self._api = api
        self._request = request
        self._look_every = look_every
        self._clock = clock
        self._started = started_at(clock)
        self._until = self._started + request.policy.deadline
        self._evicted: dict[str, None] = dict.fromkeys(told_before())
        self._not_before: dict[str, datetime] = {}
        self._next_slot = self._started
        self._refused: dict[str, Blocker] = {}
        self._hopeless = False
        self._returns: Counter[str] = Counter()

    def evicted(self) -> tuple[str, ...]:
        """Names of the pods whose eviction was accepted, in order."""
        return tuple(self._evicted)

    def report(self, outcome: DrainOutcome, blockers: tuple[Blocker, ...] = ()) -> DrainReport:
        """The end of this drain."""
        return DrainReport(outcome=outcome, evicted=self.evicted(), blockers=blockers)

    async def run(self) -> DrainReport:
        clear_looks = 0
        plans: tuple[PodPlan, ...] = ()
        while True:
            try:
                seen = await self._look()
            except _OrderedToStop:
                return self.report(DrainOutcome.CANCELLED)
            except PassingError:
                # An API server restarts too; what we saw last still tells what stood in the way.
                clear_looks = 0
            else:
                if seen is None:
                    return self.report(DrainOutcome.NODE_GONE)
                plans = seen
                clear_looks = 0 if plans else clear_looks + 1
                if clear_looks >= CLEAR_LOOKS:
                    return self.report(DrainOutcome.DRAINED)
                await self._evict_due(plans)
            # Past the deadline a node that looks empty is still looked at once more, to know how it ended.
            if self._hopeless or (self._clock() >= self._until and not clear_looks):
                return self._report_blocked(plans)
            await asyncio.sleep(self._look_every.total_seconds())

    async def _look(self) -> tuple[PodPlan, ...] | None:
        """What is to be done with each pod that stands in the way; None if the node is gone."""
        node = await get_node(self._api, self._request.node)
        if node is None:
            return None
        if uncordoned_by_person(node):
            raise _OrderedToStop
        query = {"fieldSelector": f"spec.nodeName={self._request.node.name}"}
        pods = await list_all(self._api, "/api/v1/pods", Pod, query=query)
        goal, policy, now = self._request.goal, self._request.policy, self._clock()
        plans = (eviction.plan_pod(pod, goal, policy, node, now) for pod in pods)
        return tuple(self._unless_it_returns(plan) for plan in plans if plan.handling is not Handling.IGNORE)

    def _unless_it_returns(self, plan: PodPlan) -> PodPlan:
        """A pod that its controller puts back each time tolerates the cordon; evicting it for ever helps nobody."""
        controller = plan.pod.metadata.controller
        if plan.handling is not Handling.EVICT or controller is None or not self._is_newcomer(plan.pod):
            return plan
        if self._returns[controller.uid] < eviction.MOST_RETURNS:
            return plan
        reason = f"{controller.kind} {controller.name} puts its pods back on the cordoned node: it tolerates the cordon"
        return plan.model_copy(update={"handling": Handling.HOLD, "reason": reason})

    def _is_newcomer(self, pod: Pod) -> bool:
        created = pod.metadata.creation_timestamp
        return created is not None and created > self._started

    async def _evict_due(self, plans: tuple[PodPlan, ...]) -> None:
        looked_at = self._clock()
        due = [plan.pod for plan in eviction.evictable(plans) if self._is_due(plan.pod, looked_at)]
        # Those that were refused come last, or the first few would take every slot.
        for pod in sorted(due, key=lambda pod: self._not_before.get(pod.metadata.uid, self._started)):
            slot = max(self._next_slot, self._clock())
            if self._hopeless or slot >= min(looked_at + LOOK_HOLDS, self._until):
                return
            await asyncio.sleep(max(0.0, (slot - self._clock()).total_seconds()))
            self._next_slot = slot + timedelta(minutes=1) / self._request.policy.evictions_per_minute
            await self._evict(pod)

    def _is_due(self, pod: Pod, now: datetime) -> bool:
        return self._not_before.get(pod.metadata.uid, now) <= now

    async def _evict(self, pod: Pod) -> None:
        meta = pod.metadata
        body: dict[str, JsonValue] = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": meta.name, "namespace": meta.namespace},
            "deleteOptions": {"preconditions": {"uid": meta.uid}},
        }
        resource = path("/api/v1/namespaces", meta.namespace, "pods", meta.name, "eviction")
        try:
            await call(self._api, "POST", resource, Status, body=body)
        except (KubeFinalError, KubePassingError) as error:
            answer = eviction.judge(error.refusal.code, error.refusal.status)
            if answer is EvictionAnswer.FORBIDDEN:
                raise
            await self._note_refusal(pod, answer, error.refusal)
        except PassingError:
            # Nobody knows whether it happened: the next look does.
            self._next_slot = self._clock() + TROUBLE_PAUSE
        else:
            self._note_accepted(pod)

    def _note_accepted(self, pod: Pod) -> None:
        self._evicted[pod.full_name] = None
        self._refused.pop(pod.metadata.uid, None)
        controller = pod.metadata.controller
        if controller is not None and self._is_newcomer(pod):
            self._returns[controller.uid] += 1

    async def _note_refusal(self, pod: Pod, answer: EvictionAnswer, refusal: Refusal) -> None:
        now, uid = self._clock(), pod.metadata.uid
        match answer:
            case EvictionAnswer.BUDGET:
                self._not_before[uid] = now + max(BUDGET_RETRY, refusal.retry_after or BUDGET_RETRY)
                self._refused[uid] = await self._budget_blocker(pod, refusal.status)
            case EvictionAnswer.TWO_BUDGETS:
                self._hopeless = True
                self._refused[uid] = await self._two_budgets_blocker(pod)
            case EvictionAnswer.THROTTLED:
                self._next_slot = now + (refusal.retry_after or TROUBLE_PAUSE)
            case _:
                # Gone, or going with its namespace: the next look tells.
                self._not_before[uid] = now + BUDGET_RETRY

    async def _budget_blocker(self, pod: Pod, status: Status) -> Blocker:
        named = eviction.budget_named(status)
        budget = named or ", ".join(await self._budgets_of(pod))
        reason = f"PodDisruptionBudget {budget or '(not named)'} allows no eviction: {status.message}"
        return _blocker(pod, reason, budget or None)

    async def _two_budgets_blocker(self, pod: Pod) -> Blocker:
        names = ", ".join(await self._budgets_of(pod))
        reason = f"more than one PodDisruptionBudget guards it ({names}), which no eviction can pass: leave it one"
        return _blocker(pod, reason, names or None)

    async def _budgets_of(self, pod: Pod) -> tuple[str, ...]:
        resource = path("/apis/policy/v1/namespaces", pod.metadata.namespace, "poddisruptionbudgets")
        try:
            return budgets_of(pod, await list_all(self._api, resource, PodDisruptionBudget))
        except (KubeFinalError, PassingError):
            # A name for people is not worth a drain.
            return ()

    def _report_blocked(self, plans: tuple[PodPlan, ...]) -> DrainReport:
        """Blocked if anything but time stood in the way, else timed out."""
        refused = {
            plan.pod.metadata.uid: self._refused[plan.pod.metadata.uid]
            for plan in plans
            if plan.handling is Handling.EVICT and plan.pod.metadata.uid in self._refused
        }
        blocked = bool(refused) or any(plan.handling in (Handling.HOLD, Handling.HANG) for plan in plans)
        blockers = tuple(refused.get(plan.pod.metadata.uid) or _blocker(plan.pod, plan.reason) for plan in plans)
        return self.report(DrainOutcome.BLOCKED if blocked else DrainOutcome.TIMED_OUT, blockers)


def _blocker(pod: Pod, reason: str, budget: str | None = None) -> Blocker:
    return Blocker(namespace=pod.metadata.namespace, pod=pod.metadata.name, reason=reason, budget=budget)
