"""A folder, or one log, as evidence for an offline classification.

Called by `sickbay train classify`, which reads the files. What a file is, its name tells:

    *.log, *.txt, *.out, *.err     a log; `rank-N` or `rank_N` in the name, or a pod of pods.json, says whose
    pods.json                      `kubectl get pods -o json`
    nodes.json                     `kubectl get nodes -o json`
    events.json, events.txt        `kubectl get events`
    error.json, */error.json       torchelastic's error files; a folder of digits above them is the rank
    *nccl_trace_rank_N*            flight-recorder dumps, pickle or JSON, never unpickled
    faults.json                    faults by node: {"node-a": [...]}, as the node annotation has them

Pure: bytes in, evidence out. Files that are none of these are read as logs.
"""

import json
import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, Final

from pydantic import ValidationError

from sickbay.faults import Fault
from sickbay.kube_objects import Node
from sickbay.model import Frozen
from sickbay.training.evidence import CollectiveEntry, Evidence, NodeEvidence, RankEvidence, Sign, Stack
from sickbay.training.failures import collectives, error_files, flight_recorder, node_checks, node_states, pod_states
from sickbay.training.failures.log_text import cluster_signs, evidence_of_log, rank_with_log

_COMMENTS: Final = re.compile(r"\A(?:# [^\n]*(?:\n|\Z))+")
_RANK_IN_NAME: Final = re.compile(r"(?:^|[/_.-])rank[-_.]?(?P<rank>\d{1,6})(?:[._-]|$)")
_DUMP: Final = re.compile(r"(?:nccl_trace|flight|fr_trace)[\w.]*?rank_?(?P<rank>\d{1,6})")
_RANK_FOLDER: Final = re.compile(r"(?:^|/)(?P<rank>\d{1,6})/error\.json$")
_INDEX_LABELS: Final = (
    "batch.kubernetes.io/job-completion-index",
    "training.kubeflow.org/replica-index",
    "jobset.sigs.k8s.io/job-global-index",
)


class NamedBytes(Frozen):
    """One file, by its path inside the folder."""

    name: str
    data: bytes


def evidence_of_text(text: str) -> Evidence:
    """A single log, with whatever records stand in it. Comments at its head (`# ...`) are people's, and no evidence."""
    text = _COMMENTS.sub("", text)
    evidence = evidence_of_log(text)
    recorded = error_files.errors_in(text)
    ranks = _joined(evidence.ranks, recorded)
    entries = collectives.collectives_in(text, ranks)
    return evidence.model_copy(
        update={
            "ranks": ranks,
            "collectives": entries,
            "cluster_signs": (*evidence.cluster_signs, *node_checks.check_signs(text)),
        }
    )


def evidence_of_folder(files: Iterable[NamedBytes]) -> Evidence:
    """Many files of one attempt."""
    files = sorted(files, key=lambda file: file.name)
    pods = _pods(files)
    ranks: list[RankEvidence] = list(pods.values())
    signs: list[Sign] = []
    entries: list[CollectiveEntry] = []
    stepped, last_step = False, None
    stacks: list[Stack] = []
    for file in files:
        name = file.name.rpartition("/")[2]
        if name in ("pods.json", "nodes.json", "faults.json"):
            continue
        if (dump := _DUMP.search(file.name)) is not None:
            entries += flight_recorder.of_dump(file.data, int(dump["rank"])) or ()
        elif name.startswith("events."):
            signs += cluster_signs(file.data.decode(errors="replace").splitlines())
        elif name == "error.json":
            ranks = list(_joined(ranks, _error_file(file)))
        else:
            told = _log(file, pods)
            stepped, stacks = stepped or bool(told.stepped), [*stacks, *told.stacks]
            last_step = max((step for step in (last_step, told.last_step) if step is not None), default=None)
            signs += told.cluster_signs
            entries += told.collectives
            ranks = list(_joined(ranks, told.ranks))
    return Evidence(
        ranks=tuple(ranks),
        nodes=_nodes(files),
        cluster_signs=tuple(signs),
        collectives=tuple(entries) or collectives.of_watchdogs(ranks),
        stacks=tuple(stacks),
        stepped=stepped,
        last_step=last_step,
    )


