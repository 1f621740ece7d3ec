"""Karpenter's own kinds, as far as the simulated Karpenter reads them, and its names for things."""

from pydantic import Field

from simulator.cluster.objects import Condition, KubeModel, KubeObject, Quantities, Taint, condition_of

GROUP = "karpenter.sh"
LABEL_POOL = "karpenter.sh/nodepool"
LABEL_REGISTERED = "karpenter.sh/registered"
LABEL_INITIALIZED = "karpenter.sh/initialized"
LABEL_CAPACITY_TYPE = "karpenter.sh/capacity-type"
LABEL_NO_LOAD_BALANCER = "node.kubernetes.io/exclude-from-external-load-balancers"
LABEL_INSTANCE_TYPE = "node.kubernetes.io/instance-type"
TAG_CLAIM = "karpenter.sh/nodeclaim"
FINALIZER = "karpenter.sh/termination"
ANNOTATION_DO_NOT_DISRUPT = "karpenter.sh/do-not-disrupt"
ANNOTATION_TERMINATION_TIME = "karpenter.sh/nodeclaim-termination-timestamp"
UNREGISTERED = Taint(key="karpenter.sh/unregistered", effect="NoExecute")
DISRUPTED = Taint(key="karpenter.sh/disrupted", effect="NoSchedule")


class Requirement(KubeModel):
    """One demand on nodes."""

    key: str
    operator: str = "In"
    values: tuple[str, ...] = ()


def required_instance_type(requirements: tuple[Requirement, ...]) -> str:
    """The instance type demanded; the first one where several would do, empty where none is named."""
    for requirement in requirements:
        if requirement.key == LABEL_INSTANCE_TYPE and requirement.operator == "In" and requirement.values:
            return requirement.values[0]
    return ""


class ClaimResources(KubeModel):
    """What a node must offer."""

    requests: Quantities = Field(default_factory=dict)


class ClaimSpec(KubeModel):
    """What a node should be; also the shape of a pool's template."""

    requirements: tuple[Requirement, ...] = ()
    taints: tuple[Taint, ...] = ()
    startup_taints: tuple[Taint, ...] = ()
    termination_grace_period: str | None = None
    resources: ClaimResources = ClaimResources()


class ClaimStatus(KubeModel):
    """How far a node has come."""

    provider_id: str = Field(default="", alias="providerID")
    node_name: str = ""
    conditions: tuple[Condition, ...] = ()


class NodeClaim(KubeObject):
    """One node that Karpenter wants, has, or is ending."""

    spec: ClaimSpec = ClaimSpec()
    status: ClaimStatus = ClaimStatus()

    @property
    def pool(self) -> str:
        """Its pool, empty for a claim that stands alone."""
        return self.metadata.labels.get(LABEL_POOL, "")

    @property
    def instance_id(self) -> str:
        """Its instance, once launched."""
        return self.status.provider_id.rsplit("/", 1)[-1]

    def reached(self, condition: str) -> bool:
        """Whether a condition is True."""
        found = condition_of(self.status.conditions, condition)
        return found is not None and found.status == "True"


class TemplateMetadata(KubeModel):
    """Labels of the nodes to be."""

    labels: dict[str, str] = Field(default_factory=dict)


class PoolTemplate(KubeModel):
    """What nodes of a pool are made after."""

    metadata: TemplateMetadata = TemplateMetadata()
    spec: ClaimSpec = ClaimSpec()


class PoolLimits(KubeModel):
    """How far a pool may grow; only the number of nodes is simulated."""

    nodes: int | None = None


class PoolSpec(KubeModel):
    """What a pool should be. With `replicas` it is static: it keeps that many nodes, wanted or not."""

    replicas: int | None = None
    limits: PoolLimits = PoolLimits()
    template: PoolTemplate = PoolTemplate()


class NodePool(KubeObject):
    """A pool of nodes."""

    spec: PoolSpec = PoolSpec()
