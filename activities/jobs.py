"""Attempts of training jobs on Kubernetes: made, looked at, removed, and proven gone; and where one could run.

Called by the training workflow from the controller's queue. Every object bears the attempt's number in its name and the
workflow's fence in an annotation: an object of that name with another fence is not ours, and is never touched (design,
3.15). What an object looks like is `sickbay.training.manifests`' affair, what a look means `attempt_reading`'s.
"""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import timedelta
from typing import Final

import aiohttp
from kubernetes.aio.client import ApiClient
from pydantic import ConfigDict, JsonValue
from temporalio import activity

from activities.errors import PassingError
from activities.kube import ConflictError, NotFoundError, call, list_all, path
from activities.node_reads import NODES
from activities.waiting import Clock, heartbeats, look_until, started_at, utc_now
from sickbay.kube_objects import KubeObject, Node, ObjectMeta, Pod, Status
from sickbay.model import Frozen
from sickbay.names import ANNOTATION_FENCE, LABEL_ATTEMPT, LABEL_JOB
from sickbay.training import attempt_reading, capacity, manifests
from sickbay.training.attempts import (
    AttemptCreated,
    AttemptGone,
    AttemptLook,
    AttemptPlan,
    AttemptRef,
    CapacityLook,
    Exclusion,
    Placement,
)
from sickbay.training.job import CheckpointHook, TrainingSpec

LOOK_EVERY: Final = timedelta(seconds=2)
POST_TIMEOUT: Final = aiohttp.ClientTimeout(total=5)


class RawObject(KubeObject):
    """An object of any kind, as the server gave it; read by path."""

    model_config = ConfigDict(extra="allow")

    metadata: ObjectMeta = ObjectMeta()


class CreateAttempt(Frozen):
    """Make the object of an attempt."""

    spec: TrainingSpec
    plan: AttemptPlan


class AttemptQuery(Frozen):
    """Which attempt, and of which kind its objects are."""

    ref: AttemptRef
    spec: TrainingSpec


class WaitGone(Frozen):
    """Wait until no pod of the attempt can write any more."""

    query: AttemptQuery
    placements: tuple[Placement, ...] = ()
    """Where its pods ran, as last seen: by which a machine is told from its successor."""
    deadline: timedelta


class CapacityQuery(Frozen):
    """Where could pods of this job run now."""

    ref: AttemptRef
    spec: TrainingSpec
    exclusions: tuple[Exclusion, ...] = ()


class PostCheckpoint(Frozen):
    """Ask pods for a checkpoint by their own HTTP hook."""

    query: AttemptQuery
    hook: CheckpointHook


class CheckpointPosted(Frozen):
    """How many pods took the request."""

    taken: int
    why: str = ""


