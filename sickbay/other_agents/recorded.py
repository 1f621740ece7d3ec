"""Judges a recorded description of nodes: a manifest, `kubectl describe node`, or columns of `kubectl get nodes`.

Called by `sickbay check --from node-conditions=FILE`. Conditions are another agent's words, so that good ones are
health as those agents report it and no proof; what they leave open is told in `why`. Without the kubelet's Ready a
list of conditions is not whole. A node that offers no accelerators has nothing to be judged here, unless something
about it is bad.
"""

from collections.abc import Iterable
from datetime import timedelta
from typing import Final

from sickbay.catalogue import fault_of
from sickbay.checks import CheckOutcome, CheckResult, judged, not_applicable, unknown
from sickbay.faults import Component, ComponentKind, Fault, merge_faults
from sickbay.instance_types import limits_of
from sickbay.kube_objects import Condition
from sickbay.model import Frozen
from sickbay.other_agents.columns import HEADS, LABEL_TYPE, read_columns
from sickbay.other_agents.condition_types import condition_type
from sickbay.other_agents.describe_text import SECTION, TABLE, read_description
from sickbay.other_agents.described import DescribedNode, UnreadableError
from sickbay.other_agents.gpu_resources import (
    LABEL_COUNT,
    accelerators,
    count,
    counts_whole_gpus,
    short_of,
    unpaired,
    withheld,
)
from sickbay.other_agents.judgement import Standing, fault_of_condition, standing
from sickbay.other_agents.manifest import read_manifest
from sickbay.recorded.model import Recorded, RecordedContext

STALE: Final = timedelta(minutes=15)
"""How much older than the kubelet's a heartbeat may be; three times what the agents' own heartbeats take."""

_READY: Final = "Ready"
_AROUND: Final = ("```", "$ ", "# ")
_TYPE_LABELS: Final = (LABEL_TYPE, "beta.kubernetes.io/instance-type")
_GOOD_ENDS: Final = ("Ready", "Healthy", "Available")
"""Ends of types that by custom are good when True; others tell trouble and are good when False."""
_GPU_CONDITIONS: Final = ("AcceleratedHardwareReady", "SickbayGpuHealthy")


class _Judgement(Frozen):
    """What one node comes to."""

    faults: tuple[Fault, ...] = ()
    open: tuple[str, ...] = ()
    """What cannot be judged, in words."""
    told: tuple[str, ...] = ()
    """What a person should know beside."""
    applies: bool = True


def judge_node_conditions(recorded: Recorded, context: RecordedContext) -> CheckOutcome:
    """What the conditions and the accelerators of the recorded nodes say. Raises nothing."""
    try:
        nodes = _read(recorded.text)
    except UnreadableError as error:
        return unknown(f"no description of a node can be read: {error}")
    if not nodes:
        return unknown("no description of a node can be read: it names none")
    judgements = [_judge(node, context) for node in nodes]
    faults = merge_faults((), (fault for judgement in judgements for fault in judgement.faults))
    concerned = [judgement for judgement in judgements if judgement.applies]
    if not concerned:
        return not_applicable("no accelerators in the node's capacity")
    open_questions = "; ".join(_distinct(words for judgement in concerned for words in judgement.open))
    outcome = judged(faults, open_questions)
    if outcome.result is not CheckResult.HEALTHY:
        return outcome
    told = _distinct(words for judgement in concerned for words in judgement.told)
    return outcome.model_copy(update={"why": "; ".join(told)})


def _read(recorded: str) -> tuple[DescribedNode, ...]:
    # What stands around a paste: the fences of a ticket, and the command itself.
    text = "\n".join(line for line in recorded.splitlines() if not line.startswith(_AROUND))
    if HEADS.match(text):
        return read_columns(text)
    if SECTION.search(text) or TABLE.search(text):
        return read_description(text)
    return read_manifest(text)


def _judge(described: DescribedNode, context: RecordedContext) -> _Judgement:
    by_conditions = _by_conditions(described)
    by_resources = _by_resources(described, context)
    faults = (*by_conditions.faults, *by_resources.faults)
    return _Judgement(
        faults=faults,
        open=(*described.gaps, *by_conditions.open, *by_resources.open),
        told=(*by_conditions.told, *by_resources.told),
        applies=bool(faults or described.gaps) or _has_accelerators(described),
    )


