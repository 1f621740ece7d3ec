"""Collects what an ended attempt left, before anything of it is removed, and has it classified.

Called by the training workflow, with a deadline: evidence must not hold the restart (facts: training, 9.5). All sources
are asked at once, each with a bound of its own; one that does not answer is told in `missing`, never taken for silence
of the thing itself. What words and end states mean is `sickbay.training.failures`'.
"""

import asyncio
from collections.abc import Awaitable
from datetime import datetime, timedelta
from typing import Final, TypeVar

import aiohttp
from kubernetes.aio.client import ApiClient
from temporalio import activity

from activities.errors import FinalError, PassingError
from activities.job_reads import pods_of
from activities.kube import NotFoundError, call, list_all, path, read_text
from activities.node_reads import NODES
from activities.waiting import heartbeats
from sickbay.kube_objects import KubeObject, Node, ObjectMeta, Pod
from sickbay.model import Frozen
from sickbay.training import manifests
from sickbay.training.attempt_reading import rank_of
from sickbay.training.attempts import AttemptLook, AttemptRef
from sickbay.training.evidence import Ending, Evidence, LogState, NodeEvidence, PastFailure, RankEvidence, Sign
from sickbay.training.failures import classify, log_text, node_states, pod_states
from sickbay.training.job import TrainingSpec
from sickbay.training.verdicts import FailureVerdict

T = TypeVar("T")

LOG_BYTES: Final = 256 << 10
"""Of one rank's log, its end: a cause stands before its consequences, but hours of progress stand before both."""
LOGS_AT_ONCE: Final = 16
LOG_TIMEOUT: Final = timedelta(seconds=20)
RANKS_MOST: Final = 512
"""Ranks whose logs are read; of more, every other and so on, the failed ones first."""
EVENTS_MOST: Final = 200


class EvidenceRequest(Frozen):
    """Collect what an attempt left."""

    ref: AttemptRef
    spec: TrainingSpec
    ending: Ending
    look: AttemptLook
    """The last look at it, from which pods that are gone by now are still known."""
    started_at: datetime | None = None
    ended_at: datetime
    stepped: bool | None = None
    ran_before: bool = False
    resumed_from: str = ""
    target_reached: bool | None = None
    past: tuple[PastFailure, ...] = ()
    deadline: timedelta


class _Event(KubeObject):
    """A cluster event on a pod."""

    metadata: ObjectMeta = ObjectMeta()
    reason: str = ""
    message: str = ""
    type: str = ""


class JobEvidenceActivities:
    """The collection, over one injected API client; and the classification."""

    def __init__(self, api: ApiClient) -> None:
        self._api = api

    @activity.defn
    async def collect_evidence(self, request: EvidenceRequest) -> Evidence:
        """All that answers within the deadline. Raises nothing for a source that does not."""
        async with heartbeats():
            return await _Collection(self._api, request).run()

    @activity.defn
    async def classify_failure(self, evidence: Evidence) -> FailureVerdict:
        """What the evidence means by this version's rules; an activity, so that other rules break no running job."""
        return classify.classify(evidence)


