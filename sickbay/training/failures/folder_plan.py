"""What each file of a folder is, by its name: the folder format of `sickbay train classify`.

Used by `folder`, and by the console, which reads the files in this order. One folder holds one attempt:

    pods.json, pods.yaml           `kubectl get pods -o json` (or yaml); also `pods.txt`, of `kubectl describe pod`
    nodes.*, events.*              the same of nodes and events; `workloads.*` of Kueue
    POD.log                        a pod's log, where pods.* names the pod
    rank-N.log, rank_N/*.log       one rank's log
    *.log, *.txt, *.out, *.err     a log of many; a line `### rank N (nodeX)` begins a rank's part
    rank-N.stacks, *.txt           stacks by py-spy or faulthandler, wherever they stand in a log
    error.json, N/error.json       torchelastic's error files; the folder of digits is the rank
    RUN/attempt_K/N/...            torchrun's own folders: error.json, stdout.log, stderr.log of local rank N; the
                                   newest attempt of each run counts, and several runs are several nodes or pods
    nccl_trace_rank_N, *_rank_N    flight-recorder dumps, pickle or JSON; pickles are never unpickled
    faults.json                    faults by node, as the node annotation has them: {"node-a": [...]}
    NODE.dmesg, kernel-NODE.log    kernel logs of nodes

Whatever else is there is read as a log.
"""

import re
from collections.abc import Iterable
from enum import IntEnum
from typing import Final

from sickbay.model import Frozen


class FileRole(IntEnum):
    """What a file is; in this order they are read."""

    PODS = 0
    OBJECTS = 1
    """Of any kind: nodes, events, and whatever a file of JSON or YAML holds."""
    FAULTS = 2
    KERNEL_LOG = 3
    ERROR_FILE = 4
    DUMP = 5
    LOG = 6


class PlannedFile(Frozen):
    """One file, and whose it is, as far as its name tells."""

    name: str
    role: FileRole
    rank: int | None = None
    node: str = ""
    """Of a kernel log."""
    stem: str = ""
    """Its name without folder and ending: a pod's, perhaps."""
    run: str = ""
    """Of a file in torchrun's own folders: what stands before `attempt_K`."""


_RANK: Final = re.compile(r"(?:^|[/_.-])rank[-_.]?(?P<rank>\d{1,7})(?=[._/-]|$)")
_DUMP: Final = re.compile(r"(?:trace|flight|dump)[\w.-]*?rank[-_.]?\d{1,7}(?:\.(?:json|pkl|pickle|bin))?$")
_BARE_RANK: Final = re.compile(r"(?:^|/)[\w.-]*rank_?\d{1,7}(?:\.(?:json|pkl|pickle))?$")
_ERROR_FILE: Final = re.compile(r"(?:^|/)(?:(?P<rank>\d{1,7})/)?[\w.-]*error[\w.-]*\.json$")
_ELASTIC: Final = re.compile(r"(?P<run>.*?)/?attempt_(?P<attempt>\d{1,6})/(?P<local>\d{1,6})/[^/]+$")
_KERNEL: Final = re.compile(
    r"(?:^|/)(?:(?P<node>[\w.-]+)\.(?:dmesg|kern\.log)|(?:kernel|dmesg|kern)[-_](?P<named>[\w.-]+?)\.(?:log|txt)"
    r"|(?P<folder>[\w.-]+)/(?:dmesg|kern|kernel)(?:\.log|\.txt)?)$"
)
_OBJECTS: Final = re.compile(
    r"^(?:nodes?|events?|workloads?|describe|kubectl)\b.*\.(?:json|ya?ml|txt|log)$|\.(?:json|ya?ml)$"
)
_PODS: Final = re.compile(r"^(?:pods?|describe[-_]?pods?)\.(?:json|ya?ml|txt)$")


def planned(names: Iterable[str]) -> tuple[PlannedFile, ...]:
    """The files that count, in the order in which they are to be read."""
    names = sorted(set(names))
    newest: dict[str, int] = {}
    for name in names:
        if (match := _ELASTIC.match(name)) is not None:
            newest[match["run"]] = max(newest.get(match["run"], 0), int(match["attempt"]))
    files = [file for name in names if (file := _file(name, newest)) is not None]
    return tuple(sorted(files, key=lambda file: (file.role, file.name)))


def _file(name: str, newest: dict[str, int]) -> PlannedFile | None:
    base = name.rpartition("/")[2]
    stem = base.rpartition(".")[0] or base
    rank = _rank_in(base) if _rank_in(base) is not None else _rank_in(name)
    if (elastic := _ELASTIC.match(name)) is not None:
        if int(elastic["attempt"]) < newest[elastic["run"]]:
            return None
        # The folder is of a local rank, which is the rank itself where there is one run.
        local = int(elastic["local"]) if len(newest) == 1 else None
        role = FileRole.ERROR_FILE if base == "error.json" else FileRole.LOG
        return PlannedFile(name=name, role=role, rank=local, run=f"{elastic['run']}/{elastic['local']}")
    if _PODS.match(base):
        return PlannedFile(name=name, role=FileRole.PODS)
    if base == "faults.json":
        return PlannedFile(name=name, role=FileRole.FAULTS)
    if (kernel := _KERNEL.search(name)) is not None:
        return PlannedFile(
            name=name, role=FileRole.KERNEL_LOG, node=kernel["node"] or kernel["named"] or kernel["folder"]
        )
    if (error := _ERROR_FILE.search(name)) is not None:
        return PlannedFile(name=name, role=FileRole.ERROR_FILE, rank=int(error["rank"]) if error["rank"] else rank)
    if _DUMP.search(name) or _BARE_RANK.search(name):
        return PlannedFile(name=name, role=FileRole.DUMP, rank=rank, stem=stem)
    if _OBJECTS.search(base):
        return PlannedFile(name=name, role=FileRole.OBJECTS)
    return PlannedFile(name=name, role=FileRole.LOG, rank=rank, stem=stem)


def _rank_in(name: str) -> int | None:
    match = _RANK.search(name)
    return int(match["rank"]) if match is not None else None