def _has_accelerators(described: DescribedNode) -> bool:
    """Whether there is something to judge; a node whose capacity is not shown is taken to have accelerators."""
    if not described.shows_resources:
        return True
    status = described.node.status
    said = any(condition.type in _GPU_CONDITIONS for condition in described.conditions)
    return (
        said or bool(_gpus_known(described)) or bool(accelerators(status.capacity) or accelerators(status.allocatable))
    )


def _gpus_known(described: DescribedNode) -> int:
    """GPUs that the machine has by what feature discovery saw or by its instance type; 0 where neither tells."""
    labels = described.node.metadata.labels
    limits = [limits_of(labels.get(label, "")) for label in _TYPE_LABELS]
    by_type = [limit.gpus or 0 for limit in limits if limit is not None]
    return max(count(labels, LABEL_COUNT) or 0, *by_type, 0)


def _by_conditions(described: DescribedNode) -> _Judgement:
    faults: list[Fault] = []
    open_questions: list[str] = []
    told: list[str] = []
    ready = next((condition for condition in described.conditions if condition.type == _READY), None)
    if ready is not None and ready.status != "True":
        faults.append(_not_ready(described, ready))
    if ready is None and described.shows_conditions:
        open_questions.append("Ready is not among the conditions: the list is not whole")
    for condition in described.conditions:
        if condition.type == _READY:
            continue
        fault = fault_of_condition(condition, described.name)
        if fault is not None:
            faults.append(fault)
        elif _leaves_open(condition):
            open_questions.append(f"{condition.type} is {condition.status}")
        elif condition_type(condition.type) is None:
            told.append(f"{condition.type} is not known here")
        if ready is not None and _is_stale(condition, ready):
            told.append(f"{condition.type} was last said long before the kubelet's own: no proof")
    return _Judgement(
        faults=tuple(faults), open=(*open_questions, *_silent_kubelet(described, ready)), told=tuple(told)
    )


def _leaves_open(condition: Condition) -> bool:
    """Whether a condition that is no fault is no good word either: unknown, or bad by the custom of its name."""
    match standing(condition):
        case Standing.UNKNOWN:
            return True
        case Standing.FOREIGN:
            return condition.status != ("True" if condition.type.endswith(_GOOD_ENDS) else "False")
    return False


def _is_stale(condition: Condition, ready: Condition) -> bool:
    said, now = condition.last_heartbeat_time, ready.last_heartbeat_time
    if condition_type(condition.type) is None or said is None or now is None:
        return False
    # The network's controller speaks once, when the node joins.
    return condition.type != "NetworkUnavailable" and now - said > STALE


def _silent_kubelet(described: DescribedNode, ready: Condition | None) -> tuple[str, ...]:
    """The kubelet's own silence: others have gone on speaking long after its last word."""
    beats = [condition.last_heartbeat_time for condition in described.conditions if condition.last_heartbeat_time]
    if ready is None or ready.last_heartbeat_time is None or max(beats) - ready.last_heartbeat_time <= STALE:
        return ()
    return ("the kubelet's last heartbeat is older than those of others: Ready is old news",)


def _not_ready(described: DescribedNode, ready: Condition) -> Fault:
    component = Component(kind=ComponentKind.HOST, id=described.name)
    words = f"Ready is {ready.status}: {ready.reason} {ready.message}".strip()
    return fault_of("node-not-ready", component, seen=ready.last_transition_time, evidence=(words,))


def _by_resources(described: DescribedNode, context: RecordedContext) -> _Judgement:
    if not described.shows_resources:
        return _Judgement()
    node = described.node
    short = list(withheld(node))
    known = _gpus_known(described)
    wanted = max(known, context.expected_gpus or 0)
    if not short and wanted and (words := short_of(node, wanted)):
        short.append(words)
    names = accelerators(node.status.capacity)
    none_left = bool(names) and not any(count(node.status.capacity, name) for name in names)
    open_questions = [f"{name} is not shown both as capacity and as allocatable" for name in unpaired(node)]
    if not short and none_left:
        open_questions.append(f"{described.name} has the device plugin's resources and none of them")
    if not short and not names and known:
        open_questions.append(f"{described.name} has {known} GPUs by its labels and none in its capacity")
    told = () if counts_whole_gpus(node) or not names else ("GPUs are shared or cut: their numbers are not compared",)
    return _Judgement(faults=(_short(described, short),) if short else (), open=tuple(open_questions), told=told)


def _short(described: DescribedNode, words: Iterable[str]) -> Fault:
    component = Component(kind=ComponentKind.HOST, id=described.name)
    return fault_of("gpu-allocatable-short", component, evidence=tuple(words))


def _distinct(words: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(words))