class _Collection:
    """One collection under way."""

    def __init__(self, api: ApiClient, request: EvidenceRequest) -> None:
        self._api = api
        self._request = request
        self._missing: list[str] = []
        self._logs = asyncio.Semaphore(LOGS_AT_ONCE)

    async def run(self) -> Evidence:
        request = self._request
        seconds = request.deadline.total_seconds()
        pods = await self._told("the pods", pods_of(self._api, request.ref), (), seconds)
        nodes = {place.node for place in request.look.placements if place.node}
        nodes |= {pod.spec.node_name for pod in pods if pod.spec.node_name}
        ranks, told_nodes, events = await asyncio.gather(
            self._ranks(pods, seconds), self._nodes(sorted(nodes), seconds), self._events(pods, seconds)
        )
        ranks_look = request.look.ranks
        return Evidence(
            attempt=request.ref.attempt,
            ending=request.ending,
            started_at=request.started_at,
            ended_at=request.ended_at,
            stepped=request.stepped,
            ran_before=request.ran_before,
            resumed_from=request.resumed_from,
            last_step=ranks_look.step if ranks_look else None,
            target_step=request.spec.target.step,
            target_reached=request.target_reached,
            ranks=ranks,
            nodes=told_nodes,
            cluster_signs=events,
            past=request.past,
            missing=tuple(self._missing),
        )

    async def _ranks(self, pods: tuple[Pod, ...], seconds: float) -> tuple[RankEvidence, ...]:
        adapter = manifests.adapter_of(self._request.spec.manifest)
        chosen = _most_telling(pods)
        found = await asyncio.gather(*(self._rank(pod, rank_of(pod, adapter), seconds) for pod in chosen))
        known = {pod.metadata.uid for pod in pods}
        lost = [place for place in self._request.look.placements if place.pod_uid and place.pod_uid not in known]
        self._missing += [f"pod {place.pod} is gone, with its log" for place in lost]
        return (*found, *(RankEvidence(rank=place.rank, node=place.node, pod=place.pod) for place in lost))

    async def _rank(self, pod: Pod, rank: int, seconds: float) -> RankEvidence:
        name = pod.metadata.name
        end = pod_states.end_of(pod.model_dump(mode="json", by_alias=True))
        evidence = RankEvidence(
            rank=rank, node=pod.spec.node_name, pod=name, exit_code=end.exit_code, end=end, exited_at=end.finished_at
        )
        if end.started_at is None and end.exit_code is None and pod.status.phase == "Pending":
            return evidence.model_copy(update={"log": LogState.EMPTY})
        async with self._logs:
            text = await self._told(f"log of pod {name}", self._log(pod), None, seconds)
        return evidence if text is None else log_text.rank_with_log(evidence, text, cut=len(text) >= LOG_BYTES)

    async def _log(self, pod: Pod) -> bytes:
        resource = path("/api/v1/namespaces", pod.metadata.namespace, "pods", pod.metadata.name, "log")
        query = {"limitBytes": str(LOG_BYTES), "tailLines": "4000"}
        if pod.spec.containers:
            query["container"] = pod.spec.containers[0].name
        async with asyncio.timeout(LOG_TIMEOUT.total_seconds()):
            return await read_text(self._api, resource, query=query, most=LOG_BYTES)

    async def _nodes(self, names: list[str], seconds: float) -> tuple[NodeEvidence, ...]:
        return tuple(await asyncio.gather(*(self._node(name, seconds) for name in names)))

    async def _node(self, name: str, seconds: float) -> NodeEvidence:
        async def read() -> NodeEvidence:
            try:
                node = await call(self._api, "GET", path(NODES, name), Node)
            except NotFoundError:
                return NodeEvidence(node=name, exists=False, ready=False)
            return node_states.evidence_of(node, self._request.ended_at)

        silent = NodeEvidence(node=name, told=False)
        return await self._told(f"node {name}", read(), silent, seconds)

    async def _events(self, pods: tuple[Pod, ...], seconds: float) -> tuple[Sign, ...]:
        resource = path("/api/v1/namespaces", self._request.ref.namespace, "events")
        query = {"fieldSelector": "involvedObject.kind=Pod"}
        events = await self._told("events of the pods", list_all(self._api, resource, _Event, query=query), (), seconds)
        ours = {pod.metadata.name for pod in pods} | {place.pod for place in self._request.look.placements}
        lines = [f"{each.reason}: {each.message}" for each in events if each.metadata.name.rpartition(".")[0] in ours]
        return log_text.cluster_signs(lines[-EVENTS_MOST:])

    async def _told(self, what: str, source: Awaitable[T], otherwise: T, seconds: float) -> T:
        """What a source says; `otherwise` where it does not answer, which is then told as missing."""
        try:
            async with asyncio.timeout(seconds):
                return await source
        except (PassingError, FinalError, TimeoutError, aiohttp.ClientError, OSError) as error:
            self._missing.append(f"{what}: {str(error) or type(error).__name__}"[:300])
            return otherwise


def _most_telling(pods: tuple[Pod, ...]) -> list[Pod]:
    """Whose logs are read: all, or of very many the failed ones and some of the others."""
    failed = [pod for pod in pods if pod.status.phase == "Failed"]
    others = [pod for pod in pods if pod.status.phase != "Failed"]
    chosen = failed[:RANKS_MOST]
    room = RANKS_MOST - len(chosen)
    return chosen + (others[:: max(1, -(-len(others) // room))] if room and others else [])