class JobActivities:
    """The activities on attempts, over one injected API client."""

    def __init__(self, api: ApiClient, *, look_every: timedelta = LOOK_EVERY, clock: Clock = utc_now) -> None:
        self._api = api
        self._look_every = look_every
        self._clock = clock

    @activity.defn
    async def create_attempt(self, request: CreateAttempt) -> AttemptCreated:
        """Make the attempt's object, once. Raises FinalError where the cluster refuses it for good."""
        api_kind = manifests.api_of(request.spec.manifest)
        ref = request.plan.ref
        body: dict[str, JsonValue] = manifests.render(request.spec, request.plan)
        try:
            made = await call(self._api, "POST", path(*api_kind.path(ref.namespace)), RawObject, body=body)
        except ConflictError:
            found = await self._object(AttemptQuery(ref=ref, spec=request.spec))
            if found is None:
                raise PassingError(f"{ref.name} exists and does not; it is looked at again") from None
            made = found
        if (fence := made.metadata.annotations.get(ANNOTATION_FENCE, "")) != ref.fence:
            whose = f"bears the fence {fence}" if fence else "is nobody's of Sickbay"
            return AttemptCreated(
                foreign=f"{api_kind.kind} {ref.namespace}/{ref.name} {whose}; delete or rename it, then retry the job"
            )
        return AttemptCreated(uid=made.metadata.uid)

    @activity.defn
    async def observe_attempt(self, query: AttemptQuery) -> AttemptLook:
        """One look at the attempt."""
        return await self.look(query)

    async def look(self, query: AttemptQuery) -> AttemptLook:
        """One look, for the watch too."""
        found = await self._object(query)
        if found is not None and found.metadata.annotations.get(ANNOTATION_FENCE) != query.ref.fence:
            found = None
        pods = await self._pods(query.ref)
        nodes = await self.nodes(pod.spec.node_name for pod in pods)
        raw = found.model_dump(mode="json", by_alias=True) if found is not None else None
        adapter = manifests.adapter_of(query.spec.manifest)
        return attempt_reading.read_attempt(raw, pods, nodes, adapter, query.ref.cluster, self._clock())

    async def nodes(self, names: Iterable[str]) -> Mapping[str, Node | None]:
        """These nodes by name, None for one that is gone."""
        found: dict[str, Node | None] = {}
        for name in sorted({name for name in names if name}):
            try:
                found[name] = await call(self._api, "GET", path(NODES, name), Node)
            except NotFoundError:
                found[name] = None
        return found

    @activity.defn
    async def delete_attempt(self, query: AttemptQuery) -> AttemptGone:
        """Delete the attempt's object and its pods, ours alone. Its pods are not gone by that."""
        found = await self._object(query)
        if found is not None and found.metadata.annotations.get(ANNOTATION_FENCE) == query.ref.fence:
            resource = path(*manifests.api_of(query.spec.manifest).path(query.ref.namespace, query.ref.name))
            options: dict[str, JsonValue] = {
                "apiVersion": "v1",
                "kind": "DeleteOptions",
                "propagationPolicy": "Background",
                "preconditions": {"uid": found.metadata.uid},
            }
            # Gone already, or another object has the name by now.
            with suppress(NotFoundError, ConflictError):
                await call(self._api, "DELETE", resource, Status, body=options)
        # A controller that is away would leave its pods for ever; ours are deleted by their own labels too.
        for pod in await self._pods(query.ref):
            if pod.metadata.deletion_timestamp is None:
                await self._delete_pod(pod)
        return await self._gone(query, ())

    @activity.defn
    async def wait_attempt_gone(self, request: WaitGone) -> AttemptGone:
        """Wait until every pod is gone, or on a machine that can write no more; at the deadline, what is left."""
        until = started_at(self._clock) + request.deadline

        async def look() -> AttemptGone:
            return await self._gone(request.query, request.placements)

        async with heartbeats():
            return await look_until(
                look, lambda seen: seen.gone, until=until, every=self._look_every, clock=self._clock
            )

    @activity.defn
    async def look_at_capacity(self, query: CapacityQuery) -> CapacityLook:
        """Which nodes could take a pod of the job now."""
        nodes = await list_all(self._api, NODES, Node)
        pods = await list_all(self._api, "/api/v1/pods", Pod)
        manifest = query.spec.manifest
        need = capacity.Need(
            pod_spec=manifests.pod_spec_of(manifest),
            gpus=manifests.gpus_per_node(manifest),
            job=query.ref.job,
            namespace=query.ref.namespace,
            exclusions=query.exclusions,
        )
        return capacity.look(nodes, pods, need, self._clock())

    @activity.defn
    async def post_checkpoint(self, request: PostCheckpoint) -> CheckpointPosted:
        """POST the hook of every running pod; a pod that does not answer is told, and no error."""
        port = request.hook.http_port
        if port is None:
            return CheckpointPosted(taken=0, why="the job names no HTTP hook")
        pods = await self._pods(request.query.ref)
        addresses = [pod.status.pod_ip for pod in pods if pod.status.phase == "Running" and pod.status.pod_ip]
        taken, refused = 0, ""
        async with (
            heartbeats(),
            aiohttp.ClientSession(timeout=POST_TIMEOUT, cookie_jar=aiohttp.DummyCookieJar()) as session,
        ):
            for address in addresses:
                url = f"http://[{address}]:{port}" if ":" in address else f"http://{address}:{port}"
                try:
                    async with session.post(url + request.hook.http_path, allow_redirects=False) as answer:
                        taken += answer.ok
                        refused = refused if answer.ok else f"{address} answered {answer.status}"
                except (aiohttp.ClientError, TimeoutError, OSError) as error:
                    refused = f"{address}: {str(error) or type(error).__name__}"
        return CheckpointPosted(taken=taken, why=refused)

    async def _object(self, query: AttemptQuery) -> RawObject | None:
        resource = path(*manifests.api_of(query.spec.manifest).path(query.ref.namespace, query.ref.name))
        try:
            return await call(self._api, "GET", resource, RawObject)
        except NotFoundError:
            return None

    async def _pods(self, ref: AttemptRef) -> tuple[Pod, ...]:
        return await pods_of(self._api, ref)

    async def _delete_pod(self, pod: Pod) -> None:
        meta = pod.metadata
        options: dict[str, JsonValue] = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "preconditions": {"uid": meta.uid},
        }
        resource = path("/api/v1/namespaces", meta.namespace, "pods", meta.name)
        with suppress(NotFoundError, ConflictError):
            await call(self._api, "DELETE", resource, Status, body=options)

    async def _gone(self, query: AttemptQuery, before: tuple[Placement, ...]) -> AttemptGone:
        pods = [pod for pod in await self._pods(query.ref) if pod.status.phase not in ("Succeeded", "Failed")]
        nodes = await self.nodes(pod.spec.node_name for pod in pods)
        adapter = manifests.adapter_of(query.spec.manifest)
        left = tuple(attempt_reading.placement_of(pod, nodes, adapter, query.ref.cluster) for pod in pods)
        ran = {placement.pod_uid: placement for placement in before}
        fenced = tuple(
            placement.node
            for pod, placement in zip(pods, left, strict=True)
            if attempt_reading.cannot_write(pod, placement, ran.get(placement.pod_uid), nodes)
        )
        return AttemptGone(gone=len(fenced) == len(left), left=left, fenced=tuple(dict.fromkeys(fenced)))


async def pods_of(api: ApiClient, ref: AttemptRef) -> tuple[Pod, ...]:
    """The pods of an attempt, by its labels."""
    query = {"labelSelector": f"{LABEL_JOB}={ref.job},{LABEL_ATTEMPT}={ref.attempt}"}
    return await list_all(api, path("/api/v1/namespaces", ref.namespace, "pods"), Pod, query=query)
