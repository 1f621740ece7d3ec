"""Pods as kubectl printed them: their objects as JSON or YAML, and the text of `kubectl describe pod`.

Used by `folder`. Each becomes a `PodRecord` with the end that `pod_states` reads. An excerpt without a name is a record
too, since a ticket often shows no more than a status.
"""

import re
from collections.abc import Iterator, Mapping
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import Any, Final

from sickbay.model import Frozen
from sickbay.training.evidence import PodEnd
from sickbay.training.failures.kubectl_text import members, objects_in, part, word, words
from sickbay.training.failures.pod_states import end_of

INDEX_LABELS: Final = (
    "batch.kubernetes.io/job-completion-index",
    "jobset.sigs.k8s.io/job-global-index",
    "training.kubeflow.org/replica-index",
)
ROLE_LABEL: Final = "training.kubeflow.org/replica-type"
GPU: Final = re.compile(r"^(?:nvidia\.com/(?:gpu|mig-.*)|amd\.com/gpu)$")
PODS_MOST: Final = 50_000
NOT_SHOWN: Final = "(reason not shown)"
"""Of a condition in a description, whose table has no column for it."""

_NAME: Final = re.compile(r"^Name:[ \t]+(?P<name>\S+)[ \t]*$", re.MULTILINE)
_FIELD: Final = re.compile(r"^(?P<indent>\s*)(?P<name>[A-Z][A-Za-z ]{0,30}):(?:\s+(?P<value>.*))?$")
_CONDITION: Final = re.compile(r"^\s+(?P<type>[A-Z]\w+)\s+(?P<status>True|False|Unknown)\s*$")
_LABEL: Final = re.compile(r"^(?:Labels:|Annotations:)?\s*(?P<key>[\w./-]+)(?:=|:\s)\s*(?P<value>\S+)\s*$")


class PodRecord(Frozen):
    """One pod, and how it ended or stands."""

    pod: str = ""
    node: str = ""
    index: int | None = None
    """Its number in its job, by the labels of its kind: the rank, where each pod runs one."""
    gpus: int = 0
    """That it asked for; 0 where the text does not tell."""
    end: PodEnd


def pods_in(text: str) -> tuple[PodRecord, ...]:
    """Every pod in some text. Raises nothing."""
    found = [pod_of(each) for each in objects_in(text) if _is_pod(each)]
    found += [pod_of(each) for each in _described(text)]
    return tuple(found[:PODS_MOST])


def pod_of(item: Mapping[str, Any]) -> PodRecord:
    """A pod by its object."""
    metadata, spec = part(item, "metadata"), part(item, "spec")
    told = {**words(metadata.get("annotations")), **words(metadata.get("labels"))}
    number = next((told[label] for label in INDEX_LABELS if told.get(label, "").isdecimal()), "")
    index = int(number[:9]) if number else None
    if index is not None and told.get(ROLE_LABEL, "").lower() == "worker":
        # A PyTorchJob's master is rank 0, and its workers are counted from 0 behind it.
        index += 1
    return PodRecord(
        pod=word(metadata.get("name")),
        node=word(spec.get("nodeName")),
        index=index,
        gpus=sum(_gpus(container) for container in members(spec, "containers")),
        end=end_of(item),
    )


def _is_pod(item: Mapping[str, Any]) -> bool:
    kind = item.get("kind")
    if kind is not None:
        return bool(kind == "Pod")
    status = part(item, "status")
    # A ticket often shows no more than a status, or one condition of it.
    shown = [*members(status, "conditions"), item]
    return "phase" in status or "containerStatuses" in status or any(_of_a_pod(each) for each in shown)


def _of_a_pod(condition: Mapping[str, Any]) -> bool:
    return condition.get("type") in ("DisruptionTarget", "PodReadyToStartContainers", "ContainersReady")


def _gpus(container: Mapping[str, Any]) -> int:
    limits = words(part(container, "resources", "limits"))
    return sum(int(count[:6]) for name, count in limits.items() if GPU.match(name) and count.isdecimal())


