"""What `sickbay check` prints: a table of checks and the words of their faults, the same as JSON, and explanations."""

import json
from collections.abc import Iterable, Iterator
from datetime import timedelta
from itertools import zip_longest
from textwrap import wrap
from typing import Final

from console.fault_text import faults_as_json, faults_as_text, printable
from sickbay.checks import CheckAbout, CheckReport, CheckResult
from sickbay.faults import merge_faults
from sickbay.recorded.kinds import KindAbout

_WIDTH: Final = 100
_COLUMNS: Final = (("check", 22), ("layer", 12), ("result", 14), ("seconds", 7))
_REST: Final = _WIDTH - sum(width + 2 for _, width in _COLUMNS)
_FAULTS_NAMED: Final = 8
"""In a row; all of them are told below the table."""


def as_json(result: CheckResult, reports: Iterable[CheckReport]) -> str:
    """All that was found, as one document."""
    checks = [
        {
            "name": report.name,
            "layer": report.layer,
            "result": report.result,
            "why": report.why,
            "seconds": round(report.seconds, 3),
            "faults": faults_as_json(report.faults),
        }
        for report in reports
    ]
    return json.dumps({"result": result, "checks": checks}, indent=2)


def as_text(result: CheckResult, reports: tuple[CheckReport, ...]) -> Iterator[str]:
    """A row a check, then the words of each fault, then the result."""
    yield from _row(*(title for title, _ in _COLUMNS), "what it says")
    for report in reports:
        yield from _row(report.name, report.layer, report.result, f"{report.seconds:.1f}", _words(report))
    yield from faults_as_text(merge_faults((), (fault for report in reports for fault in report.faults)))
    yield ""
    yield f"result    {result}"
    if result is CheckResult.UNKNOWN and not any(report.result is CheckResult.UNKNOWN for report in reports):
        yield "          since no check that applies has called this machine healthy"


def explain_check(about: CheckAbout) -> Iterator[str]:
    """What a check of this machine looks at, who says that it matters, and its limits."""
    yield f"{about.name}  {about.layer}, {about.cost}"
    yield from _entry("judges", ", ".join(about.judges))
    yield from _entry("looks at", about.looks_at)
    yield from _entry("source", about.source)
    for limit in about.thresholds:
        yield from _entry("limit", limit)
    times = f"every {_span(about.every)}, at most {_span(about.deadline)} long, counts for {_span(about.fresh_for)}"
    yield from _entry("runs", times)
    yield from _entry("unknown", f"after one bad run; {about.misses} in a row block new work")


def explain_kind(about: KindAbout) -> Iterator[str]:
    """The same of a kind of recorded output."""
    yield f"{about.kind}  {about.layer}, recorded: sickbay check --from {about.kind}=FILE"
    yield from _entry("judges", ", ".join(about.judges))
    yield from _entry("looks at", about.looks_at)
    yield from _entry("source", about.source)
    for limit in about.thresholds:
        yield from _entry("limit", limit)


def _words(report: CheckReport) -> str:
    named = [f"{fault.code} on {fault.component.kind} {fault.component.id}" for fault in report.faults[:_FAULTS_NAMED]]
    more = len(report.faults) - len(named)
    counted = [f"and {more} more"] if more > 0 else []
    return printable("; ".join((*named, *counted, *([report.why] if report.why else []))))


def _row(*cells: str) -> Iterator[str]:
    widths = (*(width for _, width in _COLUMNS), _REST)
    wrapped = [wrap(printable(cell), width) or [""] for cell, width in zip(cells, widths, strict=True)]
    for line in zip_longest(*wrapped, fillvalue=""):
        yield "  ".join(part.ljust(width) for part, width in zip(line, widths, strict=True)).rstrip()


def _entry(name: str, words: str) -> Iterator[str]:
    first = True
    for line in wrap(printable(words), _WIDTH - 12) or [""]:
        yield f"  {name if first else '':<8}  {line}".rstrip()
        first = False


def _span(span: timedelta) -> str:
    seconds = span.total_seconds()
    for unit, length in (("h", 3600), ("min", 60)):
        if seconds >= length and not seconds % length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:g} s"
