"""What every adapter answers."""

from collections.abc import Mapping
from typing import Any, Protocol

from sickbay.kube_objects import KubeObject
from sickbay.model import Frozen
from sickbay.training.attempts import AttemptPlan
from sickbay.training.job import TrainingSpec

Manifest = Mapping[str, Any]
"""A Kubernetes object as a person wrote it. It is theirs: read by path, copied, and never kept past this package."""


class ApiKind(Frozen):
    """Where objects of a kind are in the API."""

    group: str
    version: str
    kind: str
    plural: str

    @property
    def api_version(self) -> str:
        """As an object's own `apiVersion` says it."""
        return f"{self.group}/{self.version}"

    def path(self, namespace: str, name: str = "") -> tuple[str, ...]:
        """The parts of the object's path, or of the collection's."""
        parts = (f"/apis/{self.group}/{self.version}/namespaces", namespace, self.plural)
        return (*parts, name) if name else parts


class Adapter(Protocol):
    """One kind of object that runs an attempt."""

    api: ApiKind
    shape: type[KubeObject]
    """What the manifest must fit before any other question below is asked."""
    rank_labels: tuple[str, ...]
    """Labels or annotations of a pod that tell its index, the first that is there."""

    def check(self, manifest: Manifest) -> tuple[str, ...]:
        """What keeps the object from being run."""
        ...

    def nodes_of(self, manifest: Manifest) -> int:
        """How many pods it has."""
        ...

    def pod_spec_of(self, manifest: Manifest) -> Manifest:
        """The pod's spec that decides where it can run."""
        ...

    def render(self, spec: TrainingSpec, plan: AttemptPlan) -> dict[str, Any]:
        """The object of an attempt."""
        ...