def _described(text: str) -> Iterator[dict[str, Any]]:
    """The pods of `kubectl describe pod`, as objects; an excerpt without its head is one pod."""
    starts = [match.start() for match in _NAME.finditer(text)]
    for start, end in zip([0, *starts], [*starts, len(text)], strict=True):
        section = text[start:end]
        if re.search(r"^[ \t]*State:[ \t]+(?:Terminated|Waiting|Running)[ \t]*$", section, re.MULTILINE) or (
            re.search(r"^Status:[ \t]+\w+[ \t]*$", section, re.MULTILINE) and _NAME.match(section)
        ):
            yield _object_of(section[:200_000])


def _object_of(section: str) -> dict[str, Any]:
    """One description as the object that it describes, as far as it does."""
    head: dict[str, str] = {}
    labels: dict[str, str] = {}
    containers: list[dict[str, Any]] = []
    conditions: list[dict[str, str]] = []
    block, last = "", ""
    state: dict[str, str] = {}
    for line in section.splitlines():
        condition = _CONDITION.match(line)
        if condition is not None:
            conditions.append({"type": condition["type"], "status": condition["status"], "reason": NOT_SHOWN})
            continue
        match = _FIELD.match(line)
        if match is None or (not match["indent"] and match["name"] in ("Labels", "Annotations")):
            label = _LABEL.match(line)
            if block == "labels" or line.startswith(("Labels:", "Annotations:")):
                block = "labels"
                if label is not None:
                    labels[label["key"]] = label["value"]
            elif last == "Message" and line.startswith("  ") and match is None:
                state["Message"] = f"{state.get('Message', '')} {line.strip()}"
            continue
        name, value = match["name"].strip(), (match["value"] or "").strip()
        last = name
        if not match["indent"] and name not in ("State", "Last State"):
            block = name
            if name not in head:
                head[name] = value
        if name in ("State", "Last State"):
            state = {"kind": value, "which": name}
            if name == "State" or not containers:
                containers.append({"State": {}, "Last State": {}})
            containers[-1][name] = state
        elif match["indent"] and state and name in ("Reason", "Exit Code", "Message", "Started", "Finished"):
            state.setdefault(name, value)
    return _as_object(head, labels, containers, conditions)


def _as_object(
    head: Mapping[str, str],
    labels: Mapping[str, str],
    containers: list[dict[str, Any]],
    conditions: list[dict[str, str]],
) -> dict[str, Any]:
    phase = head.get("Status", "")
    statuses = [{"state": _state(each["State"]), "lastState": _state(each["Last State"])} for each in containers]
    return {
        "metadata": {
            "name": head.get("Name", ""),
            "labels": dict(labels),
            # `Terminating (lasts 5m)` is no phase: the pod is being deleted.
            "deletionTimestamp": head.get("Status") if phase.startswith("Terminating") else None,
        },
        "spec": {"nodeName": head.get("Node", "").partition("/")[0].replace("<none>", "")},
        "status": {
            "phase": "" if phase.startswith("Terminating") else phase,
            "reason": head.get("Reason", ""),
            "message": head.get("Message", ""),
            "conditions": conditions,
            "containerStatuses": statuses,
        },
    }


def _state(told: Mapping[str, str]) -> dict[str, Any]:
    kind = told.get("kind", "").lower()
    if kind == "waiting":
        return {"waiting": {"reason": told.get("Reason", ""), "message": told.get("Message", "")}}
    if kind != "terminated":
        return {"running": {}} if kind == "running" else {}
    code = told.get("Exit Code", "")
    return {
        "terminated": {
            "reason": told.get("Reason", ""),
            "message": told.get("Message", ""),
            "exitCode": int(code[:6]) if code.lstrip("-").isdecimal() else None,
            "startedAt": _moment(told.get("Started", "")),
            "finishedAt": _moment(told.get("Finished", "")),
        }
    }


def _moment(text: str) -> str | None:
    try:
        moment = parsedate_to_datetime(text)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
    return (moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)).isoformat()
