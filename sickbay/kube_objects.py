"""The parts of Kubernetes objects that our rules read, parsed once at the border.

Made from the API's JSON by `activities.kube` and by the controller's watch, read by the pure rules beside this module.
Only read: what we write are small patches, so that fields unknown here are never lost (`sickbay.node_marks`).
"""

from collections.abc import Mapping
from typing import Any

from pydantic import AwareDatetime, ConfigDict, Field, JsonValue, model_validator
from pydantic.alias_generators import to_camel

from sickbay.model import Frozen


class KubeObject(Frozen):
    """A JSON object of the Kubernetes API; null means the same as absent there."""

    model_config = ConfigDict(alias_generator=to_camel)

    @model_validator(mode="before")
    @classmethod
    def _drop_nulls(cls, value: Any) -> Any:
        if isinstance(value, Mapping):
            return {key: item for key, item in value.items() if item is not None}
        return value


class OwnerReference(KubeObject):
    """Who made an object."""

    kind: str
    name: str
    uid: str
    controller: bool = False


class ManagedFields(KubeObject):
    """Which fields one manager wrote, and when it last changed that set."""

    manager: str = ""
    operation: str = ""
    subresource: str = ""
    time: AwareDatetime | None = None
    fields_v1: JsonValue = None

    def owns(self, *path: str) -> bool:
        """Whether this manager owns a field, e.g. `owns("spec", "unschedulable")`."""
        fields = self.fields_v1
        for name in path:
            if not isinstance(fields, dict) or f"f:{name}" not in fields:
                return False
            fields = fields[f"f:{name}"]
        return True


