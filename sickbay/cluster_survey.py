"""What would make Sickbay fail in a cluster, from what the API server lists: the rules of `sickbay doctor`.

Pure; the lists are read by `activities.cluster_survey`, and printed by `console.doctor`. Where a rule cannot tell
whether a DaemonSet would run on a GPU node, it says that it may: a toleration too many costs nothing, one too few keeps
a node from ever being admitted.
"""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from pydantic import Field

from sickbay.kube_objects import KubeObject, Node, ObjectMeta, Taint
from sickbay.model import Frozen
from sickbay.names import TAINT_ADMISSION, TAINT_INCIDENT
from sickbay.node_reading import awaits_admission, is_gpu_node, pool_of
from sickbay.policy.file import Policy
from sickbay.watch_faults import has_agent, wants_agent

COMES_LATE: Final = ("nvidia.com/", "feature.node.kubernetes.io/", "network.nvidia.com/", "sickbay.dev/")
"""Labels that operators put on a node once they run there: that a new node lacks them says nothing."""
NODES_NAMED: Final = 5
NO_SCHEDULE: Final = "NoSchedule"
"""The one effect of ours that keeps the pods of a DaemonSet away."""


class Toleration(KubeObject):
    """Which taints a pod bears."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""


class NodeRequirement(KubeObject):
    """One demand on a node's labels."""

    key: str
    operator: str
    values: tuple[str, ...] = ()


class NodeTerm(KubeObject):
    """Demands that must hold together."""

    match_expressions: tuple[NodeRequirement, ...] = ()


class RequiredNodes(KubeObject):
    """Terms of which one must hold."""

    node_selector_terms: tuple[NodeTerm, ...] = ()


class NodeAffinity(KubeObject):
    """Where a pod must run."""

    required: RequiredNodes | None = Field(default=None, alias="requiredDuringSchedulingIgnoredDuringExecution")


class Affinity(KubeObject):
    """Where a pod must or would like to run."""

    node_affinity: NodeAffinity = NodeAffinity()


class TemplateSpec(KubeObject):
    """The pods of a DaemonSet, as far as they choose nodes."""

    node_selector: dict[str, str] = Field(default_factory=dict)
    affinity: Affinity = Affinity()
    tolerations: tuple[Toleration, ...] = ()


class PodTemplate(KubeObject):
    """What a DaemonSet makes its pods after."""

    spec: TemplateSpec = TemplateSpec()


class DaemonSetSpec(KubeObject):
    """What is wished of a DaemonSet."""

    template: PodTemplate = PodTemplate()


class DaemonSet(KubeObject):
    """A DaemonSet (apps/v1)."""

    metadata: ObjectMeta
    spec: DaemonSetSpec = DaemonSetSpec()


class ClaimTemplateSpec(KubeObject):
    """What the nodes of a pool begin with."""

    startup_taints: tuple[Taint, ...] = ()


