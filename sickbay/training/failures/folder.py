"""A folder, or one log, as evidence for an offline classification.

Called by `sickbay train classify`, which reads the files; `folder_plan` says what each file is. Pure: bytes in,
evidence out, one file in memory at a time. What cannot be read is told in `missing`, and is never taken for silence.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from pydantic import ValidationError

from sickbay.faults import Fault, merge_faults
from sickbay.kernel_log import scan
from sickbay.training.evidence import (
    CollectiveEntry,
    Ending,
    Evidence,
    LogState,
    NodeEvidence,
    RankEvidence,
    Sign,
    Source,
    Stack,
)
from sickbay.training.failures import cluster_texts, collectives, error_files, flight_recorder, node_checks, node_states
from sickbay.training.failures.folder_plan import FileRole, PlannedFile, planned
from sickbay.training.failures.log_text import evidence_of_log, rank_with_log
from sickbay.training.failures.pod_texts import PodRecord, pods_in
from sickbay.training.failures.rank_joining import joined, placed
from sickbay.training.failures.ras import ranks_of_ras
from sickbay.training.failures.single_log import without_comments, without_stale
from sickbay.training.failures.stacks import stacks_in

MISSING_MOST: Final = 32
STACKS_MOST: Final = 4096


def evidence_of_text(text: str) -> Evidence:
    """A single log, with whatever records stand in it. Comments at its head (`# ...`) are people's, and no evidence."""
    text = without_comments(text)
    evidence = evidence_of_log(text)
    pods = pods_in(text)
    known = [_of_pod(pod) for pod in pods if pod.pod]
    ranks = joined([*known, *without_stale(evidence.ranks, pods)], error_files.errors_in(text), ranks_of_ras(text))
    return evidence.model_copy(
        update={
            "ranks": ranks,
            "collectives": collectives.collectives_in(text, ranks),
            "cluster_signs": (*evidence.cluster_signs, *node_checks.check_signs(text)),
        }
    )


def evidence_of_folder(names: Iterable[str], read: Callable[[str], bytes]) -> Evidence:
    """Many files of one attempt, by their names inside the folder. Raises what `read` raises."""
    assembly = _Assembly()
    for file in planned(names):
        assembly.take(file, read(file.name))
    return assembly.evidence()


