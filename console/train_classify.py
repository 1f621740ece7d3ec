"""`sickbay train classify`: why a training run failed, from its files alone.

Added to the group by `console.train`. Needs neither Temporal nor a cluster. What counts as which evidence is
`sickbay.training.failures.folder_plan`'s; this module reads files with bounds and prints.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Final

import typer

from console.errors import UserError
from sickbay.training.evidence import Evidence
from sickbay.training.failures.classify import classify
from sickbay.training.failures.folder import evidence_of_folder, evidence_of_text
from sickbay.training.failures.folder_plan import FileRole, planned
from sickbay.training.verdicts import FailureVerdict

MOST_OF_A_LOG: Final = 16 << 20
"""Bytes of one log that are read, its beginning and its end: the cause stands near the end of a long one."""
MOST_OF_ALL: Final = 512 << 20
LEAST: Final = 256 << 10
"""Of each of very many logs; reading takes a second for three megabytes."""
MOST_OF_A_RECORD: Final = 64 << 20
"""Bytes of a file that is no log; what is longer is read as one that was cut."""
FILES_MOST: Final = 20_000
CUT: Final = b"\n"

EPILOG: Final = """\
In a single log a line `### rank N (nodeX)` begins a rank's part. In a folder, names tell what a file is: `POD.log` and
`rank-N.log`; `pods.json`, `nodes.json` and `events.json` (or .yaml, .txt) as kubectl prints them; torchelastic's
`error.json` and torchrun's folders (`RUN/attempt_K/N/`); flight-recorder dumps (`nccl_trace_rank_N`); faults by node in
`faults.json`; kernel logs (`NODE.dmesg`, `kernel-NODE.log`). Whatever else is there is read as a log.
"""


def register(group: typer.Typer) -> None:
    """Add the command to `sickbay train`."""
    group.command("classify", epilog=EPILOG)(classify_command)


def classify_command(
    path: Annotated[
        Path, typer.Argument(metavar="PATH", help="A log or another file of the run, or a folder of them.")
    ],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")] = False,
) -> None:
    """Say why a training run failed, from a log or a folder, without a cluster.

    It ends with 0 whatever the verdict is.
    """
    verdict = classify(_evidence(path))
    if as_json:
        print(json.dumps(_for_programs(verdict), indent=2))
    else:
        print(_for_people(verdict))


def _evidence(path: Path) -> Evidence:
    try:
        if path.is_dir():
            return _of_folder(path)
        if path.exists() and not path.is_file():
            raise UserError(f"{path}: neither a file nor a folder; name a log, or a folder of one attempt")
        file = planned([path.name])[0]
        if file.role is FileRole.LOG:
            return evidence_of_text(_read(path, MOST_OF_A_LOG).decode(errors="replace"))
        return evidence_of_folder([path.name], lambda _: _read_start(path))
    except OSError as error:
        raise UserError(f"cannot read {error.filename or path}: {error.strerror}; name a log or a folder") from error


def _of_folder(folder: Path) -> Evidence:
    names = list(_names(folder))
    if not names:
        raise UserError(f"{folder}: the folder holds no file; name one with logs, pods.json or error files")
    logs = {file.name for file in planned(names) if file.role in (FileRole.LOG, FileRole.KERNEL_LOG)}
    most = min(MOST_OF_A_LOG, max(LEAST, MOST_OF_ALL // max(len(logs), 1)))

    def read(name: str) -> bytes:
        return _read(folder / name, most) if name in logs else _read_start(folder / name)

    return evidence_of_folder(names, read)


def _names(folder: Path) -> Iterator[str]:
    """Files below the folder, but for hidden ones."""
    # Path.rglob passes over a folder that may not be read, as if it were empty.
    next(folder.iterdir(), None)
    count = 0
    for path in folder.rglob("*"):
        name = path.relative_to(folder)
        if any(part.startswith(".") for part in name.parts) or not path.is_file():
            continue
        count += 1
        if count > FILES_MOST:
            raise UserError(f"{folder}: more than {FILES_MOST} files; name the folder of one attempt")
        yield name.as_posix()


def _read(path: Path, most: int) -> bytes:
    """A log, or of a very long one its beginning and its end."""
    with path.open("rb") as file:
        size = file.seek(0, 2)
        file.seek(0)
        if size <= most:
            return file.read(most)
        head = file.read(most // 4)
        file.seek(size - (most - most // 4))
        return head + CUT + file.read(most - most // 4)


def _read_start(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(MOST_OF_A_RECORD)


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
    lines += [f"  missing   {source}" for source in verdict.missing[:8]]
    return "\n".join(map(_printable, lines))


def _printable(line: str) -> str:
    """Without what would command a terminal: the words are those of a log."""
    return "".join(letter if letter.isprintable() else " " for letter in line)