def _log(file: NamedBytes, pods: Mapping[str, RankEvidence]) -> Evidence:
    """A log of one rank where its name tells whose it is, else as a log of many."""
    stem = file.name.rpartition("/")[2].rpartition(".")[0]
    match = _RANK_IN_NAME.search(file.name)
    base = pods.get(stem) or (RankEvidence(rank=int(match["rank"])) if match is not None else None)
    if base is None:
        return evidence_of_text(file.data.decode(errors="replace"))
    rank = rank_with_log(base, file.data)
    stepped = rank.last_step is not None and rank.last_step > 0
    return Evidence(ranks=(rank,), stepped=stepped, last_step=rank.last_step)


def _error_file(file: NamedBytes) -> tuple[RankEvidence, ...]:
    record = error_files.error_of(file.data.decode(errors="replace"))
    match = _RANK_FOLDER.search(file.name)
    if record is None:
        return ()
    code = error_files.normal(record.exit_code)
    return (RankEvidence(rank=int(match["rank"]) if match else None, error=record, exit_code=code),)


def _pods(files: Iterable[NamedBytes]) -> dict[str, RankEvidence]:
    found: dict[str, RankEvidence] = {}
    for item in _items(files, "pods.json"):
        metadata = item.get("metadata") if isinstance(item.get("metadata"), Mapping) else {}
        spec = item.get("spec") if isinstance(item.get("spec"), Mapping) else {}
        assert isinstance(metadata, Mapping)
        assert isinstance(spec, Mapping)
        name = str(metadata.get("name", ""))
        words = {**_words(metadata.get("labels")), **_words(metadata.get("annotations"))}
        index = next((words[label] for label in _INDEX_LABELS if words.get(label, "").isdecimal()), "")
        end = pod_states.end_of(item)
        found[name] = RankEvidence(
            rank=int(index) if index else None,
            node=str(spec.get("nodeName", "")),
            pod=name,
            end=end,
            exit_code=end.exit_code,
            exited_at=end.finished_at,
        )
    return found


def _nodes(files: list[NamedBytes]) -> tuple[NodeEvidence, ...]:
    nodes: dict[str, NodeEvidence] = {}
    for item in _items(files, "nodes.json"):
        try:
            node = Node.model_validate(item)
        except ValidationError:
            continue
        nodes[node.metadata.name] = node_states.evidence_of(node, datetime.now(UTC)).model_copy(update={"faults": ()})
    for name, faults in _faults(files).items():
        known = nodes.get(name, NodeEvidence(node=name))
        nodes[name] = known.model_copy(update={"faults": faults})
    return tuple(nodes[name] for name in sorted(nodes))


def _faults(files: Iterable[NamedBytes]) -> dict[str, tuple[Fault, ...]]:
    found: dict[str, tuple[Fault, ...]] = {}
    for file in files:
        if file.name.rpartition("/")[2] != "faults.json":
            continue
        content = _json(file.data)
        for name, faults in content.items() if isinstance(content, Mapping) else ():
            try:
                found[str(name)] = tuple(Fault.model_validate(fault) for fault in faults)
            except (ValidationError, TypeError):
                continue
    return found


def _items(files: Iterable[NamedBytes], name: str) -> list[Mapping[str, Any]]:
    """The objects of a kubectl list, or the one object."""
    found: list[Mapping[str, Any]] = []
    for file in files:
        content = _json(file.data) if file.name.rpartition("/")[2] == name else None
        if not isinstance(content, Mapping):
            continue
        items = content.get("items")
        found += [item for item in (items if isinstance(items, list) else [content]) if isinstance(item, Mapping)]
    return found


def _json(data: bytes) -> Any:
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return None


def _words(value: Any) -> dict[str, str]:
    return {str(key): str(item) for key, item in value.items()} if isinstance(value, Mapping) else {}


def _joined(known: Iterable[RankEvidence], more: Iterable[RankEvidence]) -> tuple[RankEvidence, ...]:
    """Evidence of one rank, or of one pod, as one."""
    joined: dict[object, RankEvidence] = {}
    for number, each in enumerate((*known, *more)):
        key: object = ("pod", each.pod) if each.pod else ("rank", each.rank) if each.rank is not None else number
        before = joined.get(key)
        joined[key] = each if before is None else _one(before, each)
    return tuple(joined.values())


def _one(before: RankEvidence, more: RankEvidence) -> RankEvidence:
    return before.model_copy(
        update={
            "node": before.node or more.node,
            "exit_code": before.exit_code if before.exit_code is not None else more.exit_code,
            "end": before.end or more.end,
            "error": before.error or more.error,
            "log": more.log if more.signs else before.log,
            "signs": before.signs + tuple(sign for sign in more.signs if sign not in before.signs),
            "last_step": more.last_step if more.last_step is not None else before.last_step,
        }
    )