class ClaimTemplate(KubeObject):
    """What a pool makes its nodes after."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ClaimTemplateSpec = ClaimTemplateSpec()


class NodePoolSpec(KubeObject):
    """What is wished of a pool."""

    template: ClaimTemplate = ClaimTemplate()


class NodePool(KubeObject):
    """A Karpenter NodePool (karpenter.sh/v1)."""

    metadata: ObjectMeta
    spec: NodePoolSpec = NodePoolSpec()

    @property
    def has_startup_taint(self) -> bool:
        """Whether its nodes come up with our taint."""
        return any(taint.key == TAINT_ADMISSION for taint in self.spec.template.spec.startup_taints)


class Bearer(NamedTuple):
    """A node, or a node to be, that may bear a taint of ours."""

    labels: Mapping[str, str]
    whole: bool
    """Whether these are all labels of a node, and not only those that its pool gives it."""


class Ailment(Frozen):
    """One thing that would make Sickbay fail, and its cure."""

    what: str
    cure: str


def ailments(
    policy: Policy, nodes: Iterable[Node], pools: Iterable[NodePool], daemon_sets: Iterable[DaemonSet]
) -> tuple[Ailment, ...]:
    """Everything that the lists show, the most general first."""
    gpu_nodes = [node for node in nodes if is_gpu_node(node) or awaits_admission(node)]
    known_pools = tuple(pools)
    return (
        *_pools(policy, gpu_nodes, known_pools),
        *_tolerations(policy, gpu_nodes, known_pools, tuple(daemon_sets)),
        *_nodes_without_policy(policy, gpu_nodes),
        *_nodes_without_agent(gpu_nodes),
    )


def _pools(policy: Policy, nodes: list[Node], pools: Iterable[NodePool]) -> Iterable[Ailment]:
    of_gpu_nodes = {pool_of(node) for node in nodes}
    for pool in pools:
        name, enabled = pool.metadata.name, policy.for_pool(pool.metadata.name).admission.enabled
        if enabled and not pool.has_startup_taint and (name in of_gpu_nodes or _is_meant(policy, name)):
            yield Ailment(
                what=f"NodePool {name}: the policy admits its nodes, and they come up without {TAINT_ADMISSION}",
                cure=f"add to spec.template.spec.startupTaints: {{key: {TAINT_ADMISSION}, effect: NoSchedule}}",
            )
        elif pool.has_startup_taint and not enabled:
            yield Ailment(
                what=f"NodePool {name}: its nodes come up with {TAINT_ADMISSION}, and nobody takes it away",
                cure=f"set pools.{name}.admission.enabled: true in the policy, or take the startup taint out",
            )


def _is_meant(policy: Policy, pool: str) -> bool:
    """Whether the policy names this pool itself: defaults and patterns reach pools without GPUs as well."""
    section = policy.section_of(pool)
    return section is not None and section.pattern == pool


def _tolerations(
    policy: Policy, nodes: list[Node], pools: tuple[NodePool, ...], daemon_sets: tuple[DaemonSet, ...]
) -> Iterable[Ailment]:
    for taint, bearers in _taints_to_bear(policy, nodes, pools):
        for daemon_set in daemon_sets:
            spec = daemon_set.spec.template.spec
            if _bears(spec, taint) or not any(_may_choose(spec, each) for each in bearers):
                continue
            name = f"{daemon_set.metadata.namespace}/{daemon_set.metadata.name}"
            yield Ailment(
                what=f"DaemonSet {name}: it may run on GPU nodes, and does not tolerate {taint.key}:{taint.effect}",
                cure=f"add the toleration {{key: {taint.key}, operator: Exists, effect: {taint.effect}}}",
            )


def _taints_to_bear(
    policy: Policy, nodes: list[Node], pools: tuple[NodePool, ...]
) -> Iterable[tuple[Taint, list[Bearer]]]:
    """Each taint of ours that is in use and keeps pods away, with the nodes that may bear it."""
    admitting = [
        Bearer(node.metadata.labels, whole=True)
        for node in nodes
        if awaits_admission(node) or policy.for_pool(pool_of(node)).admission.enabled
    ]
    admitting += [Bearer(pool.spec.template.metadata.labels, whole=False) for pool in pools if pool.has_startup_taint]
    if admitting:
        yield Taint(key=TAINT_ADMISSION, effect=NO_SCHEDULE), admitting
    contained = [(node, policy.for_pool(pool_of(node)).taint) for node in nodes]
    tainting = [
        Bearer(node.metadata.labels, whole=True)
        for node, rule in contained
        if rule.enabled and rule.effect == NO_SCHEDULE
    ]
    if tainting:
        yield Taint(key=TAINT_INCIDENT, effect=NO_SCHEDULE), tainting


def _may_choose(spec: TemplateSpec, bearer: Bearer) -> bool:
    """Whether a pod may run on this node, by the labels that it has and those that it may get."""
    wanted = (NodeRequirement(key=key, operator="In", values=(value,)) for key, value in spec.node_selector.items())
    if not all(_may_hold(each, bearer) for each in wanted):
        return False
    required = spec.affinity.node_affinity.required
    if required is None:
        return True
    return any(all(_may_hold(each, bearer) for each in term.match_expressions) for term in required.node_selector_terms)


def _may_hold(wanted: NodeRequirement, bearer: Bearer) -> bool:
    labels = bearer.labels
    if wanted.key not in labels and (not bearer.whole or wanted.key.startswith(COMES_LATE)):
        return True
    match wanted.operator:
        case "In":
            return labels.get(wanted.key) in wanted.values
        case "NotIn":
            return labels.get(wanted.key) not in wanted.values
        case "Exists":
            return wanted.key in labels
        case "DoesNotExist":
            return wanted.key not in labels
        case _:
            return True


def _bears(spec: TemplateSpec, taint: Taint) -> bool:
    return any(
        each.effect in ("", taint.effect)
        and (each.key in ("", taint.key) if each.operator == "Exists" else each.key == taint.key and not each.value)
        for each in spec.tolerations
    )


def _nodes_without_policy(policy: Policy, nodes: Iterable[Node]) -> Iterable[Ailment]:
    stuck = [node for node in nodes if awaits_admission(node) and not policy.for_pool(pool_of(node)).admission.enabled]
    if stuck:
        yield Ailment(
            what=f"nodes bear {TAINT_ADMISSION}, and the policy admits none of their pools: {_named(stuck)}",
            cure=f"enable admission for their pools, or `kubectl taint node NODE {TAINT_ADMISSION}-`",
        )


def _nodes_without_agent(nodes: Iterable[Node]) -> Iterable[Ailment]:
    silent = [node for node in nodes if wants_agent(node) and not has_agent(node)]
    if silent:
        yield Ailment(
            what=f"GPU nodes on which no Sickbay agent has ever reported: {_named(silent)}",
            cure="look at the DaemonSet sickbay-node: its node selector, its tolerations, the logs of its pods",
        )


def _named(nodes: list[Node]) -> str:
    names = [node.metadata.name for node in nodes]
    more = len(names) - NODES_NAMED
    return ", ".join(names[:NODES_NAMED]) + (f" and {more} more" if more > 0 else "")
