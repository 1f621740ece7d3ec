"""Which taints a pod bears, by Kubernetes' rules; and the taints that the cluster itself sets."""

from simulator.cluster.objects import Node, Pod, Taint, Toleration

NOT_READY = "node.kubernetes.io/not-ready"
UNREACHABLE = "node.kubernetes.io/unreachable"
UNSCHEDULABLE = "node.kubernetes.io/unschedulable"
OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"


def tolerates(toleration: Toleration, taint: Taint) -> bool:
    """Whether one toleration bears one taint; an empty key or effect bears all."""
    if toleration.effect not in ("", taint.effect):
        return False
    if toleration.operator == "Exists":
        return toleration.key in ("", taint.key)
    return toleration.key == taint.key and toleration.value == (taint.value or "")


def bears(pod: Pod, taint: Taint) -> bool:
    """Whether a pod tolerates a taint, for however long."""
    return any(tolerates(toleration, taint) for toleration in pod.spec.tolerations)


def seconds_borne(pod: Pod, taint: Taint, default: float) -> float | None:
    """How long a pod stays in face of a NoExecute taint: None for ever, 0 not at all.

    `default` holds for not-ready and unreachable, which Kubernetes' admission lets every pod bear for a while.
    """
    matching = [toleration for toleration in pod.spec.tolerations if tolerates(toleration, taint)]
    if not matching:
        return default if taint.key in (NOT_READY, UNREACHABLE) else 0
    limits = [toleration.toleration_seconds for toleration in matching if toleration.toleration_seconds is not None]
    return max(min(limits), 0) if limits else None


def taints_of_state(node: Node, ready_status: str) -> tuple[Taint, ...]:
    """The taints that a node's own state calls for."""
    wanted: list[Taint] = []
    if node.spec.unschedulable:
        wanted.append(Taint(key=UNSCHEDULABLE, effect="NoSchedule"))
    if ready_status != "True":
        key = NOT_READY if ready_status == "False" else UNREACHABLE
        wanted += [Taint(key=key, effect="NoSchedule"), Taint(key=key, effect="NoExecute")]
    return tuple(wanted)


def with_state_taints(node: Node, wanted: tuple[Taint, ...]) -> tuple[Taint, ...]:
    """All taints the node should carry: those of others as they are, and `wanted` of the state's own."""
    identities = {(taint.key, taint.effect) for taint in wanted}
    present = {(taint.key, taint.effect) for taint in node.spec.taints}
    kept = [
        taint
        for taint in node.spec.taints
        if taint.key not in (NOT_READY, UNREACHABLE, UNSCHEDULABLE) or (taint.key, taint.effect) in identities
    ]
    return (*kept, *(taint for taint in wanted if (taint.key, taint.effect) not in present))
