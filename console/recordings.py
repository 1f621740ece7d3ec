"""Recorded outputs given on the command line, `--from KIND[:EXIT]=FILE`: read, and judged together.

Called by `console.check`. Whatever is wrong with a word or a file is one clear line; what is wrong with the contents is
a judgement, and the readers' affair.
"""

import os
import stat
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO, Final

from console.errors import UserError
from sickbay.checks import CheckReport
from sickbay.recorded.context import context_of
from sickbay.recorded.kinds import KINDS
from sickbay.recorded.model import Recorded, RecordedContext, RecordedKind

STANDARD_INPUT: Final = "-"
LARGEST: Final = 64 << 20
"""Bytes of a recording; the largest real ones, with a page of metrics or an XML of eight GPUs, have less than one."""
_HIGHEST_EXIT: Final = 255
_SIGNS: Final = 0.05
"""Share of characters that are none of a text's, from which on it is binary."""


def judge_recordings(words: Sequence[str]) -> tuple[CheckReport, ...]:
    """A report of each recording, in the order given. Raises UserError."""
    if sum(word.partition("=")[2] == STANDARD_INPUT for word in words) > 1:
        raise UserError("--from: standard input (-) can be read once; give the other recordings as files")
    recordings = [_recording(word) for word in words]
    context = context_of(recordings)
    return tuple(_report(recorded, _name(recorded, recordings), context) for recorded in recordings)


def _recording(word: str) -> Recorded:
    head, given, file = word.partition("=")
    name, coded, code = head.partition(":")
    if not given or not file:
        raise UserError(f"--from {word}: write KIND=FILE, for example nvidia-smi=gpu.txt")
    if name not in list(RecordedKind):
        raise UserError(f"--from {word}: no kind is called {name!r}; there are {', '.join(RecordedKind)}")
    if coded and not (code.isdecimal() and int(code) <= _HIGHEST_EXIT):
        raise UserError(f"--from {word}: {code!r} is no exit code; write a number from 0 to {_HIGHEST_EXIT}")
    return Recorded(kind=RecordedKind(name), text=_text(file), exit_code=int(code) if coded else None, path=file)


def _text(file: str) -> str:
    try:
        data = _read(file)
    except OSError as error:
        raise UserError(f"--from: cannot read {_called(file)}: {error.strerror or error}") from error
    if len(data) > LARGEST:
        raise UserError(f"--from: {_called(file)} is larger than {LARGEST >> 20} MiB, which no such output is")
    text = data.decode("utf-8", errors="replace")
    if text.count("\0") + text.count("\ufffd") > _SIGNS * len(text) or "\0" in text:
        raise UserError(f"--from: {_called(file)} is binary; give the text that the command printed")
    return text


def _read(file: str) -> bytes:
    if file == STANDARD_INPUT:
        if sys.stdin.isatty():
            raise UserError("--from: standard input is the keyboard; pipe the output in, or name a file")
        return _up_to_the_limit(sys.stdin.buffer)
    if stat.S_ISCHR(os.stat(file).st_mode):
        raise UserError(f"--from: {file} is a device and never ends; name a file")
    with Path(file).open("rb") as opened:
        return _up_to_the_limit(opened)


def _up_to_the_limit(stream: BinaryIO) -> bytes:
    return stream.read(LARGEST + 1)


def _called(file: str) -> str:
    return "standard input" if file == STANDARD_INPUT else file


def _name(recorded: Recorded, recordings: Sequence[Recorded]) -> str:
    """The kind, and the file where several have that kind: its name alone where that is enough to tell them apart."""
    of_kind = [other.path for other in recordings if other.kind is recorded.kind]
    if len(of_kind) == 1:
        return recorded.kind.value
    names = [Path(path).name for path in of_kind]
    short = Path(recorded.path).name
    return f"{recorded.kind} {short if names.count(short) == 1 else recorded.path}"


def _report(recorded: Recorded, name: str, context: RecordedContext) -> CheckReport:
    about = KINDS[recorded.kind]
    began = time.perf_counter()
    outcome = about.judge(recorded, context)
    return CheckReport(
        name=name,
        layer=about.layer,
        result=outcome.result,
        why=outcome.why,
        seconds=time.perf_counter() - began,
        at=datetime.now(UTC),
        faults=outcome.faults,
    )
