"""The parts of a person's manifest that the adapters read, as models: what fits them can be rendered without surprise.

Used by `sickbay.training.manifests.check` before an adapter looks at anything: a list where an object belongs is told
with its path, and breaks nothing later. Fields that no adapter reads are the API server's affair.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Final

from pydantic import Field, ValidationError

from sickbay.kube_objects import KubeObject

Count = Annotated[int, Field(strict=True, ge=0, le=100_000)]
"""Pods, replicas, restarts: a number, and no text that looks like one."""
Words = dict[str, str]
PROBLEMS_MOST: Final = 20
Quantity = int | float | str


class Named(KubeObject):
    """An entry of a list that is told by its name."""

    name: str


class Resources(KubeObject):
    """What a container asks for."""

    requests: dict[str, Quantity] = Field(default_factory=dict)
    limits: dict[str, Quantity] = Field(default_factory=dict)


class Container(KubeObject):
    """A container."""

    name: str
    env: tuple[Named, ...] = ()
    volume_mounts: tuple[dict[str, Any], ...] = ()
    resources: Resources = Resources()


class Expression(KubeObject):
    """One demand on a node's labels."""

    key: str
    operator: str
    values: tuple[str, ...] = ()


class Term(KubeObject):
    """One alternative of a required node affinity."""

    match_expressions: tuple[Expression, ...] = ()


class Required(KubeObject):
    """Alternatives, of which a node must meet one."""

    node_selector_terms: tuple[Term, ...] = ()


class NodeAffinity(KubeObject):
    """Which nodes a pod may or likes to run on."""

    required_during_scheduling_ignored_during_execution: Required = Required()
    preferred_during_scheduling_ignored_during_execution: tuple[dict[str, Any], ...] = ()


class Affinity(KubeObject):
    """A pod's affinities."""

    node_affinity: NodeAffinity = NodeAffinity()


class Toleration(KubeObject):
    """A taint that the pod does not mind."""

    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""


class Pod(KubeObject):
    """A pod's spec as far as a patch of a runtime may say it."""

    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = ()
    volumes: tuple[Named, ...] = ()
    node_selector: Words = Field(default_factory=dict)
    affinity: Affinity = Affinity()
    tolerations: tuple[Toleration, ...] = ()
    restart_policy: str = ""
    node_name: str = ""


class PodWithContainers(Pod):
    """A pod's spec that runs by itself."""

    containers: tuple[Container, ...] = Field(min_length=1)


class Metadata(KubeObject):
    """What an object carries."""

    labels: Words = Field(default_factory=dict)
    annotations: Words = Field(default_factory=dict)


class WithMetadata(KubeObject):
    """Any object."""

    metadata: Metadata = Metadata()


class PodTemplate(KubeObject):
    """A pod template."""

    metadata: Metadata = Metadata()
    spec: PodWithContainers


def problems_of(shape: type[KubeObject], manifest: Mapping[str, Any]) -> tuple[str, ...]:
    """Where an object does not have the shape, each place in words; empty if it has it."""
    try:
        shape.model_validate(manifest)
    except ValidationError as error:
        return tuple(_told(each) for each in error.errors()[:PROBLEMS_MOST])
    return ()


def _told(error: Any) -> str:
    path = ""
    for step in error["loc"]:
        if isinstance(step, int):
            path += f"[{step}]"
        elif step not in ("int", "float", "str"):  # which alternative of a quantity did not fit
            path += f".{step}" if path else str(step)
    if error["type"] == "missing":
        return f"{path} is missing"
    if error["type"] == "too_short":
        return f"{path} is empty: an attempt needs one"
    words = str(error["msg"])
    return f"{path}: {words[:1].lower()}{words[1:]}"