class _Assembly:
    """What the files so far come to."""

    def __init__(self) -> None:
        self._pods: dict[str, PodRecord] = {}
        self._ranks: list[RankEvidence] = []
        self._nodes: dict[str, NodeEvidence] = {}
        self._signs: list[Sign] = []
        self._entries: list[CollectiveEntry] = []
        self._stacks: list[Stack] = []
        self._missing: list[str] = []
        self._logs: set[str] = set()
        self._stepped: bool | None = None
        self._last_step: int | None = None

    def take(self, file: PlannedFile, data: bytes) -> None:
        """One file."""
        match file.role:
            case FileRole.PODS | FileRole.OBJECTS:
                self._objects(file, data.decode(errors="replace"))
            case FileRole.FAULTS:
                self._faults(file, data)
            case FileRole.KERNEL_LOG:
                self._add_faults(file.node, scan(data.splitlines()))
            case FileRole.ERROR_FILE:
                self._error_file(file, data)
            case FileRole.DUMP:
                self._dump(file, data)
            case FileRole.LOG:
                self._log(file, data)

    def evidence(self) -> Evidence:
        """All of it, ranks put together and onto their nodes."""
        ranks = placed(joined([_of_pod(pod) for pod in self._pods.values()], self._ranks), self._pods.values())
        unread = [name for name in sorted(self._pods) if name not in self._logs]
        if self._logs or self._pods:
            self._missing += [f"log of pod {name}: not in the folder" for name in unread]
        if len(self._missing) > MISSING_MOST:
            more = len(self._missing) - MISSING_MOST
            self._missing = [*self._missing[:MISSING_MOST], f"and {more} more"]
        ours = {rank.node for rank in ranks if rank.node}
        return Evidence(
            ending=self._ending(),
            ended_at=self._ended_at(),
            ranks=ranks,
            nodes=tuple(node for name, node in sorted(self._nodes.items()) if not ours or name in ours),
            # An event of a node that took no part says nothing of this attempt.
            cluster_signs=tuple(
                sign for sign in self._signs if not ours or sign.details.get("node", "") in {"", *ours}
            ),
            collectives=tuple(self._entries) or collectives.of_watchdogs(ranks),
            stacks=tuple(self._stacks[:STACKS_MOST]),
            stepped=self._stepped,
            last_step=self._last_step,
            missing=tuple(self._missing),
        )

    def _ended_at(self) -> datetime | None:
        return max((pod.end.finished_at for pod in self._pods.values() if pod.end.finished_at), default=None)

    def _ending(self) -> Ending:
        ends = [pod.end for pod in self._pods.values()]
        if ends and all(end.phase == "Succeeded" for end in ends):
            return Ending.ENDED
        return Ending.FAILED if any(end.phase == "Failed" for end in ends) else Ending.UNKNOWN

    def _objects(self, file: PlannedFile, text: str) -> None:
        pods = pods_in(text)
        for number, pod in enumerate(pods):
            self._pods[pod.pod or f"pod {len(self._pods) + number}"] = pod
        nodes = cluster_texts.nodes_in(text, self._ended_at())
        self._nodes |= {node.node: node for node in nodes}
        signs = cluster_texts.events_in(text) if not pods else ()
        self._signs += signs
        if not (pods or nodes or signs) and text.strip() and file.role is FileRole.PODS:
            self._missing.append(f"{file.name}: no pod in it can be read")

    def _faults(self, file: PlannedFile, data: bytes) -> None:
        content = _json(data)
        if not isinstance(content, Mapping):
            self._missing.append(f"{file.name}: no JSON object of faults by node")
            return
        for name, faults in content.items():
            try:
                self._add_faults(str(name), tuple(Fault.model_validate(fault) for fault in faults))
            except (ValidationError, TypeError):
                self._missing.append(f"{file.name}: faults of {str(name)[:100]} cannot be read")

    def _add_faults(self, name: str, faults: Sequence[Fault]) -> None:
        """Faults of a node around the end, where it is known when that was."""
        ended_at = self._ended_at()
        counted = [fault for fault in faults if ended_at is None or node_states.near(fault, ended_at)]
        known = self._nodes.get(name, NodeEvidence(node=name))
        self._nodes[name] = known.model_copy(update={"faults": merge_faults(known.faults, counted)})

    def _error_file(self, file: PlannedFile, data: bytes) -> None:
        record = error_files.error_of(data.decode(errors="replace"))
        if record is None:
            self._missing.append(f"{file.name}: empty, or no error record")
            return
        code = error_files.normal(record.exit_code)
        rank = RankEvidence(rank=file.rank, pod=_whose(file, self._pods), error=record, exit_code=code)
        self._ranks.append(rank)

    def _dump(self, file: PlannedFile, data: bytes) -> None:
        if file.rank is None:
            return
        entries = flight_recorder.of_dump(data, file.rank)
        if entries is not None:
            self._entries += entries
        elif data[:1] in (b"\x80", b"{") or file.name.endswith((".json", ".pkl", ".pickle")):
            self._missing.append(f"{file.name}: a flight-recorder dump that cannot be read")
        else:
            self._log(file, data)

    def _log(self, file: PlannedFile, data: bytes) -> None:
        text = data.decode(errors="replace")
        pod = self._pods.get(file.stem)
        if pod is not None or file.rank is not None or file.run:
            self._logs.add(file.stem)
            told = self._log_of_one(file, pod, text, data)
        else:
            told = evidence_of_text(text)
        self._ranks += told.ranks
        self._stacks += told.stacks
        self._signs += told.cluster_signs
        self._entries += [entry for entry in told.collectives if not _by_watchdog(told)]
        self._stepped = bool(self._stepped) or bool(told.stepped)
        self._last_step = max((each for each in (self._last_step, told.last_step) if each is not None), default=None)

    def _log_of_one(self, file: PlannedFile, pod: PodRecord | None, text: str, data: bytes) -> Evidence:
        """A log of one rank, or of one pod; a pod whose ranks prefix their lines is told apart."""
        told = evidence_of_text(text)
        base = _of_pod(pod) if pod is not None else RankEvidence(rank=file.rank, pod=_whose(file, self._pods))
        own = {rank.rank for rank in told.ranks if rank.rank is not None}
        if pod is not None and len(own) > 1:
            apart = [
                rank.model_copy(update={"node": rank.node or base.node}) for rank in told.ranks if rank.rank is not None
            ]
            whole = [
                rank.model_copy(update={"pod": base.pod, "node": base.node}) for rank in told.ranks if rank.rank is None
            ]
            return told.model_copy(update={"ranks": (*whole, *apart)})
        rank = rank_with_log(base, data)
        recorded = [each for each in error_files.errors_in(text) if each.error is not None or each.signs]
        if base.error is None and len(recorded) == 1:
            rank = rank.model_copy(update={"error": recorded[0].error})
        stacks = stacks_in(text, file.rank if pod is None else pod.index, base.node)
        return told.model_copy(update={"ranks": (rank,), "stacks": stacks})


def _of_pod(pod: PodRecord) -> RankEvidence:
    return RankEvidence(
        rank=pod.index,
        node=pod.node,
        pod=pod.pod,
        end=pod.end,
        exit_code=pod.end.exit_code,
        exited_at=pod.end.finished_at,
        log=LogState.UNAVAILABLE,
    )


def _by_watchdog(told: Evidence) -> bool:
    """Whether its collectives come from its ranks' own signs, which are asked again when all ranks are there."""
    return any(
        sign.code.startswith("watchdog") and sign.source is Source.LOG for rank in told.ranks for sign in rank.signs
    )


def _whose(file: PlannedFile, pods: Mapping[str, PodRecord]) -> str:
    """The pod that a file in torchrun's folders is of; the folder itself where none of its parts names a pod."""
    if file.rank is not None:
        return ""
    return next((part for part in file.name.split("/") if part in pods), file.run)


def _json(data: bytes) -> Any:
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return None
