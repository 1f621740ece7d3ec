"""Attempts of training jobs on Kubernetes: made, looked at, removed, and proven gone; and where one could run.

Called by the training workflow from the controller's queue. Every object bears the attempt's number in its name and the
workflow's fence in an annotation: an object of that name with another fence is not ours, and is never touched (design,
3.15). What an object looks like is `sickbay.training.manifests`' affair, what a look means `attempt_reading`'s.
"""

from datetime import timedelta
from typing import Final

from kubernetes.aio.client import ApiClient
from pydantic import JsonValue
from temporalio import activity

from activities import job_hooks, job_removal
from activities.errors import PassingError
from activities.job_reads import RawObject, foreign_writers, nodes_named, object_of, pods_of, refusal_of
from activities.kube import ConflictError, KubeFinalError, call, list_all, path
from activities.node_reads import NODES
from activities.waiting import Clock, heartbeats, look_until, started_at, utc_now
from sickbay.kube_objects import Node, Pod
from sickbay.model import Frozen
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
        spec, ref = request.spec, request.plan.ref
        kind = manifests.api_of(spec.manifest)
        found = await object_of(self._api, kind, ref)
        if found is None:
            if strangers := await foreign_writers(self._api, ref):
                names = ", ".join(pod.full_name for pod in strangers[:3])
                return AttemptCreated(
                    foreign=f"{len(strangers)} pod(s) of another run of {ref.full_job} are there and may write its "
                    f"checkpoints ({names}); delete them, then retry the job"
                )
            found = await self._make(request)
        if found.fence != ref.fence:
            whose = f"bears the fence {found.fence}" if found.fence else "is nobody's of Sickbay"
            return AttemptCreated(
                foreign=f"{kind.kind} {ref.namespace}/{ref.name} {whose}; delete or rename it, then retry the job"
            )
        return AttemptCreated(uid=found.metadata.uid)

    @activity.defn
    async def observe_attempt(self, query: AttemptQuery) -> AttemptLook:
        """One look at the attempt."""
        return await self.look(query)

    async def look(self, query: AttemptQuery) -> AttemptLook:
        """One look, for the watch too."""
        ref, adapter = query.ref, manifests.adapter_of(query.spec.manifest)
        found = await object_of(self._api, adapter.api, ref)
        if found is not None and found.fence != ref.fence:
            found = None
        pods = await pods_of(self._api, ref)
        nodes = await nodes_named(self._api, (pod.spec.node_name for pod in pods))
        raw = found.model_dump(mode="json", by_alias=True) if found is not None else None
        refused = ""
        if found is not None and len(pods) < attempt_reading.wanted_pods(raw, len(pods)):
            refused = await refusal_of(self._api, ref, found.metadata.uid)
        return attempt_reading.read_attempt(raw, pods, nodes, adapter, ref.cluster, self._clock(), refused=refused)

    @activity.defn
    async def delete_attempt(self, query: AttemptQuery) -> AttemptGone:
        """Delete the attempt's object and its pods, ours alone. Its pods are not gone by that."""
        adapter = manifests.adapter_of(query.spec.manifest)
        await job_removal.delete(self._api, adapter, query.ref)
        return await job_removal.Teardown(self._api, adapter, query.ref).look()

    @activity.defn
    async def wait_attempt_gone(self, request: WaitGone) -> AttemptGone:
        """Wait until every pod is gone, or on a machine that can write no more; at the deadline, what is left."""
        until = started_at(self._clock) + request.deadline
        query = request.query
        adapter = manifests.adapter_of(query.spec.manifest)
        teardown = job_removal.Teardown(self._api, adapter, query.ref, request.placements)
        async with heartbeats():
            return await look_until(
                teardown.look, lambda seen: seen.gone, until=until, every=self._look_every, clock=self._clock
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
        if request.hook.http_port is None:
            return CheckpointPosted(taken=0, why="the job names no HTTP hook")
        pods = await pods_of(self._api, request.query.ref)
        addresses = [pod.status.pod_ip for pod in pods if pod.status.phase == "Running" and pod.status.pod_ip]
        if not addresses:
            return CheckpointPosted(taken=0, why="no pod runs")
        async with heartbeats():
            taken, why = await job_hooks.post(addresses, request.hook)
        return CheckpointPosted(taken=taken, why=why)

    async def _make(self, request: CreateAttempt) -> RawObject:
        """The attempt's object, made now or by somebody in between."""
        kind, ref = manifests.api_of(request.spec.manifest), request.plan.ref
        body: dict[str, JsonValue] = manifests.render(request.spec, request.plan)
        try:
            return await call(self._api, "POST", path(*kind.path(ref.namespace)), RawObject, body=body)
        except ConflictError:
            found = await object_of(self._api, kind, ref)
            if found is None:
                raise PassingError(f"{ref.name} exists and does not; it is looked at again") from None
            return found
        except KubeFinalError as error:
            if attempt_reading.QUOTA in str(error):
                # Somebody else's end makes room: not a failure of the job.
                raise PassingError(str(error)) from error
            raise
