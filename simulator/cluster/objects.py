"""The Kubernetes objects that the cluster behaviours read, as far as they read them.

Objects are parsed here once, when they come from the API server; nothing behind this border handles raw JSON, except
the patches that each behaviour writes.
"""

from datetime import datetime

from pydantic import ConfigDict, Field
from pydantic.alias_generators import to_camel

from sickbay.model import Frozen

GPU_RESOURCE = "nvidia.com/gpu"

Quantities = dict[str, str | int]


class KubeModel(Frozen):
    """A part of an object, with the API's camel-case names."""

    model_config = ConfigDict(alias_generator=to_camel)


class OwnerReference(KubeModel):
    """Whose object this is."""

    kind: str
    name: str
    uid: str
    controller: bool = False


class Metadata(KubeModel):
    """What every object carries."""

    name: str
    namespace: str = ""
    uid: str = ""
    resource_version: str = "0"
    generation: int = 0
    labels: dict[str, str] = Field(default_factory=dict)
    annotations: dict[str, str] = Field(default_factory=dict)
    finalizers: tuple[str, ...] = ()
    creation_timestamp: datetime | None = None
    deletion_timestamp: datetime | None = None
    deletion_grace_period_seconds: int | None = None
    owner_references: tuple[OwnerReference, ...] = ()


class KubeObject(KubeModel):
    """Any object."""

    metadata: Metadata

    @property
    def name(self) -> str:
        """Name inside its namespace."""
        return self.metadata.name

    @property
    def deleting(self) -> bool:
        """Whether it carries a deletion timestamp."""
        return self.metadata.deletion_timestamp is not None

    @property
    def controller(self) -> OwnerReference | None:
        """The controller that owns it, if one does."""
        return next((owner for owner in self.metadata.owner_references if owner.controller), None)


class Condition(KubeModel):
    """One condition of a status."""

    type: str
    status: str
    reason: str | None = ""
    message: str | None = ""
    last_heartbeat_time: datetime | None = None
    last_transition_time: datetime | None = None


def condition_of(conditions: tuple[Condition, ...], kind: str) -> Condition | None:
    """The condition of this type."""
    return next((condition for condition in conditions if condition.type == kind), None)


class Taint(KubeModel):
    """A taint; key and effect make its identity."""

    key: str
    effect: str
    value: str | None = None
    time_added: datetime | None = None

    def written(self) -> dict[str, str]:
        """As it goes into a patch."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)


class NodeSpec(KubeModel):
    """What a node should be."""

    provider_id: str = Field(default="", alias="providerID")
    unschedulable: bool = False
    taints: tuple[Taint, ...] = ()


class NodeInfo(KubeModel):
    """What the kubelet says of its host."""

    boot_id: str = Field(default="", alias="bootID")


class NodeStatus(KubeModel):
    """How a node is."""

    capacity: Quantities = Field(default_factory=dict)
    allocatable: Quantities = Field(default_factory=dict)
    conditions: tuple[Condition, ...] = ()
    node_info: NodeInfo = NodeInfo()


class Node(KubeObject):
    """A node."""

    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()

    @property
    def ready(self) -> bool:
        """Whether its Ready condition is True."""
        condition = condition_of(self.status.conditions, "Ready")
        return condition is not None and condition.status == "True"

    @property
    def allocatable_gpus(self) -> int:
        """GPUs that pods may ask for."""
        return int(self.status.allocatable.get(GPU_RESOURCE, 0))


class Toleration(KubeModel):
    """Which taints a pod bears."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""
    toleration_seconds: int | None = None


class Resources(KubeModel):
    """What a container asks for."""

    limits: Quantities = Field(default_factory=dict)


class FieldReference(KubeModel):
    """A field of the pod itself."""

    field_path: str = ""


class VariableSource(KubeModel):
    """Where a variable's value comes from."""

    field_ref: FieldReference = FieldReference()


class EnvironmentVariable(KubeModel):
    """One variable of a container."""

    name: str
    value: str = ""
    value_from: VariableSource | None = None


class VolumeMount(KubeModel):
    """Where a volume is in a container."""

    name: str
    mount_path: str


