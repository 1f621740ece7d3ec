"""`sickbay train classify`: why a training run failed, from its files alone.

Added to the group by `console.train`. Needs neither Temporal nor a cluster. What counts as which evidence is
`sickbay.training.failures.folder`'s; this module reads files with bounds and prints.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Final

import typer

from console.errors import UserError
from sickbay.training.evidence import Evidence
from sickbay.training.failures.classify import classify
from sickbay.training.failures.folder import NamedBytes, evidence_of_folder, evidence_of_text
from sickbay.training.verdicts import FailureVerdict

MOST_OF_A_FILE: Final = 64 << 20
"""Bytes of one file that are read: its beginning and its end, since the cause stands near the end of a long log."""
HEAD: Final = 4 << 20
FILES_MOST: Final = 4096


def register(group: typer.Typer) -> None:
    """Add the command to `sickbay train`."""
    group.command("classify")(classify_command)


def classify_command(
    path: Annotated[Path, typer.Argument(metavar="PATH", help="A log, or a folder of them; see below.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")] = False,
) -> None:
    """Say why a training run failed, from a log or a folder, without a cluster.

    In a single log a line `### rank N (nodeX)` begins a rank's part. In a folder, names tell what a file is: pod logs
    (`POD.log`, `rank-N.log`), `pods.json` and `nodes.json` as kubectl prints them, `events.txt`, torchelastic's
    `error.json`, flight-recorder dumps (`nccl_trace_rank_N`), and `faults.json` with faults by node.
    """
    verdict = classify(_evidence(path))
    if as_json:
        print(json.dumps(_for_programs(verdict), indent=2))
    else:
        print(_for_people(verdict))


def _evidence(path: Path) -> Evidence:
    try:
        if path.is_dir():
            files = list(_files(path))
            if not files:
                raise UserError(f"{path}: the folder holds no file; name one with logs, pods.json or error files")
            return evidence_of_folder(files)
        return evidence_of_text(_read(path).decode(errors="replace"))
    except OSError as error:
        raise UserError(f"cannot read {error.filename or path}: {error.strerror}; name a log or a folder") from error


def _files(folder: Path) -> Iterator[NamedBytes]:
    found = sorted(path for path in folder.rglob("*") if path.is_file() and not path.name.startswith("."))
    if len(found) > FILES_MOST:
        raise UserError(
            f"{folder}: {len(found)} files, and at most {FILES_MOST} are read; name the folder of one attempt"
        )
    for path in found:
        yield NamedBytes(name=path.relative_to(folder).as_posix(), data=_read(path))


def _read(path: Path) -> bytes:
    """A file, or of a very long one its beginning and its end."""
    size = path.stat().st_size
    with path.open("rb") as file:
        if size <= MOST_OF_A_FILE:
            return file.read()
        head = file.read(HEAD)
        file.seek(size - (MOST_OF_A_FILE - HEAD))
        return head + b"\n" + file.read()


def _for_programs(verdict: FailureVerdict) -> dict[str, object]:
    return {
        "class": verdict.failure_class,
        "action": verdict.action,
        "rule": verdict.rule,
        "reason": verdict.reason,
        "culprits": list(verdict.culprits),
        "evidence": list(verdict.evidence),
    }


def _for_people(verdict: FailureVerdict) -> str:
    lines = [
        f"{verdict.failure_class}: {verdict.reason}",
        f"  action    {verdict.action}",
        f"  rule      {verdict.rule} (rules {verdict.version})",
        f"  culprits  {', '.join(verdict.culprits) or 'nobody can be named'}",
    ]
    lines += [f"  evidence  {line}" for line in verdict.evidence]
    return "\n".join(lines)