class ObjectMeta(KubeObject):
    """What every object carries."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    creation_timestamp: AwareDatetime | None = None
    deletion_timestamp: AwareDatetime | None = None
    """When the grace period of a requested deletion ends; set on every object that is being deleted."""
    labels: dict[str, str] = Field(default_factory=dict)
    annotations: dict[str, str] = Field(default_factory=dict)
    finalizers: tuple[str, ...] = ()
    owner_references: tuple[OwnerReference, ...] = ()
    managed_fields: tuple[ManagedFields, ...] = ()

    @property
    def controller(self) -> OwnerReference | None:
        """The owner that manages this object, if any."""
        return next((owner for owner in self.owner_references if owner.controller), None)


class Taint(KubeObject):
    """A taint as the server gave it.

    Unknown fields and the time's spelling are kept, since a patch replaces the whole list, other people's taints too.
    """

    model_config = ConfigDict(extra="allow")

    key: str
    effect: str
    value: str | None = None
    time_added: str | None = None


class Condition(KubeObject):
    """One condition of a node."""

    type: str
    status: str
    reason: str = ""
    message: str = ""
    last_heartbeat_time: AwareDatetime | None = None
    last_transition_time: AwareDatetime | None = None


class NodeSpec(KubeObject):
    """What is wished of a node."""

    provider_id: str | None = Field(default=None, alias="providerID")
    unschedulable: bool = False
    taints: tuple[Taint, ...] = ()


class NodeInfo(KubeObject):
    """What the kubelet told of its host."""

    boot_id: str = Field(default="", alias="bootID")


class NodeAddress(KubeObject):
    """Where a node can be reached."""

    type: str = ""
    """`InternalIP`, `ExternalIP`, `Hostname`, ..."""
    address: str = ""


class NodeStatus(KubeObject):
    """How a node stands."""

    capacity: dict[str, str] = Field(default_factory=dict)
    allocatable: dict[str, str] = Field(default_factory=dict)
    conditions: tuple[Condition, ...] = ()
    addresses: tuple[NodeAddress, ...] = ()
    node_info: NodeInfo = NodeInfo()


class Node(KubeObject):
    """A Node."""

    metadata: ObjectMeta
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()

    def condition(self, condition_type: str) -> Condition | None:
        """The condition of one type, if the node has it."""
        return next((condition for condition in self.status.conditions if condition.type == condition_type), None)


class NodeClaimStatus(KubeObject):
    """The machine behind a claim."""

    node_name: str = ""
    provider_id: str = Field(default="", alias="providerID")


class NodeClaim(KubeObject):
    """A Karpenter NodeClaim (karpenter.sh/v1)."""

    metadata: ObjectMeta
    status: NodeClaimStatus = NodeClaimStatus()


class LeaseSpec(KubeObject):
    """Who holds a lease until when."""

    holder_identity: str = ""
    lease_duration_seconds: int = 0
    renew_time: AwareDatetime | None = None


class Lease(KubeObject):
    """A Lease (coordination.k8s.io/v1)."""

    metadata: ObjectMeta
    spec: LeaseSpec = LeaseSpec()


class Event(KubeObject):
    """An Event (v1), of which we only need to know that it is there."""

    metadata: ObjectMeta


class ResourceNeeds(KubeObject):
    """What a container asks for."""

    requests: dict[str, str] = Field(default_factory=dict)
    limits: dict[str, str] = Field(default_factory=dict)
    claims: tuple[JsonValue, ...] = ()


class Container(KubeObject):
    """One container of a pod."""

    name: str = ""
    resources: ResourceNeeds = ResourceNeeds()


class PodSpec(KubeObject):
    """What is wished of a pod."""

    node_name: str = ""
    node_selector: dict[str, str] = Field(default_factory=dict)
    priority: int = 0
    priority_class_name: str = ""
    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = ()
    resource_claims: tuple[JsonValue, ...] = ()


class Terminated(KubeObject):
    """How a container ended."""

    exit_code: int = 0
    reason: str = ""
    message: str = ""
    started_at: AwareDatetime | None = None
    finished_at: AwareDatetime | None = None


class Waiting(KubeObject):
    """Why a container does not run yet."""

    reason: str = ""
    message: str = ""


class Running(KubeObject):
    """Since when a container runs."""

    started_at: AwareDatetime | None = None


class ContainerState(KubeObject):
    """What a container does; exactly one key is there."""

    terminated: Terminated | None = None
    waiting: Waiting | None = None
    running: Running | None = None


class ContainerStatus(KubeObject):
    """One container as the kubelet last told it."""

    name: str = ""
    state: ContainerState = ContainerState()


class PodStatus(KubeObject):
    """How a pod stands."""

    phase: str = ""
    reason: str = ""
    message: str = ""
    pod_ip: str = Field(default="", alias="podIP")
    start_time: AwareDatetime | None = None
    conditions: tuple[Condition, ...] = ()
    init_container_statuses: tuple[ContainerStatus, ...] = ()
    container_statuses: tuple[ContainerStatus, ...] = ()


class Pod(KubeObject):
    """A Pod."""

    metadata: ObjectMeta
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    @property
    def full_name(self) -> str:
        """`namespace/name`, as people write it."""
        return f"{self.metadata.namespace}/{self.metadata.name}"

    @property
    def serves(self) -> bool:
        """Whether it is Ready and nobody has asked it to end."""
        ready = any(each.type == "Ready" and each.status == "True" for each in self.status.conditions)
        return ready and self.metadata.deletion_timestamp is None


class Requirement(KubeObject):
    """One expression of a label selector."""

    key: str
    operator: str
    values: tuple[str, ...] = ()


class LabelSelector(KubeObject):
    """Which labels an object must have."""

    match_labels: dict[str, str] = Field(default_factory=dict)
    match_expressions: tuple[Requirement, ...] = ()


class BudgetSpec(KubeObject):
    """Which pods a disruption budget guards; without a selector, none (policy/v1)."""

    selector: LabelSelector | None = None


class PodDisruptionBudget(KubeObject):
    """A PodDisruptionBudget (policy/v1)."""

    metadata: ObjectMeta
    spec: BudgetSpec = BudgetSpec()


class StatusCause(KubeObject):
    """One reason inside a refusal."""

    reason: str = ""
    message: str = ""


class StatusDetails(KubeObject):
    """What a refusal is about."""

    name: str = ""
    kind: str = ""
    causes: tuple[StatusCause, ...] = ()
    retry_after_seconds: int = 0


class Status(KubeObject):
    """What the API server says of a call that it did not carry out."""

    message: str = ""
    reason: str = ""
    details: StatusDetails = StatusDetails()

    @property
    def misses_object(self) -> bool:
        """Whether it says that an object is gone, and not that the server lacks the kind or is no API server at all."""
        return self.reason == "NotFound" and bool(self.details.name)
