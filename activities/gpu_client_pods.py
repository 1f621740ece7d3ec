"""Pauses the GPU clients that run as pods before a GPU reset, resumes them after it, and restarts those that latch.

Called by the incident workflow around the reset rung, from the controller's queue. What to write on the node and which
pods are meant is decided by `sickbay.gpu_clients`; whether a client that stays ends the rung is the workflow's to
decide. One operand is stopped after the other: stopped at once they have hung GPUs (facts: remediation, 4.2). Host
services are stopped on the node itself (`activities.gpu_clients`).
"""

from datetime import datetime, timedelta
from typing import Final

from kubernetes.aio.client import ApiClient
from pydantic import JsonValue
from temporalio import activity

from activities.kube import ConflictError, NotFoundError, call, list_all, path
from activities.node_marks import decide_and_write
from activities.waiting import Clock, heartbeats, look_until, started_at, told_before, utc_now
from sickbay import gpu_clients
from sickbay.kube_objects import Pod, Status
from sickbay.model import Frozen
from sickbay.nodes import NodeRef
from sickbay.policy.model import GpuClientsPolicy

LOOK_EVERY: Final = timedelta(seconds=2)
"""Between two looks at the node's pods."""


class PauseRequest(Frozen):
    """Stop the GPU clients of a node that run as operands, in the name of an incident."""

    node: NodeRef
    incident_id: str
    policy: GpuClientsPolicy


class PauseReport(Frozen):
    """How the node stands after the call."""

    paused: tuple[str, ...] = ()
    """Operands whose labels are ours for now."""
    stopped: tuple[str, ...] = ()
    """Those of them that had a pod here, and must have one again after the resume."""
    remaining: tuple[str, ...] = ()
    """`namespace/name` of pods that had not left at the deadline; the operands after theirs were not paused."""


class ResumeRequest(Frozen):
    """Put back what the incident paused, and wait for it to serve."""

    node: NodeRef
    incident_id: str
    expected: tuple[str, ...] = ()
    """Operands to wait for: `PauseReport.stopped`."""
    deadline: timedelta


class ResumeReport(Frozen):
    """How the node stands after the call."""

    resumed: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    """Operands that did not serve at the deadline."""


class RestartRequest(Frozen):
    """Restart pods that hold on to what they saw before a reset."""

    node: NodeRef
    incident_id: str
    policy: GpuClientsPolicy
    reset_at: datetime
    """Pods that started later are left alone, so that none is restarted twice."""


class RestartReport(Frozen):
    """What came of it."""

    restarted: tuple[str, ...] = ()
    """`namespace/name` of pods that were asked to end, gracefully."""
    missing: tuple[str, ...] = ()
    """Selections of the policy whose pods had not come back at the deadline."""


