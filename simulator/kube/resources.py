"""Which kinds the simulated API server serves, and in which ways they differ from each other.

The differences are those of the real registry strategies (kubernetes `pkg/registry/*/strategy.go`) and, for Karpenter's
kinds, of custom resources.
"""

from dataclasses import dataclass
from typing import Any

Object = dict[str, Any]
"""A Kubernetes object as JSON has it. The server stores what clients send, of whatever kind, so that there is no
closer type. A stored object is never changed in place: writers copy first."""


@dataclass(frozen=True)
class Resource:
    """One served kind."""

    group: str
    """Empty for the core group."""
    version: str
    plural: str
    kind: str
    namespaced: bool = True
    subresources: tuple[str, ...] = ()
    custom: bool = False
    """Defined by a CustomResourceDefinition: no strategic merge, and metadata is read-only through /status."""
    counts_generation: bool = False
    """metadata.generation grows with each change outside metadata and status."""
    unconditional_update: bool = True
    """A PUT may come without resourceVersion."""
    returns_deleted: bool = False
    """A DELETE that removes at once answers with the object instead of a Status."""
    short_names: tuple[str, ...] = ()

    @property
    def api_version(self) -> str:
        """`v1` or `group/version`."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def qualified(self) -> str:
        """Plural with group, as messages name it."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def has_status(self) -> bool:
        """Whether status can be written only through /status."""
        return "status" in self.subresources


NODES = Resource("", "v1", "nodes", "Node", namespaced=False, subresources=("status",), short_names=("no",))
NAMESPACES = Resource(
    "", "v1", "namespaces", "Namespace", namespaced=False, subresources=("status",), short_names=("ns",)
)
PODS = Resource(
    "",
    "v1",
    "pods",
    "Pod",
    subresources=("status", "binding", "eviction", "log"),
    counts_generation=True,
    returns_deleted=True,
    short_names=("po",),
)
EVENTS = Resource("", "v1", "events", "Event", short_names=("ev",))
CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap", short_names=("cm",))
VOLUME_CLAIMS = Resource(
    "",
    "v1",
    "persistentvolumeclaims",
    "PersistentVolumeClaim",
    subresources=("status",),
    returns_deleted=True,
    short_names=("pvc",),
)
LEASES = Resource("coordination.k8s.io", "v1", "leases", "Lease", unconditional_update=False)
BUDGETS = Resource(
    "policy",
    "v1",
    "poddisruptionbudgets",
    "PodDisruptionBudget",
    subresources=("status",),
    counts_generation=True,
    unconditional_update=False,
    short_names=("pdb",),
)
JOBS = Resource("batch", "v1", "jobs", "Job", subresources=("status",), counts_generation=True)
DAEMON_SETS = Resource(
    "apps", "v1", "daemonsets", "DaemonSet", subresources=("status",), counts_generation=True, short_names=("ds",)
)
VOLUME_ATTACHMENTS = Resource(
    "storage.k8s.io",
    "v1",
    "volumeattachments",
    "VolumeAttachment",
    namespaced=False,
    subresources=("status",),
    unconditional_update=False,
)
NODE_POOLS = Resource(
    "karpenter.sh",
    "v1",
    "nodepools",
    "NodePool",
    namespaced=False,
    subresources=("status",),
    custom=True,
    counts_generation=True,
    unconditional_update=False,
)
NODE_CLAIMS = Resource(
    "karpenter.sh",
    "v1",
    "nodeclaims",
    "NodeClaim",
    namespaced=False,
    subresources=("status",),
    custom=True,
    counts_generation=True,
    unconditional_update=False,
)

RESOURCES = (
    NODES,
    NAMESPACES,
    PODS,
    EVENTS,
    CONFIG_MAPS,
    VOLUME_CLAIMS,
    LEASES,
    BUDGETS,
    JOBS,
    DAEMON_SETS,
    VOLUME_ATTACHMENTS,
    NODE_POOLS,
    NODE_CLAIMS,
)


def find(group: str, version: str, plural: str) -> Resource | None:
    """The resource served at this place, if any."""
    wanted = (group, version, plural)
    return next((known for known in RESOURCES if (known.group, known.version, known.plural) == wanted), None)
