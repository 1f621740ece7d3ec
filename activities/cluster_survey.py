"""Reads a cluster for `sickbay doctor`, and asks it for the rights of who reads; writes nothing.

Called by `console.doctor`. What cannot be read is told as an ailment of its own, and the rest is read all the same.
"""

from typing import Final, NamedTuple, TypeVar

from kubernetes.aio.client import ApiClient
from pydantic import JsonValue

from activities.errors import FinalError, PassingError
from activities.kube import KubeFinalError, call, list_all
from activities.node_reads import NODES
from sickbay.cluster_survey import Ailment, DaemonSet, NodePool, ailments
from sickbay.kube_objects import KubeObject, Node
from sickbay.policy.file import Policy

_DAEMON_SETS: Final = "/apis/apps/v1/daemonsets"
_NODE_POOLS: Final = "/apis/karpenter.sh/v1/nodepools"
_REVIEWS: Final = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"

Listed = TypeVar("Listed", bound=KubeObject)


class Right(NamedTuple):
    """One thing that the controller does (deploy/kubernetes/rbac.yaml says why)."""

    verb: str
    group: str
    resource: str
    namespace: str = ""

    def __str__(self) -> str:
        where = f" in {self.namespace}" if self.namespace else ""
        return f"{self.verb} {self.resource}{f'.{self.group}' if self.group else ''}{where}"


RIGHTS: Final = (
    *(Right(verb, "", "nodes") for verb in ("get", "list", "watch", "patch")),
    *(Right(verb, "", "pods") for verb in ("get", "list")),
    Right("create", "", "pods/eviction"),
    Right("list", "policy", "poddisruptionbudgets"),
    Right("create", "", "events", "default"),
    *(Right(verb, "batch", "jobs") for verb in ("get", "create", "delete")),
    Right("get", "", "pods/log"),
    Right("list", "", "events"),
)
"""Of the controller. Those on jobs, logs and events are for training jobs."""
RIGHTS_WITH_KARPENTER: Final = tuple(Right(verb, "karpenter.sh", "nodeclaims") for verb in ("get", "list", "delete"))


class _ReviewStatus(KubeObject):
    allowed: bool = False


class _Review(KubeObject):
    status: _ReviewStatus = _ReviewStatus()


async def survey(api: ApiClient, policy: Policy) -> tuple[Ailment, ...]:
    """Everything in the cluster that would make Sickbay fail, as far as it can be read."""
    unread: list[Ailment] = []
    nodes = await _listed(api, NODES, Node, unread)
    pools = await _listed(api, _NODE_POOLS, NodePool, unread)
    daemon_sets = await _listed(api, _DAEMON_SETS, DaemonSet, unread)
    wanted = (*RIGHTS, *(RIGHTS_WITH_KARPENTER if pools else ()))
    return (*unread, *await _missing_rights(api, wanted), *ailments(policy, nodes, pools, daemon_sets))


async def _listed(api: ApiClient, resource: str, kind: type[Listed], unread: list[Ailment]) -> tuple[Listed, ...]:
    try:
        return await list_all(api, resource, kind)
    except (FinalError, PassingError) as error:
        if resource == _NODE_POOLS and isinstance(error, KubeFinalError) and error.refusal.code == 404:
            return ()  # a cluster without Karpenter has no such kind
        cure = "read the cluster as somebody who may list these"
        unread.append(Ailment(what=f"{resource} cannot be listed: {error}", cure=cure))
        return ()


async def _missing_rights(api: ApiClient, wanted: tuple[Right, ...]) -> tuple[Ailment, ...]:
    missing = []
    for right in wanted:
        resource, _, subresource = right.resource.partition("/")
        attributes: dict[str, JsonValue] = {
            "verb": right.verb,
            "group": right.group,
            "resource": resource,
            "subresource": subresource,
            "namespace": right.namespace,
        }
        body: dict[str, JsonValue] = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": attributes},
        }
        try:
            review = await call(api, "POST", _REVIEWS, _Review, body=body)
        except (FinalError, PassingError) as error:
            cure = "ask an API server with authorization.k8s.io/v1"
            return (Ailment(what=f"the rights cannot be asked for: {error}", cure=cure),)
        if not review.status.allowed:
            missing.append(str(right))
    if not missing:
        return ()
    cure = "apply deploy/kubernetes/rbac.yaml, and ask as the controller's service account"
    return (Ailment(what=f"rights that the controller needs are missing: {', '.join(missing)}", cure=cure),)