class GpuClientPodActivities:
    """Activities on the pods of one node that hold its GPUs, over one injected API client.

    All of them raise FinalError or PassingError.
    """

    def __init__(self, api: ApiClient, *, look_every: timedelta = LOOK_EVERY, clock: Clock = utc_now) -> None:
        self._api = api
        self._look_every = look_every
        self._clock = clock

    @activity.defn
    async def pause_gpu_clients(self, request: PauseRequest) -> PauseReport:
        """Stop one operand after the other, until one of them does not leave. Does nothing on a node that is gone."""
        stopped = dict.fromkeys(told_before())
        until = started_at(self._clock) + request.policy.deadline
        paused: list[str] = []
        async with heartbeats(lambda: tuple(stopped)):
            for operand in request.policy.operands:
                ran = bool(gpu_clients.operand_pods(await self._pods(request.node), operand))
                if not await self._pause(request, operand):
                    continue
                paused.append(operand)
                if ran:
                    stopped[operand] = None
                if left := await self._gone(request.node, operand, until):
                    names = tuple(pod.full_name for pod in left)
                    return PauseReport(paused=tuple(paused), stopped=tuple(stopped), remaining=names)
        return PauseReport(paused=tuple(paused), stopped=tuple(stopped))

    @activity.defn
    async def resume_gpu_clients(self, request: ResumeRequest) -> ResumeReport:
        """Put back every label that this incident changed, whether or not a pause ever ran, and wait for the pods."""
        until = started_at(self._clock) + request.deadline
        async with heartbeats():
            decision = await decide_and_write(
                self._api, request.node, lambda node: gpu_clients.resume(node, request.incident_id)
            )
            if decision is None:
                return ResumeReport()
            pods = await look_until(
                lambda: self._pods(request.node),
                lambda pods: not gpu_clients.missing_operands(pods, request.expected),
                until=until,
                every=self._look_every,
                clock=self._clock,
            )
        return ResumeReport(resumed=decision.resumed, missing=gpu_clients.missing_operands(pods, request.expected))

    @activity.defn
    async def restart_latched_pods(self, request: RestartRequest) -> RestartReport:
        """Restart the pods that the policy names, each once, and wait for their successors."""
        until = started_at(self._clock) + request.policy.deadline
        restarted = dict.fromkeys(told_before())
        missing: list[str] = []
        async with heartbeats(lambda: tuple(restarted)):
            ended = [await self._end_latched(request, text, restarted) for text in request.policy.restart]
            for text, uids in zip(request.policy.restart, ended, strict=True):
                if uids and not await self._succeeded(request.node, text, uids, until):
                    missing.append(text)
        return RestartReport(restarted=tuple(restarted), missing=tuple(missing))

    async def _pause(self, request: PauseRequest, operand: str) -> bool:
        decision = await decide_and_write(
            self._api, request.node, lambda node: gpu_clients.pause(node, request.incident_id, operand)
        )
        return decision is not None and decision.paused

    async def _gone(self, node: NodeRef, operand: str, until: datetime) -> tuple[Pod, ...]:
        """The operand's pods that are still there, none once all have left."""

        async def left() -> tuple[Pod, ...]:
            return gpu_clients.operand_pods(await self._pods(node), operand)

        return await look_until(left, lambda pods: not pods, until=until, every=self._look_every, clock=self._clock)

    async def _end_latched(self, request: RestartRequest, text: str, restarted: dict[str, None]) -> tuple[str, ...]:
        """UIDs of the pods of one selection that were asked to end."""
        pods = gpu_clients.latched(await self._pods(request.node, text), request.reset_at)
        for pod in pods:
            await self._evict(pod)
            restarted[pod.full_name] = None
        return tuple(pod.metadata.uid for pod in pods)

    async def _evict(self, pod: Pod) -> None:
        """By eviction, which is a graceful deletion of this very pod that disruption budgets may refuse."""
        meta = pod.metadata
        body: dict[str, JsonValue] = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": meta.name, "namespace": meta.namespace},
            "deleteOptions": {"preconditions": {"uid": meta.uid}},
        }
        try:
            resource = path("/api/v1/namespaces", meta.namespace, "pods", meta.name, "eviction")
            await call(self._api, "POST", resource, Status, body=body)
        except (NotFoundError, ConflictError):
            # It is gone, or another pod has its name: it was restarted by somebody else.
            return

    async def _succeeded(self, node: NodeRef, text: str, ended: tuple[str, ...], until: datetime) -> bool:
        """Whether the old pods have left, and as many others serve in their place."""

        def done(pods: tuple[Pod, ...]) -> bool:
            present = {pod.metadata.uid for pod in pods}
            return present.isdisjoint(ended) and sum(pod.serves for pod in pods) >= len(ended)

        seen = await look_until(
            lambda: self._pods(node, text), done, until=until, every=self._look_every, clock=self._clock
        )
        return done(seen)

    async def _pods(self, node: NodeRef, text: str | None = None) -> tuple[Pod, ...]:
        """The pods of the node; those of one selection of the policy, if one is given."""
        query = {"fieldSelector": f"spec.nodeName={node.name}"}
        if text is None:
            return await list_all(self._api, "/api/v1/pods", Pod, query=query)
        chosen = gpu_clients.selection(text)
        resource = path("/api/v1/namespaces", chosen.namespace, "pods") if chosen.namespace else "/api/v1/pods"
        return await list_all(self._api, resource, Pod, query={**query, "labelSelector": chosen.selector})
