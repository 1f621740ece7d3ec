"""A job's timeline as an SVG picture: one bar for the whole, one for each attempt, a legend that adds up."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Final
from xml.sax.saxutils import escape

from sickbay.goodput.model import Bucket, GoodputReport, Segment

COLORS: Final = {
    Bucket.QUEUE: "#cfd8dc",
    Bucket.START: "#90caf9",
    Bucket.RESTORE: "#42a5f5",
    Bucket.PRODUCTIVE: "#43a047",
    Bucket.CHECKPOINT_STALL: "#fdd835",
    Bucket.RECOMPUTED: "#fb8c00",
    Bucket.HANG_DETECTION: "#e53935",
    Bucket.TEARDOWN: "#8d6e63",
    Bucket.HELD: "#ab47bc",
    Bucket.UNKNOWN: "#212121",
}
ROWS_DRAWN: Final = 60
"""Bars of the newest attempts; a picture with more is no picture."""
_WIDTH, _LEFT, _BAR, _GAP, _TOP = 960, 110, 22, 8, 56


def picture(report: GoodputReport, name: str) -> str:
    """The picture as the text of an SVG file. Readable in a browser; each stretch tells what it was on hovering."""
    attempts = sorted({each.attempt for each in report.segments if each.attempt})[-ROWS_DRAWN:]
    rows = [("all", report.segments)]
    rows += [(f"attempt {one}", tuple(each for each in report.segments if each.attempt == one)) for one in attempts]
    height = _TOP + len(rows) * (_BAR + _GAP) + 24 * (len(Bucket) // 2) + 30
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH + _LEFT + 20} {height}" '
        'font-family="sans-serif" font-size="13">',
        '<rect width="100%" height="100%" fill="white"/>',
        _text(10, 22, f"{name}: {_headline(report)}"),
        _text(_LEFT, 44, f"{report.submitted_at:%Y-%m-%d %H:%M:%S}Z"),
        _text(_LEFT + _WIDTH, 44, f"{report.until:%Y-%m-%d %H:%M:%S}Z", anchor="end"),
    ]
    for index, (label, segments) in enumerate(rows):
        top = _TOP + index * (_BAR + _GAP)
        lines.append(_text(10, top + 16, label))
        lines += _bar(report, segments, top)
    lines += _legend(report, _TOP + len(rows) * (_BAR + _GAP) + 20)
    return "\n".join([*lines, "</svg>", ""])


def _headline(report: GoodputReport) -> str:
    ettr = "no time yet" if report.ettr is None else f"ETTR {report.ettr:.1%}"
    return f"{ettr}, {report.attempts} attempt(s)" + (", still open" if report.open else "")


def _bar(report: GoodputReport, segments: tuple[Segment, ...], top: int) -> Iterator[str]:
    for segment in segments:
        left = _LEFT + _WIDTH * ((segment.began_at - report.submitted_at) / report.wall)
        width = _WIDTH * (segment.length / report.wall)
        told = f"{segment.bucket} {_seconds(segment.length)}" + (f" ({segment.cause})" if segment.cause else "")
        yield (
            f'<rect x="{left:.2f}" y="{top}" width="{width:.2f}" height="{_BAR}" fill="{COLORS[segment.bucket]}">'
            f"<title>{escape(told)}</title></rect>"
        )


def _legend(report: GoodputReport, top: int) -> Iterator[str]:
    for index, each in enumerate(report.buckets):
        left, line = _LEFT + (index % 2) * 400, top + (index // 2) * 24
        share = f" ({each.time / report.wall:.1%})" if report.wall else ""
        yield f'<rect x="{left}" y="{line}" width="14" height="14" fill="{COLORS[each.bucket]}"/>'
        yield _text(left + 22, line + 12, f"{each.bucket}: {_seconds(each.time)}{share}")


def _text(left: float, top: float, words: str, anchor: str = "start") -> str:
    return f'<text x="{left}" y="{top}" text-anchor="{anchor}">{escape(words)}</text>'


def _seconds(length: timedelta) -> str:
    return f"{length.total_seconds():,.1f} s"
