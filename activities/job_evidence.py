"""Collects what an ended attempt left, before anything of it is removed, and has it classified.

Called by the training workflow, with a deadline: evidence must not hold the restart (facts: training, 9.5). All sources
are asked at once, each with a bound of its own; one that does not answer is told in `missing`, never taken for silence
of the thing itself. What words and end states mean is `sickbay.training.failures`'.
"""

import asyncio
from collections.abc import Awaitable
from datetime import UTC, datetime, timedelta
from typing import Final, TypeVar

import aiohttp
from kubernetes.aio.client import ApiClient
from temporalio import activity

from activities.errors import FinalError, PassingError
from activities.job_reads import ClusterEvent, pods_of
from activities.kube import NotFoundError, call, list_all, path, read_text
from activities.node_reads import NODES
from activities.waiting import heartbeats
from sickbay.kube_objects import Node, Pod
from sickbay.model import Frozen
from sickbay.training import evidence_size, manifests, pod_evidence
from sickbay.training.attempt_reading import rank_of
from sickbay.training.attempts import AttemptLook, AttemptRef
from sickbay.training.evidence import Ending, Evidence, LogState, NodeEvidence, PastFailure, RankEvidence, Sign
from sickbay.training.failures import classify, collectives, log_text, node_states
from sickbay.training.job import TrainingSpec
from sickbay.training.pod_evidence import PodLeft
from sickbay.training.verdicts import FailureVerdict

T = TypeVar("T")