class HostPath(KubeModel):
    """A folder of the host."""

    path: str


class Volume(KubeModel):
    """A volume of a pod; only folders of the host are simulated."""

    name: str
    host_path: HostPath | None = None


class Container(KubeModel):
    """One container of a pod."""

    name: str
    command: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    env: tuple[EnvironmentVariable, ...] = ()
    volume_mounts: tuple[VolumeMount, ...] = ()
    resources: Resources = Resources()


class LabelExpression(KubeModel):
    """One expression of a node selector."""

    key: str
    operator: str
    values: tuple[str, ...] = ()

    def allows(self, labels: dict[str, str]) -> bool:
        """Whether a node with these labels is meant."""
        value = labels.get(self.key)
        match self.operator:
            case "In":
                return value in self.values
            case "NotIn":
                return value not in self.values
            case "Exists":
                return value is not None
            case _:
                return value is None


class NodeSelectorTerm(KubeModel):
    """Expressions that must all hold."""

    match_expressions: tuple[LabelExpression, ...] = ()


class NodeSelector(KubeModel):
    """Terms of which one must hold."""

    node_selector_terms: tuple[NodeSelectorTerm, ...] = ()


class NodeAffinity(KubeModel):
    """Which nodes a pod must be on; preferences are not simulated."""

    required_during_scheduling_ignored_during_execution: NodeSelector | None = None


class Affinity(KubeModel):
    """What a pod wants near it; only nodes are simulated."""

    node_affinity: NodeAffinity = NodeAffinity()


class PodSpec(KubeModel):
    """What a pod should be."""

    node_name: str = ""
    node_selector: dict[str, str] = Field(default_factory=dict)
    tolerations: tuple[Toleration, ...] = ()
    affinity: Affinity = Affinity()
    containers: tuple[Container, ...] = ()
    volumes: tuple[Volume, ...] = ()
    hostname: str = ""
    subdomain: str = ""
    restart_policy: str = "Always"
    priority_class_name: str = ""
    termination_grace_period_seconds: int | None = 30


class PodStatus(KubeModel):
    """How a pod is."""

    phase: str = "Pending"
    start_time: datetime | None = None
    conditions: tuple[Condition, ...] = ()


class Pod(KubeObject):
    """A pod."""

    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    @property
    def finished(self) -> bool:
        """Whether its containers have ended for good."""
        return self.status.phase in ("Succeeded", "Failed")

    @property
    def ready(self) -> bool:
        """Whether its Ready condition is True."""
        condition = condition_of(self.status.conditions, "Ready")
        return condition is not None and condition.status == "True"

    @property
    def gpus(self) -> int:
        """GPUs that it asks for."""
        return sum(int(container.resources.limits.get(GPU_RESOURCE, 0)) for container in self.spec.containers)


class LeaseSpec(KubeModel):
    """Who lives, and since when nothing was heard."""

    holder_identity: str | None = ""
    renew_time: datetime | None = None


class Lease(KubeObject):
    """A kubelet's sign of life."""

    spec: LeaseSpec = LeaseSpec()


class LabelSelector(KubeModel):
    """Which pods are meant; expressions are not simulated."""

    match_labels: dict[str, str] = Field(default_factory=dict)

    def selects(self, labels: dict[str, str]) -> bool:
        """Whether an object with these labels is meant."""
        return self.match_labels.items() <= labels.items()


class BudgetSpec(KubeModel):
    """How many pods may be missing."""

    selector: LabelSelector = LabelSelector()
    min_available: int | str | None = None
    max_unavailable: int | str | None = None


class BudgetStatus(KubeModel):
    """How many may be missing now."""

    observed_generation: int = 0
    disruptions_allowed: int = 0
    current_healthy: int = 0
    desired_healthy: int = 0
    expected_pods: int = 0
    disrupted_pods: dict[str, datetime] = Field(default_factory=dict)


class PodDisruptionBudget(KubeObject):
    """A pod disruption budget."""

    spec: BudgetSpec = BudgetSpec()
    status: BudgetStatus = BudgetStatus()
