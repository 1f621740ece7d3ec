"""Rules on machines: hardware, nodes that went, storage (facts: training, 2.7, rows 3, 4, 6, 12, 15, 22, 23).

Each takes the case and gives a verdict, or None if it does not apply. `classify` says in which order they are asked.
"""

from typing import Final

from sickbay.faults import Rung
from sickbay.node_faults import NODE_NOT_READY
from sickbay.training import corruption
from sickbay.training.evidence import NodeEvidence
from sickbay.training.failures.case import Case, Seen, blames, verdict
from sickbay.training.failures.patterns import Kind, kind_of
from sickbay.training.verdicts import FailureAction, FailureClass, FailureVerdict, NodeBlame

PLATFORM: Final = FailureClass.PLATFORM
EXCLUDING: Final = FailureAction.RESTART_EXCLUDING_NODE
_SPECIFIC: Final = (
    "device-assert",
    "collective-mismatch",
    "arguments",
    "import-error",
    "state-dict",
    "cuda-oom",
    "loss-scale-minimum",
)
"""What only the job's own code does: it outweighs hardware noise elsewhere that came later."""


def faulty_node(case: Case) -> FailureVerdict | None:
    """Row 3: a detector's fault on a node that took part, severe enough to repair the node."""
    # A node that only does not report may train on well; a broken device does not.
    sick = sorted((node for node in case.evidence.nodes if _severe(node)), key=_only_silent)
    if not sick or _application_came_first(case, {node.node for node in sick}):
        return None
    words = [
        f"{node.node}: {fault.code} ({fault.rung})" for node in sick for fault in node.faults if _weighs(fault.rung)
    ]
    blamed = [
        NodeBlame(
            node=node.node,
            reason=_codes(node),
            hardware=True,
            code=_codes(node).split(", ")[0],
            known=True,
            corrupts=any(fault.code in corruption.CODES for fault in node.faults),
        )
        for node in sick
    ]
    found = " and ".join(f"{_codes(node)} on {node.node}" for node in sick[:3])
    reason = f"a detector found {found} when the attempt failed"
    return verdict(
        PLATFORM,
        EXCLUDING,
        "row-03-fault-on-node",
        reason,
        case=case,
        culprits=[node.node for node in sick],
        blamed=blamed,
        lines=words,
    )


def own_hardware(case: Case) -> FailureVerdict | None:
    """Row 3: a rank's own words name its GPU, link or adapter."""
    shown = [each for each in case.seen if kind_of(each.code) is Kind.HARDWARE]
    if not shown or _application_came_first(case, {each.node for each in shown}):
        return None
    first = shown[0]
    reason = f"hardware of {first.node or 'a node that the log does not name'}, by its own word: {first.code}"
    return verdict(
        PLATFORM,
        EXCLUDING,
        "row-03-hardware-by-own-word",
        reason,
        shown,
        case=case,
        culprits=_nodes_and_ranks(shown),
        blamed=blames(shown, first.code, hardware=True),
    )


def lost_node(case: Case) -> FailureVerdict | None:
    """Rows 4 and 5: a node is gone or not Ready, planned or not."""
    lost = [node for node in case.evidence.nodes if node.told and not (node.exists and node.ready)]
    planned = [node for node in case.evidence.nodes if node.planned]
    if planned and len(planned) >= len(lost):
        first = planned[0]
        return verdict(
            FailureClass.DISRUPTION,
            FailureAction.RESTART,
            "row-05-node-was-leaving",
            f"{first.node} was leaving: {first.planned}",
            case=case,
            culprits=[],
            blamed=[NodeBlame(node=node.node, reason=node.planned, soft=True) for node in planned],
        )
    if not lost:
        return None
    words = [f"{node.node} is {'not Ready' if node.exists else 'gone'}" for node in lost]
    return verdict(
        PLATFORM,
        EXCLUDING,
        "row-04-node-lost",
        "; ".join(words),
        case=case,
        culprits=[node.node for node in lost],
        blamed=[
            NodeBlame(node=node.node, reason=word, hardware=node.exists, code=NODE_NOT_READY, known=True)
            for node, word in zip(lost, words, strict=True)
        ],
        lines=words,
    )


def lost_node_in_words(case: Case) -> FailureVerdict | None:
    """Row 4, where only words tell: a scheduler's, a controller's, or a pod that says Running and is not ready."""
    shown = case.all("node-failure", "pod-lost", "node-not-ready")
    if not shown and case.has("pod-running") and case.has("pod-ready-false"):
        shown = case.all("pod-ready-false")
    if not shown:
        return None
    nodes = [each.node for each in (*shown, *case.all("on-node")) if each.node]
    reason = f"{nodes[0] if nodes else 'a node'} was lost under the attempt"
    return verdict(
        PLATFORM,
        FailureAction.RESTART,
        "row-04-node-lost",
        reason,
        shown,
        case=case,
        culprits=nodes,
        blamed=[NodeBlame(node=node, reason="lost under the attempt") for node in dict.fromkeys(nodes)],
    )


def node_pressure(case: Case) -> FailureVerdict | None:
    """Row 6: the kubelet ended the pod for the node's own shortage, or an image filled its disk."""
    shown = case.all("pod-node-pressure", "image-no-space", "pod-ended-by-kubelet")
    if not shown or case.has("pod-own-limit"):
        return None
    places = case.all("on-node") or shown
    nodes = [each.node for each in places if each.node]
    resource = shown[0].sign.details.get("resource") or shown[0].sign.details.get("condition") or "a resource"
    return verdict(
        PLATFORM,
        FailureAction.RESTART,
        "row-06-node-pressure",
        f"the node itself ran short of {resource}",
        shown,
        case=case,
        culprits=nodes,
        blamed=blames(places, f"short of {resource}", soft=True),
    )