LOG_BYTES: Final = 256 << 10
"""Of one pod's log, its end: a cause stands before its consequences, but hours of progress stand before both."""
LOG_BYTES_LEAST: Final = 32 << 10
LOGS_BYTES: Final = 16 << 20
"""Of all logs together: reading takes a second for each MiB, and the restart waits for it."""
LOG_SPARE: Final = 4
LOG_LINES: Final = (4000, 400, 40)
"""Lines asked for, until they come whole."""
LOGS_AT_ONCE: Final = 16
LOG_TIMEOUT: Final = timedelta(seconds=20)
RANKS_MOST: Final = 512
"""Pods whose logs are read; of more, the failed ones first."""
EVENTS_MOST: Final = 200
STACKS_MOST: Final = 128
LONG_AGO: Final = datetime(1970, 1, 1, tzinfo=UTC)


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
        self._nodes_at_once = asyncio.Semaphore(LOGS_AT_ONCE)
        self._until = asyncio.get_running_loop().time() + request.deadline.total_seconds()

    async def run(self) -> Evidence:
        request = self._request
        pods = await self._told("the pods", pods_of(self._api, request.ref), ())
        left, nodes, signs = await asyncio.gather(self._pods(pods), self._nodes(pods), self._events())
        ranks = tuple(each.rank for each in left)
        steps = [each.last_step for each in ranks if each.last_step is not None]
        told = request.look.ranks.step if request.look.ranks else None
        stepped = True if request.stepped is None and max(steps, default=0) > 0 else request.stepped
        return await asyncio.to_thread(
            evidence_size.fitted,
            Evidence(
                attempt=request.ref.attempt,
                ending=request.ending,
                started_at=request.started_at,
                ended_at=request.ended_at,
                stepped=stepped,
                ran_before=request.ran_before,
                resumed_from=request.resumed_from,
                last_step=told if told is not None else max(steps, default=None),
                target_step=request.spec.target.step,
                target_reached=request.target_reached,
                ranks=ranks,
                collectives=collectives.of_watchdogs(ranks),
                stacks=tuple(stack for each in left for stack in each.stacks)[:STACKS_MOST],
                nodes=nodes,
                cluster_signs=signs,
                past=request.past,
                missing=tuple(self._missing),
            ),
        )

    async def _pods(self, pods: tuple[Pod, ...]) -> tuple[PodLeft, ...]:
        adapter = manifests.adapter_of(self._request.spec.manifest)
        read = {pod.metadata.uid for pod in _most_telling(pods)}
        most = min(max(LOGS_BYTES // max(len(read), 1), LOG_BYTES_LEAST), LOG_BYTES)
        if len(read) < len(pods):
            self._missing.append(f"logs of {len(pods) - len(read)} pods: not read, since there are too many")
        found = await asyncio.gather(
            *(self._pod(pod, rank_of(pod, adapter), most if pod.metadata.uid in read else 0) for pod in pods)
        )
        known = {pod.metadata.uid for pod in pods}
        lost = [place for place in self._request.look.placements if place.pod_uid and place.pod_uid not in known]
        self._missing += [f"pod {place.pod} is gone, with its log" for place in lost]
        gone = (RankEvidence(rank=place.rank, node=place.node, pod=place.pod) for place in lost)
        return (*found, *(PodLeft(rank=rank) for rank in gone))

    async def _pod(self, pod: Pod, rank: int, most: int) -> PodLeft:
        base = pod_evidence.end_of(pod, rank)
        if pod_evidence.never_ran(pod):
            return PodLeft(rank=base.model_copy(update={"log": LogState.EMPTY}))
        if not most:
            return PodLeft(rank=base)
        return await self._told(f"log of pod {pod.metadata.name}", self._with_log(pod, base, most), PodLeft(rank=base))

    async def _with_log(self, pod: Pod, base: RankEvidence, most: int) -> PodLeft:
        async with self._logs:
            async with asyncio.timeout(LOG_TIMEOUT.total_seconds()):
                log, cut = await self._log(pod, most)
            # Reading megabytes of words takes seconds, in which heartbeats must go on.
            return await asyncio.to_thread(pod_evidence.with_log, base, log, cut=cut)

    async def _log(self, pod: Pod, most: int) -> tuple[bytes, bool]:
        """The end of a pod's log, and whether that is less than the whole. The kubelet cuts what goes over `limitBytes`
        at its end, where the cause is; so more is asked for than is kept, and fewer lines where they are long."""
        resource = path("/api/v1/namespaces", pod.metadata.namespace, "pods", pod.metadata.name, "log")
        query = {"limitBytes": str(LOG_SPARE * most), "container": _container(pod)}
        log, cut = b"", True
        for lines in LOG_LINES:
            log = await read_text(self._api, resource, query={**query, "tailLines": str(lines)}, most=LOG_SPARE * most)
            cut = len(log) > most or log.count(b"\n") >= lines
            if len(log) < LOG_SPARE * most:
                break
        return log[-most:], cut

    async def _nodes(self, pods: tuple[Pod, ...]) -> tuple[NodeEvidence, ...]:
        uids = {pod.spec.node_name: "" for pod in pods} | {
            place.node: place.node_uid for place in self._request.look.placements
        }
        return tuple(await asyncio.gather(*(self._node(name, uids[name]) for name in sorted(uids) if name)))

    async def _node(self, name: str, uid: str) -> NodeEvidence:
        gone = NodeEvidence(node=name, node_uid=uid, exists=False, ready=False)

        async def read() -> NodeEvidence:
            try:
                async with self._nodes_at_once:
                    node = await call(self._api, "GET", path(NODES, name), Node)
            except NotFoundError:
                return gone
            # One that came under its name is another machine.
            return gone if uid and node.metadata.uid != uid else node_states.evidence_of(node, self._request.ended_at)

        return await self._told(f"node {name}", read(), NodeEvidence(node=name, node_uid=uid, told=False))

    async def _events(self) -> tuple[Sign, ...]:
        """What the cluster said of the attempt's object and of its pods."""
        ref = self._request.ref
        resource = path("/api/v1/namespaces", ref.namespace, "events")
        found = await self._told("events of the attempt", list_all(self._api, resource, ClusterEvent), ())
        # Whichever the kind, the names of what it made begin with its own: `llama-a3-0`, `llama-a3-worker-0`.
        ours = [each for each in found if f"{each.involved_object.name}-".startswith(f"{ref.name}-")]
        ours.sort(key=lambda each: (each.last_timestamp or LONG_AGO, each.metadata.name))
        return log_text.cluster_signs([f"{each.reason}: {each.message}" for each in ours[-EVENTS_MOST:]])

    async def _told(self, what: str, source: Awaitable[T], otherwise: T) -> T:
        """What a source says; `otherwise` where it does not answer in time, which is then told as missing."""
        try:
            async with asyncio.timeout_at(self._until):
                return await source
        except (PassingError, FinalError, TimeoutError, aiohttp.ClientError, OSError) as error:
            self._missing.append(f"{what}: {str(error) or type(error).__name__}"[:300])
            return otherwise


def _container(pod: Pod) -> str:
    """The container that trains: the one that the pod names as its own, else its first."""
    containers = [each.name for each in pod.spec.containers]
    named = pod.metadata.annotations.get("kubectl.kubernetes.io/default-container", "")
    return named if named in containers else next(iter(containers), "")


def _most_telling(pods: tuple[Pod, ...]) -> list[Pod]:
    """Whose logs are read: all, or of very many the failed ones and some of the others."""
    failed = [pod for pod in pods if pod.status.phase == "Failed"]
    others = [pod for pod in pods if pod.status.phase != "Failed"]
    chosen = failed[:RANKS_MOST]
    room = RANKS_MOST - len(chosen)
    return chosen + (others[:: max(1, -(-len(others) // room))] if room and others else [])
