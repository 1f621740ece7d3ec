"""Reads an attempt's object, its pods and their nodes, as often as a watch wants.

Called by the activities on attempts (`jobs`, `job_removal`, `job_evidence`). A pod that bears an attempt's labels and
another run's fence is not of the attempt, and is never seen here. It decides nothing.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from kubernetes.aio.client import ApiClient
from pydantic import AwareDatetime, ConfigDict

from activities.kube import NotFoundError, call, list_all, path
from activities.node_reads import NODES
from sickbay.kube_objects import KubeObject, Node, ObjectMeta, Pod
from sickbay.names import ANNOTATION_FENCE, LABEL_ATTEMPT, LABEL_JOB
from sickbay.training.attempt_reading import is_foreign
from sickbay.training.attempts import AttemptRef
from sickbay.training.manifests.adapter import ApiKind

SINGLY: Final = 16
"""Nodes that are read one by one; of more, the whole list costs fewer calls."""


class RawObject(KubeObject):
    """An object of any kind, as the server gave it; read by path."""

    model_config = ConfigDict(extra="allow")

    metadata: ObjectMeta = ObjectMeta()

    @property
    def fence(self) -> str:
        """Which run of a job made it; empty for an object of somebody else."""
        return self.metadata.annotations.get(ANNOTATION_FENCE, "")


class Involved(KubeObject):
    """What an event is about."""

    kind: str = ""
    name: str = ""
    uid: str = ""


class ClusterEvent(KubeObject):
    """An Event (v1) on an object of an attempt."""

    metadata: ObjectMeta = ObjectMeta()
    involved_object: Involved = Involved()
    reason: str = ""
    message: str = ""
    last_timestamp: AwareDatetime | None = None


async def object_of(api: ApiClient, kind: ApiKind, ref: AttemptRef) -> RawObject | None:
    """The object of an attempt's name, whoever made it; None if there is none."""
    try:
        return await call(api, "GET", path(*kind.path(ref.namespace, ref.name)), RawObject)
    except NotFoundError:
        return None


async def pods_of(api: ApiClient, ref: AttemptRef) -> tuple[Pod, ...]:
    """The pods of an attempt, by its labels and its fence."""
    pods = await _pods(api, ref.namespace, f"{LABEL_JOB}={ref.job},{LABEL_ATTEMPT}={ref.attempt}")
    return tuple(pod for pod in pods if not is_foreign(pod, ref.fence))


async def foreign_writers(api: ApiClient, ref: AttemptRef) -> tuple[Pod, ...]:
    """Pods of another run of a job of this name that may still write where this one will."""
    pods = await _pods(api, ref.namespace, f"{LABEL_JOB}={ref.job}")
    return tuple(pod for pod in pods if is_foreign(pod, ref.fence) and pod.status.phase not in ("Succeeded", "Failed"))


async def nodes_named(api: ApiClient, names: Iterable[str]) -> Mapping[str, Node | None]:
    """These nodes by name, None for one that is gone."""
    wanted = sorted({name for name in names if name})
    if len(wanted) > SINGLY:
        listed = {node.metadata.name: node for node in await list_all(api, NODES, Node)}
        return {name: listed.get(name) for name in wanted}
    return {name: await _node(api, name) for name in wanted}


async def refusal_of(api: ApiClient, ref: AttemptRef, uid: str) -> str:
    """What the controller of an attempt's object last said when it could not make a pod; empty if it said nothing."""
    query = {"fieldSelector": f"involvedObject.name={ref.name},reason=FailedCreate"}
    resource = path("/api/v1/namespaces", ref.namespace, "events")
    told = [
        (each.last_timestamp, each.message)
        for each in await list_all(api, resource, ClusterEvent, query=query)
        if each.involved_object.uid == uid and each.last_timestamp is not None
    ]
    return max(told)[1] if told else ""


async def _node(api: ApiClient, name: str) -> Node | None:
    try:
        return await call(api, "GET", path(NODES, name), Node)
    except NotFoundError:
        return None


async def _pods(api: ApiClient, namespace: str, selector: str) -> tuple[Pod, ...]:
    return await list_all(api, path("/api/v1/namespaces", namespace, "pods"), Pod, query={"labelSelector": selector})
