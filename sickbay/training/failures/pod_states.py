"""How Kubernetes says that pods ended, from their objects (facts: training, 2.5).

Called by `activities.job_evidence` with live pods, and by `folder` with what kubectl printed. A condition counts only
with the end it announces: DisruptionTarget may be stale on a pod that goes on running.
"""

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any, Final

from sickbay.training.evidence import LINE_LENGTH, PodEnd, Sign, Source
from sickbay.training.failures.patterns import found_in

TERMINAL: Final = ("Failed", "Succeeded")
DISRUPTIONS: Final = ("DisruptionTarget", "AlphaNoCompatGuaranteeDisruptionTarget")
"""Types of the condition that announces a disruption: since Kubernetes 1.26, and the one of 1.25 (KEP-3329)."""


def end_of(pod: Mapping[str, Any]) -> PodEnd:
    """How a pod ended, or stands, by its object."""
    status = _part(pod, "status")
    container = _first_telling(status)
    state = _part(container, "state")
    terminated, waiting = _part(state, "terminated"), _part(state, "waiting")
    if not terminated and waiting:
        # A container that crashes again and again shows its last end there.
        terminated = _part(_part(container, "lastState"), "terminated")
    code = terminated.get("exitCode")
    return PodEnd(
        phase=_text(status.get("phase")),
        reason=_text(status.get("reason")),
        message=_text(status.get("message") or terminated.get("message") or waiting.get("message")),
        exit_code=code if isinstance(code, int) and not isinstance(code, bool) and terminated else None,
        container_reason=_text(terminated.get("reason") or waiting.get("reason")),
        conditions=dict(_conditions(status)),
        deleting=bool(_part(pod, "metadata").get("deletionTimestamp")),
        started_at=_time(terminated.get("startedAt")),
        finished_at=_time(terminated.get("finishedAt")),
    )


def state_signs(end: PodEnd) -> tuple[Sign, ...]:
    """What an end state says, in the words of the patterns."""
    lines = [f"{end.reason}: {end.message}", f"container {end.container_reason}: {end.message}"]
    # A container's own last words, as the kubelet keeps them.
    lines += end.message.splitlines()[1:]
    over = end.phase in TERMINAL or end.deleting
    for name in DISRUPTIONS:
        if (disrupted := end.conditions.get(name)) is not None and over:
            lines.append(f"{name}: {disrupted}")
    signs: list[Sign] = []
    for line in lines:
        for code, details in found_in(line):
            if not any(sign.code == code for sign in signs):
                signs.append(Sign(code=code, source=Source.POD, line=line[:LINE_LENGTH], details=details))
    return tuple(signs)


def _first_telling(status: Mapping[str, Any]) -> Mapping[str, Any]:
    """The container that failed, else one that ended, else the first."""
    containers = [each for each in status.get("containerStatuses") or () if isinstance(each, Mapping)]
    containers += [each for each in status.get("initContainerStatuses") or () if isinstance(each, Mapping)]

    def weight(container: Mapping[str, Any]) -> int:
        terminated = _part(_part(container, "state"), "terminated")
        if terminated.get("reason") == "OOMKilled":
            return 0
        if terminated.get("exitCode"):
            return 1
        if _part(_part(container, "state"), "waiting"):
            return 2
        return 3 if terminated else 4

    return min(containers, key=weight, default={})


def _conditions(status: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for condition in status.get("conditions") or ():
        if isinstance(condition, Mapping) and condition.get("status") == "True" and condition.get("reason"):
            words = f"{condition['reason']}: {condition.get('message', '')}".rstrip(": ")
            yield _text(condition.get("type")), words[:LINE_LENGTH]


def _part(value: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    part = value.get(name)
    return part if isinstance(part, Mapping) else {}


def _text(value: Any) -> str:
    return str(value)[:LINE_LENGTH] if value is not None else ""


def _time(value: Any) -> datetime | None:
    if isinstance(value, datetime):
        return value
    try:
        found = datetime.fromisoformat(str(value))
    except ValueError:
        return None
    # A kubelet that knows nothing writes the year 1.
    return found if found.tzinfo is not None and found.year > 1 else None
