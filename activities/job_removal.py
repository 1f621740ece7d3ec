"""Removes what an attempt left, and finds out whether any of it can still write.

Called by `activities.jobs`. Gone is more than deleted (facts: training, 9.2): it is a pod that its kubelet has ended,
one that never ran, one on a machine that is no more. A pod that was deleted by force from a node that does not answer
is still there, whatever the API server says. What may be removed is told by the attempt's fence alone.
"""

import asyncio
import logging
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

from kubernetes.aio.client import ApiClient
from pydantic import JsonValue

from activities.job_reads import nodes_named, object_of, pods_of
from activities.kube import ConflictError, KubePassingError, NotFoundError, call, path
from sickbay.kube_objects import Node, Pod, Status
from sickbay.names import ANNOTATION_FENCE
from sickbay.node_faults import ready_condition
from sickbay.training.attempt_reading import cannot_write, placement_of
from sickbay.training.attempts import AttemptGone, AttemptRef, Placement
from sickbay.training.manifests.adapter import Adapter

_log = logging.getLogger(__name__)

EVICTIONS_AT_ONCE: Final = 16
ENDED: Final = ("Succeeded", "Failed")


async def delete(api: ApiClient, adapter: Adapter, ref: AttemptRef) -> None:
    """Ask for the end of an attempt's object and of its pods. Raises FinalError or PassingError."""
    found = await object_of(api, adapter.api, ref)
    if found is not None and found.fence == ref.fence and found.metadata.deletion_timestamp is None:
        resource = path(*adapter.api.path(ref.namespace, ref.name))
        options = _options(found.metadata.uid) | {"propagationPolicy": "Background"}
        # Gone already, or another object has the name by now.
        with suppress(NotFoundError, ConflictError):
            await call(api, "DELETE", resource, Status, body=options)
    # Pods go with their owner; those that somebody orphaned do not, nor do those of a garbage collector that is away.
    # One without a fence may be anybody's.
    places = asyncio.Semaphore(EVICTIONS_AT_ONCE)
    await asyncio.gather(*(_evict(api, places, pod) for pod in await pods_of(api, ref) if _may_evict(pod, ref)))


class Teardown:
    """Looks at an attempt that is being removed; remembers what it saw on nodes that do not answer."""

    def __init__(self, api: ApiClient, adapter: Adapter, ref: AttemptRef, ran: tuple[Placement, ...] = ()) -> None:
        """`ran` is where its pods ran as last seen, by which a machine is told from its successor."""
        self._api = api
        self._adapter = adapter
        self._ref = ref
        self._ran = {place.pod_uid: place for place in ran}
        self._unsure: dict[str, Placement] = {}

    async def look(self) -> AttemptGone:
        """Whether all that the attempt has left can write no more. Raises FinalError or PassingError."""
        pods = await pods_of(self._api, self._ref)
        listed = {pod.metadata.uid for pod in pods}
        live = [pod for pod in pods if pod.status.phase not in ENDED]
        vanished = [place for uid, place in self._unsure.items() if uid not in listed]
        nodes = await nodes_named(
            self._api, (*(pod.spec.node_name for pod in live), *(place.node for place in vanished))
        )
        here = [placement_of(pod, nodes, self._adapter, self._ref.cluster) for pod in live]
        there = [place for place in vanished if _is_silent(place, nodes)]
        self._unsure = {place.pod_uid: place for place in (*there, *(each for each in here if _is_silent(each, nodes)))}
        left = (*here, *there)
        fenced = [place.node for place in left if cannot_write(place, self._ran.get(place.pod_uid), nodes)]
        return AttemptGone(gone=len(fenced) == len(left), left=left, fenced=tuple(dict.fromkeys(filter(None, fenced))))


def _is_silent(place: Placement, nodes: Mapping[str, Node | None]) -> bool:
    """Whether the machine on which a pod was is there, and nobody answers for it."""
    node = nodes.get(place.node)
    if node is None or node.metadata.uid != place.node_uid or node.status.node_info.boot_id != place.boot_id:
        return False
    return ready_condition(node).status != "True"


def _may_evict(pod: Pod, ref: AttemptRef) -> bool:
    ours = pod.metadata.annotations.get(ANNOTATION_FENCE) == ref.fence
    return ours and pod.metadata.deletion_timestamp is None and pod.status.phase not in ENDED


async def _evict(api: ApiClient, places: asyncio.Semaphore, pod: Pod) -> None:
    """We have no right to delete pods, so that disruption budgets hold; one that refuses is told by what is left."""
    meta = pod.metadata
    body: dict[str, JsonValue] = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": meta.name, "namespace": meta.namespace},
        "deleteOptions": _options(meta.uid),
    }
    resource = path("/api/v1/namespaces", meta.namespace, "pods", meta.name, "eviction")
    try:
        async with places:
            await call(api, "POST", resource, Status, body=body)
    except (NotFoundError, ConflictError):
        return
    except KubePassingError as error:
        if error.refusal.code != 429:
            raise
        _log.info("pod %s is not evicted: %s", pod.full_name, error)


def _options(uid: str) -> dict[str, JsonValue]:
    return {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": uid}}