def unusable_gpu(case: Case) -> FailureVerdict | None:
    """Row 12: a GPU cannot be used at all, or somebody else's process holds its memory, before the first step."""
    shown = case.all("driver-mismatch", "gpu-unavailable")
    if not case.began:
        shown += case.all("cuda-context-oom")
        if case.has("cuda-oom"):
            shown += _foreign(case)
    if not shown:
        return None
    if case.everywhere("gpu-unavailable", "driver-mismatch", "cuda-context-oom"):
        return verdict(
            FailureClass.CONFIG,
            FailureAction.CONFIRM_ONCE,
            "row-13-no-gpu-anywhere",
            "no rank on any node can use its GPU: the image, the driver's version or the request for GPUs",
            shown,
            case=case,
            culprits=[],
        )
    nodes = [each.node for each in shown if each.node] or [node for node in case.nodes if len(case.nodes) == 1]
    reason = f"a GPU of {nodes[0] if nodes else 'one node'} cannot be used: {shown[0].code}"
    blamed = [
        NodeBlame(node=node, reason=shown[0].code, hardware=True, code=shown[0].code) for node in dict.fromkeys(nodes)
    ]
    return verdict(
        PLATFORM,
        EXCLUDING,
        "row-12-gpu-unusable",
        reason,
        shown,
        case=case,
        culprits=[*nodes, *(each.who for each in shown)],
        blamed=blamed,
    )


def not_admitted(case: Case) -> FailureVerdict | None:
    """Row 15: the kubelet refused the pod, or only one node cannot pull or create it."""
    shown = case.all("pod-not-admitted")
    if not shown:
        return None
    nodes = [each.node for each in shown if each.node]
    return verdict(
        PLATFORM,
        FailureAction.RESTART,
        "row-15-not-admitted",
        "the node's kubelet did not take the pod",
        shown,
        case=case,
        culprits=nodes,
        blamed=blames(shown, "did not take a pod", soft=True),
    )


def storage(case: Case) -> FailureVerdict | None:
    """Row 23: storage, its credentials, or the clock by which it judges a request."""
    if (skewed := case.first("clock-skew")) is not None:
        return verdict(
            PLATFORM,
            FailureAction.RESTART,
            "row-23-clock-skew",
            "the store refuses requests of a host whose clock is wrong",
            [skewed],
            case=case,
            culprits=[skewed.who or "this host"],
            blamed=blames([skewed], "its clock is wrong", soft=True),
        )
    if case.has("stale-handle") and case.has("dataset-lock"):
        return verdict(
            FailureClass.CONFIG,
            FailureAction.CONFIRM_ONCE,
            "row-23-shared-cache",
            "a library's cache or lock file on shared storage was taken away under it: the same on every node",
            case.all("stale-handle"),
            case=case,
            culprits=[],
        )
    shown = case.all("store-throttled", "token-expired", "io-error", "stale-handle", "read-only-storage")
    if not shown:
        return None
    return verdict(
        PLATFORM,
        FailureAction.RESTART,
        "row-23-storage",
        f"storage failed: {shown[0].code}",
        shown,
        case=case,
        culprits=[],
    )


def _severe(node: NodeEvidence) -> bool:
    return any(_weighs(fault.rung) for fault in node.faults)


def _only_silent(node: NodeEvidence) -> bool:
    return all(fault.code == NODE_NOT_READY for fault in node.faults if _weighs(fault.rung))


def _weighs(rung: Rung) -> bool:
    return rung.disrupts and rung is not Rung.STOP_WORKLOAD


def _codes(node: NodeEvidence) -> str:
    return ", ".join(sorted({fault.code for fault in node.faults if _weighs(fault.rung)}))


def _application_came_first(case: Case, nodes: set[str]) -> bool:
    """Facts 2.7, conflicts: an exception of the job's own, on another node, earlier by more than the clocks' skew."""
    skew = case.evidence.clock_skew_seconds
    hardware = [each.sign.at for each in case.seen if each.sign.at and kind_of(each.code) is Kind.HARDWARE]
    faults = [
        fault.first_seen
        for node in case.evidence.nodes
        for fault in node.faults
        if _weighs(fault.rung) and not isinstance(fault.first_seen, float | int | type(None))
    ]
    began = min([*hardware, *faults], default=None)
    if began is None:
        return False
    for each in (*case.all(*_SPECIFIC), *case.own_exceptions()):
        elsewhere = bool(each.node) and each.node not in nodes
        if elsewhere and each.sign.at is not None and (began - each.sign.at).total_seconds() > skew:
            return True
    return False


def _foreign(case: Case) -> list[Seen]:
    """Other processes that hold much of a GPU's memory."""
    held = []
    for each in case.all("foreign-gpu-memory"):
        amount = float(each.sign.details.get("held", "0")) / (1024 if each.sign.details.get("unit") == "MiB" else 1)
        if amount >= 1:
            held.append(each)
    return held


def _nodes_and_ranks(shown: list[Seen]) -> list[str]:
    nodes = [each.node for each in shown if each.node]
    return [*nodes, *(each.who for each in shown)]
