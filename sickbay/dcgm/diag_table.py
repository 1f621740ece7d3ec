"""Reads the table of `dcgmi diag`, of DCGM 2, 3 and 4.

A test is a row with its status; below it stand, without a name, the statuses of single GPUs and the rests of texts that
were too long for the column. Version 3 lists GPUs by status (`Fail - GPU: 1`), version 4 statuses by GPU
(`GPU1: Fail`).
"""

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from sickbay.dcgm.diagnostic import Diagnostic, DiagTest, Entity, Finding, Row, Status, gpu
from sickbay.dcgm.tables import Table, read_table
from sickbay.faults import ComponentKind

_STATUS: Final = r"(?P<status>Pass|Fail|Warn|Warning|Skip|Skipped|Not run|Error)"
_BY_STATUS: Final = re.compile(rf"^{_STATUS}(?:\s*-\s*(?P<whom>All|GPUs?:\s*[\d,\s]+))?$", re.IGNORECASE)
_BY_ENTITY: Final = re.compile(rf"^(?P<kind>[A-Za-z]+)\s*(?P<number>\d{{1,4}}):\s*{_STATUS}$", re.IGNORECASE)
_NOTE: Final = re.compile(r"^(?P<kind>Warning|Error|Info)s?\b(?::?\s*GPU\s*(?P<gpu>\d{1,4}))?", re.IGNORECASE)
_METADATA: Final = "metadata"
_DEVICES: Final = "GPU Device IDs Detected"
_HEADING: Final = "Diagnostic"


class _Entry(NamedTuple):
    """A named cell, or a status below one, with all of its text."""

    section: str
    name: str
    text: str


def read_diag_table(text: str) -> Diagnostic | None:
    """What the table says; None if the text has no such table. Raises nothing, on any text."""
    table = read_table(text)
    if table is None:
        return None
    entries = list(_entries(table))
    tests = tuple(_tests(entry for entry in entries if entry.section.lower() != _METADATA))
    if not tests:
        return None
    return Diagnostic(tests=tests, gpu_count=_gpu_count(entries), troubles=tuple(_troubles(table)))


def _troubles(table: Table) -> Iterator[str]:
    if not table.headed:
        yield "the table's beginning is missing"
    if not table.closed:
        yield "the table has no closing border: later tests may be missing"


def _entries(table: Table) -> Iterator[_Entry]:
    """The rows with what was cut at the column's width put together again."""
    section = ""
    open_entry: _Entry | None = None
    for row in table.rows:
        begins = bool(row.name) or _is_status(row.value)
        if open_entry and (row.section or begins):
            yield open_entry
            open_entry = None
        if row.section:
            section = row.name
        elif begins or open_entry is None:
            open_entry = _Entry(section, row.name, row.value)
        else:
            open_entry = open_entry._replace(text=open_entry.text + row.value)
    if open_entry:
        yield open_entry


def _is_status(text: str) -> bool:
    words = text.strip()
    # A list of GPUs may be cut after a comma or amid a number; what follows then has no status of its own.
    return bool(_BY_STATUS.match(words) or _BY_ENTITY.match(words))


def _tests(entries: Iterator[_Entry]) -> Iterator[DiagTest]:
    test: DiagTest | None = None
    for entry in entries:
        note = _NOTE.match(entry.name)
        if entry.name and not note:
            if test:
                yield test
            test = None if entry.name == _HEADING and not _is_status(entry.text) else _begun(entry)
        elif note:
            test = _with_note(test or DiagTest(name=entry.section or "a test"), note, entry.text)
        elif test:
            test = test.model_copy(update={"rows": (*test.rows, *_rows(entry.text))})
    if test:
        yield test


def _begun(entry: _Entry) -> DiagTest:
    rows = _rows(entry.text)
    if len(rows) == 1 and not rows[0].entities:
        return DiagTest(name=entry.name, status=rows[0].status)
    return DiagTest(name=entry.name, rows=rows)


def _rows(text: str) -> tuple[Row, ...]:
    """The result in a cell, `unknown` if it is none that DCGM writes."""
    words = text.strip()
    if by_entity := _BY_ENTITY.match(words):
        kind = ComponentKind.GPU if by_entity["kind"].lower() == "gpu" else ComponentKind.HOST
        return (
            Row(status=_status(by_entity["status"]), entities=(Entity(kind=kind, number=int(by_entity["number"])),)),
        )
    by_status = _BY_STATUS.match(words)
    if by_status is None:
        return (Row(status=Status.UNKNOWN),)
    numbers = re.findall(r"\d{1,4}", by_status["whom"] or "")
    return (Row(status=_status(by_status["status"]), entities=tuple(gpu(int(number)) for number in numbers)),)


def _status(word: str) -> Status:
    match word.lower():
        case "error":
            return Status.FAIL
        case "warning":
            return Status.WARN
        case "skipped":
            return Status.SKIP
        case other:
            return Status.of(other)


def _with_note(test: DiagTest, note: re.Match[str], text: str) -> DiagTest:
    if note["kind"].lower() == "info":
        return test
    finding = Finding(text=" ".join(text.split()), entity=gpu(int(note["gpu"])) if note["gpu"] else None)
    status = test.status
    if note["kind"].lower() == "error":
        # An error stands in the place of a result; a warning explains one, which may have been cut off above it.
        status = Status.FAIL
    elif status is None and not test.rows:
        status = Status.WARN
    return test.model_copy(update={"status": status, "findings": (*test.findings, finding)})


def _gpu_count(entries: list[_Entry]) -> int | None:
    devices = next((entry.text for entry in entries if entry.name == _DEVICES), "")
    return len([device for device in devices.split(",") if device.strip()]) or None
